"""Benchmarks of practicum itself: `practicum bench`."""
