"""The seam `sample`: which tasks the next step works on.

A sampler takes the tasks, the steps so far and the run, and yields a `Batch` for each step.
"""
