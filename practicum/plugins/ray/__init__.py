"""Attempts on a Ray cluster: the run stays in one process, and its attempts are made on workers."""
