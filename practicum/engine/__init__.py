"""The loop, and Run: the one way to every effect."""
