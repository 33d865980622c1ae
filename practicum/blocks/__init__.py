"""What methods are made of: one folder for each seam."""
