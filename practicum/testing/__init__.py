"""For tests, and for users' own tests: a simulated model server, and JSON values that fit a schema."""
