"""Objects of the user's own, by the name of their module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from practicum.core.errors import UsageError


def import_object(reference: str) -> Any:
    """What `module:name` stands for, looked for in the current folder too. Raises UsageError where there is no such
    thing, or where importing its module fails, whatever that raises."""
    module_name, _, name = reference.partition(":")
    if os.getcwd() not in sys.path:
        # As `python -m` does, and for good: what is found may import its neighbours when it is called.
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"cannot load {reference!r} ({why}); write module:name, the module in the current folder or installed"
        ) from error


def import_function(reference: str) -> Callable[..., Any]:
    """What `module:function` stands for. Raises UsageError as `named` does, and for what cannot be called."""
    found: Callable[..., Any] | None = import_object(reference)
    if not callable(found):
        raise UsageError(f"{reference!r} is a {type(found).__name__}, not something to call")
    return found
