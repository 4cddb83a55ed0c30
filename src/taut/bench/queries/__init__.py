"""``taut bench queries``: many windowed queries on one Spark, policy against policy."""
