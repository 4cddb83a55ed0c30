"""Keyed state with deadlines: map, shuffle, reduce, on Spark's ``transformWithState``."""
