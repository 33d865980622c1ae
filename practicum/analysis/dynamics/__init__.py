"""Training dynamics: scores of the checkpoints of a run, and the tasks that the run solved, kept solved, and lost."""
