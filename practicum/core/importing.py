"""Objects of the user's own, named as `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from practicum.core.errors import UsageError


def import_object(reference: str) -> Any:
    """The object that `module:name` names; the module may lie in the current folder.

    Raises UsageError if there is no such object, or if importing its module fails, whatever that raises.
    """
    module_name, _, name = reference.partition(":")
    if os.getcwd() not in sys.path:
        # As `python -m` does, and permanently: a function may import its neighbours when it is called.
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"cannot load {reference!r} ({reason}); write module:name, with the module installed or in the current "
            "folder"
        ) from error


def import_function(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names. Raises UsageError as `import_object`, or if it is not callable."""
    function: Callable[..., Any] | None = import_object(reference)
    if not callable(function):
        raise UsageError(f"{reference!r} is a {type(function).__name__}, not a function")
    return function
