"""Pickling of the user's objects for the workers, and lookup of the user's modules.

An object that is defined in a script is sent by value. Any other object is sent by reference: as its name and the name
of its module. If the module is the user's, the module's file is sent too, with the other modules in the same folder.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType

from practicum.core.errors import UsageError

DEEPEST = 8
"""Maximum depth of the search in an object's attributes for the part that cannot be pickled."""


def pickled(value: object, name: str) -> bytes:
    """Pickle an object. Raise UsageError if the object cannot be pickled. The message has the path of the part that
    fails. `name` is the name of the object in this path."""
    from ray import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        path, reason = _culprit(value, name, error, DEEPEST)
        raise UsageError(
            "cluster.not_portable",
            f"{path}: {reason}, so this object cannot be sent to the workers of a cluster: create it inside the "
            "function that uses it, or run with `engine=local`",
        ) from error
    return data


def _culprit(value: object, name: str, error: Exception, deepest: int) -> tuple[str, str]:
    """Return the path of the innermost part that cannot be pickled in an object, and the reason for the failure."""
    from ray import cloudpickle

    for path, part in _parts(value, name) if deepest else ():
        try:
            cloudpickle.dumps(part)
        except Exception as inner:
            return _culprit(part, path, inner, deepest - 1)
    return name, str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _parts(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield the parts of an object (closure, globals, items, attributes), each with its path."""
    if isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"{name}.<{variable}>", cell.cell_contents
        for variable in value.__code__.co_names:
            if variable in value.__globals__:
                yield f"{name}.<{variable}>", value.__globals__[variable]
        return
    if (owner := getattr(value, "__self__", None)) is not None:
        yield f"{name}.__self__", owner
    if isinstance(value, partial):
        yield from ((f"{name}.{field}", getattr(value, field)) for field in ("func", "args", "keywords"))
    if isinstance(value, Mapping):
        yield from ((f"{name}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{name}[{n}]", part) for n, part in enumerate(value))
    slots = (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()))
    own = {**getattr(value, "__dict__", {}), **{slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}}
    yield from ((f"{name}.{field}", part) for field, part in own.items())


def own_folders() -> list[Path]:
    """Return the folders of the user's modules: the modules of this process that do not belong to Python, to practicum
    or to another installed package."""
    named = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()] if "." not in name}
    paths = [Path(file).resolve() for name, file in named.items() if file and name != "practicum"]
    folders = {path.parent.parent if path.name == "__init__.py" else path.parent for path in paths}
    return sorted(folder for folder in folders if not _installed(folder))


def modules_in(folder: Path) -> list[str]:
    """Return the paths of the modules and packages in a folder, for Ray's runtime environment."""
    files = sorted(folder.glob("*.py"))
    return [str(file) for file in files] + [str(init.parent) for init in sorted(folder.glob("*/__init__.py"))]


def own_paths() -> list[str]:
    """Return the folders on this process's module path that do not belong to an installation."""
    return [path for path in map(os.path.abspath, sys.path) if os.path.isdir(path) and not _installed(Path(path))]


def _installed(folder: Path) -> bool:
    installations = (*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages(), sys.prefix)
    return any(folder.is_relative_to(Path(each).resolve()) for each in installations) or folder.suffix == ".zip"
