"""AppWorld (Trivedi et al., 2024): an agent, the tasks, and a scorer that reads the results of AppWorld's tests."""
