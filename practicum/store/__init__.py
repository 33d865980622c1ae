"""One SQLite file a run: everything a run was, is and paid for."""
