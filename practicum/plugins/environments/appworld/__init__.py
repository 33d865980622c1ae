"""AppWorld (Trivedi et al., 2024): an agent that acts in it, the scorer that reads its tests, and its tasks."""
