"""Reports and plots of runs: comparisons, monitoring, training dynamics, networks of agents."""
