"""The learning loop, and the class `Run`, through which a method makes model calls, attempts and all other effects."""
