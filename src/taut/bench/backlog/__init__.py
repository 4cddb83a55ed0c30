"""``taut bench backlog``: more arrives than batches may take."""
