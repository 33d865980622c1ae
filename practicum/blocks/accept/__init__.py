"""The seam `accept`: whether the edits are kept."""
