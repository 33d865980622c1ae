"""The parts methods are made of, one file a seam. Each is a small function that gives a seam, or wraps one."""
