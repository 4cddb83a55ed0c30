"""The operators of each topology."""
