"""What the agents of a network remember."""
