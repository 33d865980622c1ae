"""Benchmarks of practicum itself: `practicum bench`. Each prints its targets next to what was measured."""
