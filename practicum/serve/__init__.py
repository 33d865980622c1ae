"""The learning service: a proxy in front of models, outcomes, learning in the background, and careful rollouts."""
