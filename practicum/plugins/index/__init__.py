"""Search index of a run with many entries, in files in the run's folder."""
