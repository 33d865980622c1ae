"""The seam `reflect`: from attempts to lessons."""
