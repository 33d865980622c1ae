"""Frozen data: tasks, traces, entries, edits, the context and its views. Imports no other part of practicum."""
