"""Objects and modules of the user on their way to the workers.

An object travels by value where it stands in a script or was made there, and by its module's name otherwise; then the
module travels as a file, beside the others of its folder.
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
"""How many attributes below an object are looked at for what cannot be pickled."""


def pickled(value: object, name: str) -> bytes:
    """The object as bytes. Raises UsageError for one that cannot be pickled, with the path of what is in the way."""
    from ray import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        path, why = _culprit(value, name, error, DEEPEST)
        raise UsageError(
            "cluster.not_portable",
            f"{path}: {why}, so it cannot travel to the workers of a cluster: make it inside the function, where it is "
            "first used, or run with `engine=local`",
        ) from error
    return data


def _culprit(value: object, name: str, error: Exception, deepest: int) -> tuple[str, str]:
    """The path of the innermost part that cannot be pickled, and why."""
    from ray import cloudpickle

    for path, part in _parts(value, name) if deepest else ():
        try:
            cloudpickle.dumps(part)
        except Exception as inner:
            return _culprit(part, path, inner, deepest - 1)
    return name, str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _parts(value: object, name: str) -> Iterator[tuple[str, object]]:
    """What an object holds, each with its path."""
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
    """The folders of the modules in this process that are neither installed nor part of Python or of practicum."""
    named = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()] if "." not in name}
    paths = [Path(file).resolve() for name, file in named.items() if file and name != "practicum"]
    tops = {path.parent.parent if path.name == "__init__.py" else path.parent for path in paths}
    return sorted(top for top in tops if not _installed(top))


def modules_beside(folder: Path) -> list[str]:
    """The modules and packages of a folder, by path, for Ray's runtime environment."""
    files = sorted(folder.glob("*.py"))
    return [str(file) for file in files] + [str(init.parent) for init in sorted(folder.glob("*/__init__.py"))]


def own_paths() -> list[str]:
    """The folders in which this process finds modules and no installation does."""
    return [path for path in map(os.path.abspath, sys.path) if os.path.isdir(path) and not _installed(Path(path))]


def _installed(folder: Path) -> bool:
    known = (*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages(), sys.prefix)
    return any(folder.is_relative_to(Path(each).resolve()) for each in known) or folder.suffix == ".zip"
