"""Scorers: rules, unit tests, and measures of text and software."""
