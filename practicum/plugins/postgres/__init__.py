"""Stores in a PostgreSQL database: runs, the index of their entries, and what a service keeps."""
