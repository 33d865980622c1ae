"""Objects that installed packages register under an entry point group, such as `practicum.scorers`.

A package names them in its `pyproject.toml`, and they are imported only when they are asked for:

    [project.entry-points."practicum.scorers"]
    levenshtein = "my_package.scorers:levenshtein"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from practicum.core.errors import UsageError


def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, sorted. Nothing is imported.

    Where two packages register the same name, `load_object` refuses it.
    """
    found = entry_points(group=group)
    return {name: found[name] for name in sorted(found.names)}


def load_object(group: str, name: str) -> Any:
    """Import the object that is registered under this name.

    Raises UsageError, naming the package and the entry point, when the import fails for any reason or two packages
    register the name; KeyError when no package registers it.
    """
    candidates = entry_points(group=group, name=name)
    if not candidates:
        raise KeyError(name)
    if len({entry.value for entry in candidates}) > 1:
        packages = ", ".join(sorted(package_of(entry) for entry in candidates))
        raise UsageError(f"{name!r} is registered in {group} by several packages ({packages}); uninstall all but one")
    entry = candidates[name]
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"the package {package_of(entry)!r} registers {name!r} in {group} as {entry.value!r}, "
            f"which cannot be imported ({reason}); repair or uninstall the package"
        ) from error


def package_of(entry: EntryPoint) -> str:
    """The name of the distribution that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"


def describe(group: str) -> list[str]:
    """The registered names of a group for an error message, each with its package, and why it does not load."""
    lines = []
    for name, entry in registered(group).items():
        try:
            load_object(group, name)
            lines.append(f"{name} (of the package {package_of(entry)})")
        except UsageError as error:
            lines.append(f"{name} (broken: {error})")
    return lines
