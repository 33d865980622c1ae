"""practicum: agents that learn from experience by changing what is in their context, never their weights."""

__version__ = "0.1.0"
