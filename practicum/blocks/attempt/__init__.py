"""The seam `attempt`: how often and how a task is tried in learning."""
