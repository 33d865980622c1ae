"""Models by name: clients, budgets, prompts and structured output."""
