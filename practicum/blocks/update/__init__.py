"""The seam `update`: from lessons to edits of the context."""
