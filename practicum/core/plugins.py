"""Objects of the user's own: named as `module:name`, or registered by an installed package.

A package registers them in its `pyproject.toml`, and they are imported only when they are asked for:

    [project.entry-points."practicum.scorers"]
    levenshtein = "my_package.scorers:levenshtein"
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from practicum.core.errors import UsageError
from practicum.core.words import error_line, one_line


def import_object(reference: str) -> Any:
    """The object that `module:name` names; the module may lie in the current folder.

    Raises UsageError if there is no such object, or if importing its module fails, whatever that raises.
    """
    module_name, _, name = reference.partition(":")
    if os.getcwd() not in sys.path:
        # As `python -m` does, and permanently: a function may import its neighbours when it is called.
        sys.path.insert(0, os.getcwd())
    form, own = "write module:name, with the module installed or in the current folder", "the error is in that module"
    module = None
    try:
        module = importlib.import_module(module_name)
        return getattr(module, name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        advice = form if module or absent or not module_name else own
        raise UsageError("code.cannot_load", f"cannot load {reference!r} ({error_line(error)}); {advice}") from error


def import_function(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names. Raises UsageError as `import_object`, or if it is not callable."""
    function: Callable[..., Any] | None = import_object(reference)
    if not callable(function):
        raise UsageError("code.cannot_load", f"{reference!r} is a {type(function).__name__}, not a function")
    return function


_NAME = re.compile(r"[\w.+-]{1,64}", re.ASCII)
"""A name that can be typed, and that looks like what it is on every terminal."""


def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, sorted. Nothing is imported. Names with other characters than ASCII letters,
    digits and `_.+-`, or with more than 64, are left out: `describe` lists them.

    Where two packages register the same name, `load_registered` refuses it.
    """
    found = entry_points(group=group)
    return {name: found[name] for name in sorted(found.names) if _NAME.fullmatch(name)}


def load_registered(group: str, name: str) -> Any:
    """Import the object that is registered under this name.

    Raises UsageError, naming the package and the entry point, when the import fails for any reason or two packages
    register the name; KeyError when no package registers it.
    """
    candidates = entry_points(group=group, name=name)
    if not candidates:
        raise KeyError(name)
    if len({entry.value for entry in candidates}) > 1:
        packages = ", ".join(sorted(package_of(entry) for entry in candidates))
        raise UsageError(
            "plugin.duplicate",
            f"{name!r} is registered in {group} by several packages ({packages}); uninstall all but one",
        )
    entry = candidates[name]
    try:
        return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            "plugin.broken",
            f"the package {package_of(entry)!r} registers {name!r} in {group} as {entry.value!r}, "
            f"which cannot be imported ({error_line(error)}); repair or uninstall the package",
        ) from error


def package_of(entry: EntryPoint) -> str:
    """The name of the distribution that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"


def describe(group: str) -> list[str]:
    """The registered names of a group for an error message, each with its package, and why it does not load."""
    lines = []
    for name, entry in registered(group).items():
        try:
            load_registered(group, name)
            lines.append(f"{name} (of the package {package_of(entry)})")
        except UsageError as error:
            lines.append(f"{name} (broken: {error})")
    refused = (entry for entry in entry_points(group=group) if not _NAME.fullmatch(entry.name))
    lines += [
        f"{one_line(entry.name, 40)!r} (refused: not a name; of the package {package_of(entry)})" for entry in refused
    ]
    return lines
