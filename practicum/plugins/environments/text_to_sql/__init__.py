"""Text-to-SQL data sets (Spider, CoSQL, BIRD, as in StreamBench): questions about SQLite databases."""
