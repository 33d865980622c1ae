"""The papers' ablations, one a file: nothing but variants, and the tables they stand in."""
