"""Every checkpoint of a run scored: what was learned, kept and lost."""
