"""Tasks: files, data sets, traces, scoring, and the sandbox for generated code."""
