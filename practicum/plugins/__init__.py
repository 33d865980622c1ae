"""Optional features, one folder each, registered by the same entry points as third-party packages.

No module outside this folder imports a module of this folder (checked by import-linter).
"""
