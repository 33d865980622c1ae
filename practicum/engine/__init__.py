"""The learning loop, and `Run`, through which every effect passes."""
