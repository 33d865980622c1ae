"""Lazy import of packages.

If a package re-exports names of its many modules, a program that needs one module imports all of them. `import_later`
registers the package without executing its code: its modules can be imported one by one, and the first use of any other
name of the package executes the code. `import_later` is for practicum's own processes; a program that uses practicum as
a library imports as usual.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import RLock
from types import ModuleType

_lock = RLock()
_LOADER = "_practicum_waits"
"""Attribute with a package's loader until the package is executed."""


class _Later(ModuleType):
    """Package that is not executed yet."""

    def __getattr__(self, name: str) -> object:
        # Attributes that tools look up in any module (`__wrapped__`, `__warningregistry__`) do not count as a use.
        if not name.startswith("__") or name == "__all__":
            with _lock:
                loader = vars(self).pop(_LOADER, None)
                if loader is not None:
                    loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


def import_later(*names: str) -> None:
    """Postpone the execution of these packages, given with outer packages first. Packages that are already imported, or
    not installed, are unchanged."""
    for name in names:
        parents = name.split(".")[:-1]
        path = None
        for depth in range(len(parents)):
            parent = PathFinder.find_spec(".".join(parents[: depth + 1]), path)
            path = parent.submodule_search_locations if parent is not None else []
        spec = None if name in sys.modules else PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is not None:
            package = module_from_spec(spec)
            package.__class__ = _Later
            vars(package)[_LOADER] = spec.loader
            sys.modules[name] = package
