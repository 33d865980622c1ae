"""Searches over whole candidates, by `gepa`, `dspy` and by beams."""
