"""Scorers: rate answers by rules, tests, concepts or a user's function."""
