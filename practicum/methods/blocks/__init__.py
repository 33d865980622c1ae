"""Blocks: functions that fill the seams of methods, and that wrap each other."""
