"""AppWorld (Trivedi et al., 2024): its agent, its scorer, which reads the results of AppWorld's tests, and its
tasks."""
