"""Models by name, what they may cost, and the seats (roles) they sit in."""
