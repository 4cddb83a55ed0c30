"""Many windowed queries on a few cores: in micro-batches, and an operator at a time."""
