"""``taut bench plan``: what was planned against what was measured."""
