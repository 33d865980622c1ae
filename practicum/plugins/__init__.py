"""What only some users need, one folder each, registered by the entry points that packages of other people use.

Nothing outside this folder imports it (import-linter).
"""
