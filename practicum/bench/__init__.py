"""`practicum bench`: measurements with the user's own models and data."""
