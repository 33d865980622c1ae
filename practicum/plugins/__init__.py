"""Optional features, one folder each, registered by the same entry points as third-party packages.

No module outside this folder imports it (checked by import-linter).
"""
