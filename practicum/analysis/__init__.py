"""Reports and pictures of runs: comparisons, monitoring, dynamics, networks."""
