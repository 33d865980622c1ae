"""Sessions: setup of runs and spaces, learning, evaluation, and review, editing and removal of entries."""
