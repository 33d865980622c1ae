"""Embeddings, the index, and search over entries."""
