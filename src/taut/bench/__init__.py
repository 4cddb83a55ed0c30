"""Benchmarks: stock Spark and Taut in one command, alternating, with every figure in one JSON."""
