"""The tasks of `practicum demo`."""
