"""One site over all spaces: runs, served spaces and comparisons, read by one model and drawn by one kit."""
