"""Scorers: how good an answer is, by rules, tests, concepts or a function of the user."""
