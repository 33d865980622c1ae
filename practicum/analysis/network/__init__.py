"""Networks of agents: what is in their experience pools, and what happened in one attempt."""
