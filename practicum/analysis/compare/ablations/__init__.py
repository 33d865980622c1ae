"""The ablations of the papers, one per file: only variants and the tables they stand in."""
