"""Methods side by side: variants as data, one ordinary run each, and what may be said of the difference."""
