"""Where tasks come from (`load`) and how answers are scored (`scorers`)."""
