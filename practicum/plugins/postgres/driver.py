"""Imports psycopg, the PostgreSQL driver. If psycopg is missing, raises UsageError with the command that installs
it."""

from __future__ import annotations

from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install

try:
    import psycopg
except ImportError as error:
    needs = f"a PostgreSQL store needs psycopg: {pip_install('postgres')} ({error})"
    raise UsageError("extra.missing", needs) from error

__all__ = ["psycopg"]
