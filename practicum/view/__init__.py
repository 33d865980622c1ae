"""Web pages of runs, served spaces and comparisons: one read model (`read`), one set of templates (`templates`)."""
