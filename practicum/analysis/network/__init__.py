"""Experience pools of networks of agents, in numbers and as a plot."""
