"""Plans on Spark: jobs are profiled, planned jobs are started and watched."""
