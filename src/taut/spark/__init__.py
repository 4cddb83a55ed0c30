"""Where Taut's decisions meet Spark."""
