"""Training dynamics: scores of the checkpoints of a run, and the tasks that it solved, kept solved, and lost."""
