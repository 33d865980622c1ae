"""Third-party environments and data sets: AppWorld, and the file formats of public data sets."""
