"""The loop, and Run: the one door to every effect."""
