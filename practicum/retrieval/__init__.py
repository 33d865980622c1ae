"""Embeddings, vector indexes, and search over entries."""
