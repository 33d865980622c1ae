"""Model clients, opened by name; budgets, prompts and structured output."""
