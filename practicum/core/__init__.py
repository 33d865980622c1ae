"""Frozen data: tasks, traces, entries, edits, the context and its views. Knows nothing of the other wings."""
