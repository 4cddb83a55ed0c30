"""``taut bench lanes``: how rows are dealt out to lanes, way against way, on one Spark."""
