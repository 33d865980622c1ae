"""The seam `sample`: which tasks the next step works on."""
