"""The index of a run with many entries, in files beside the run."""
