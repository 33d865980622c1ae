"""AppWorld: its tasks, and a client of its environment server."""
