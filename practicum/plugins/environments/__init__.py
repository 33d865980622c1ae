"""Environments and data sets of others: AppWorld, and the files of public data sets."""
