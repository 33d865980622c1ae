"""Attempts on other machines, through Ray: the run stays in one process, and its attempts are made on workers."""
