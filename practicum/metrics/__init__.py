"""Numbers about runs: intervals and comparisons."""
