"""Frozen data: tasks, traces, entries, edits, the context and its views.

This package imports no other part of practicum.
"""
