"""Packages whose own names are imported on their first use.

A package that gathers the names of its many modules makes every user of one module import them all. `import_later` puts
the package there without that: its modules can be imported one by one, and the first use of any other name imports the
rest. It is for practicum's own processes; a program that uses it as a library imports as it always does.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import RLock
from types import ModuleType

_lock = RLock()
_WAITS = "_practicum_waits"
"""The attribute that holds a package's loader until it is executed."""


class _Later(ModuleType):
    """A package that is not executed yet."""

    def __getattr__(self, name: str) -> object:
        # What tools look for in any module (`__wrapped__`, `__warningregistry__`) is no use of it.
        if not name.startswith("__") or name == "__all__":
            with _lock:
                waits = vars(self).pop(_WAITS, None)
                if waits is not None:
                    waits.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


def import_later(*names: str) -> None:
    """Let these packages wait, outer ones first. One that is imported already, or not installed, stays as it is."""
    for name in names:
        parents = name.split(".")[:-1]
        path = None
        for depth in range(len(parents)):
            found = PathFinder.find_spec(".".join(parents[: depth + 1]), path)
            path = found.submodule_search_locations if found is not None else []
        spec = None if name in sys.modules else PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is not None:
            package = module_from_spec(spec)
            package.__class__ = _Later
            vars(package)[_WAITS] = spec.loader
            sys.modules[name] = package
