"""The seam `act`: one scored attempt, exactly as in evaluation."""
