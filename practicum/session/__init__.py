"""Sessions: set up runs and spaces, learn, evaluate, and review, edit or forget what was learned."""
