"""The "taut" data source: one distributor hands small chunks of a log to many lanes."""
