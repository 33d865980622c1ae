"""Plug-ins that installed packages register, and objects that a user names as `module:name`.

A package registers a plug-in in its `pyproject.toml`. The plug-in is imported on first use:

    [project.entry-points."practicum.scorers"]
    levenshtein = "my_package.scorers:levenshtein"

practicum registers its own plug-ins (`practicum.plugins`) in the same way.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from typing_extensions import get_protocol_members

from practicum.core.errors import PracticumError, UsageError
from practicum.core.words import closest, error_line, one_line

T = TypeVar("T")


def import_object(reference: str) -> Any:
    """Import the object `module:name`. The module can be in the current folder.

    Raises UsageError if the object does not exist, or if importing its module raises any exception.
    """
    module_name, _, name = reference.partition(":")
    if os.getcwd() not in sys.path:
        # As with `python -m`, modules are searched in the current folder first. The folder stays on the path, because a
        # function may import other modules from it when the function is called.
        sys.path.insert(0, os.getcwd())
    form = "write module:name, with the module installed or in the current folder"
    module_advice = "the module itself raises this error"
    module = None
    try:
        module = importlib.import_module(module_name)
        return getattr(module, name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        advice = form if module or absent or not module_name else module_advice
        raise UsageError("code.cannot_load", f"cannot load {reference!r} ({error_line(error)}); {advice}") from error


def import_function(reference: str) -> Callable[..., Any]:
    """Import the function `module:function`. Raises UsageError in the same cases as `import_object`, and if the object
    is not callable."""
    function: Callable[..., Any] | None = import_object(reference)
    if not callable(function):
        raise UsageError("code.cannot_load", f"{reference!r} is a {type(function).__name__}, not a function")
    return function


_NAME = re.compile(r"[\w.+-]{1,64}", re.ASCII)
"""Pattern of names that can be typed, and that look the same on every terminal."""

OWN = "practicum"
"""Distribution whose plug-ins come before the plug-ins of other distributions."""

NO_CORE: Mapping[str, str | None] = MappingProxyType({})

Lacks = Callable[[object], Sequence[str]]
"""Function that returns the names of the parts that an object lacks to be a plug-in of one kind."""


def implements(protocol: type) -> Lacks:
    """Return the check for plug-ins that must have all members of a protocol."""
    return lambda plugin: sorted(part for part in get_protocol_members(protocol) if not hasattr(plugin, part))


def called(plugin: object) -> Sequence[str]:
    """Return the parts that a plug-in lacks to be a function."""
    return [] if callable(plugin) else ["a `__call__` method: it is not a function"]


@dataclass(frozen=True)
class Plugin:
    """Registered plug-in: its kind, its name, its package, and the reason why it cannot be used ("" if it can)."""

    kind: str
    name: str
    package: str
    problem: str = ""

    def as_json(self) -> dict[str, str]:
        """Return plain values, as `--json` prints them."""
        return asdict(self)


class Group(Generic[T]):
    """All plug-ins of one kind, from the core and from the entry points of installed packages.

    `name` is the entry point group, such as "practicum.scorers", and `noun` the kind in messages. `lacks` checks
    registered objects. `core` maps the name of each plug-in of the core to "module:object", or to None if the core
    creates the plug-in in a different way. `unknown` is the error code for an unknown name, and `advice` the end of the
    message for an unknown name.

    The names of the plug-ins of the core and of practicum are reserved: a plug-in of another package with a reserved
    name is refused. If two other packages register the same name, both are refused.
    """

    def __init__(
        self,
        name: str,
        noun: str,
        lacks: Lacks,
        core: Mapping[str, str | None] = NO_CORE,
        *,
        unknown: str = "plugin.unknown",
        advice: str = "",
    ) -> None:
        self.name, self.noun, self.core = name, noun, core
        self._lacks, self._unknown, self._advice = lacks, unknown, advice
        self._path: tuple[str, ...] = ()
        self._cached: tuple[dict[str, EntryPoint], list[Plugin]] = {}, []

    def names(self) -> tuple[str, ...]:
        """Return the names of all plug-ins: first the plug-ins of the core, in the order of `core`, then practicum's
        own plug-ins, then the plug-ins of other packages."""
        return (*self.core, *self.registered())

    def registered(self) -> Mapping[str, EntryPoint]:
        """Return the plug-ins that are in use: name → entry point, practicum's own plug-ins first. Imports nothing."""
        return self._sorted()[0]

    def refused(self) -> Sequence[Plugin]:
        """Return the plug-ins that are not in use because of their names."""
        return self._sorted()[1]

    def load(self, name: str) -> T:
        """Import a plug-in.

        Raises UsageError for an unknown name, for a package that cannot be imported, and for a plug-in that lacks a
        required part (see `lacks`). The message names the package or the part.
        """
        if (reference := self.core.get(name)) is not None:
            module, _, attribute = reference.partition(":")
            imported = importlib.import_module(module)
            return cast(T, getattr(imported, attribute) if attribute else imported)
        if (entry := self.registered().get(name)) is None:
            refused = [plugin for plugin in self.refused() if plugin.name == name]
            raise UsageError(
                "plugin.duplicate" if refused else self._unknown,
                f"unknown {self.noun} {name!r}{closest(name, self.names())}: {self._advise(refused)}",
                **{self.noun: name, "valid": [*self.names()]},
            )
        try:
            plugin = entry.load()
        except (PracticumError, KeyboardInterrupt):
            # practicum's errors already name the missing package.
            raise
        except BaseException as error:
            raise UsageError(
                "plugin.broken",
                f"the package {package_of(entry)!r} registers {name!r} in {self.name} as {entry.value!r}, "
                f"which cannot be imported ({error_line(error)}); repair or uninstall the package",
                **{self.noun: name, "package": package_of(entry)},
            ) from error
        if missing := self._lacks(plugin):
            raise UsageError(
                "plugin.invalid",
                f"the {self.noun} {name!r} of the package {package_of(entry)!r} lacks {', '.join(missing)}; correct or "
                "uninstall the package",
                **{self.noun: name, "package": package_of(entry), "missing": [*missing]},
            )
        return cast(T, plugin)

    def described(self) -> list[Plugin]:
        """Return all registered plug-ins. Imports each of them, to check whether it can be used."""
        plugins = []
        for name, entry in self.registered().items():
            problem = ""
            try:
                self.load(name)
            except PracticumError as error:
                problem = str(error)
            plugins.append(Plugin(self.noun, name, package_of(entry), problem))
        return [*plugins, *self.refused()]

    def _advise(self, refused: Sequence[Plugin]) -> str:
        reasons = [
            f"the {self.noun} of the package {plugin.package!r} is refused: {plugin.problem}" for plugin in refused
        ]
        names = f"use one of {', '.join(self.names())}" if self.names() else "none is registered"
        return "; ".join([*reasons, f"{names}{self._advice}"])

    def _sorted(self) -> tuple[dict[str, EntryPoint], list[Plugin]]:
        """Return the entry points in use, and the refused plug-ins. Both are cached until `sys.path` changes, because
        reading the entry points of all packages takes 20 ms."""
        if self._path != (path := tuple(sys.path)):
            self._path, self._cached = path, self._read()
        return self._cached

    def _read(self) -> tuple[dict[str, EntryPoint], list[Plugin]]:
        by_name: dict[str, list[EntryPoint]] = {}
        for entry in sorted(entry_points(group=self.name), key=lambda each: (package_of(each) != OWN, each.name)):
            by_name.setdefault(entry.name, []).append(entry)
        used: dict[str, EntryPoint] = {}
        refused: list[Plugin] = []
        for name, entries in by_name.items():
            accepted, reason = entries[:1], ""
            if not _NAME.fullmatch(name):
                accepted, reason = [], "a name has at most 64 ASCII letters, digits and _.+-"
            elif name in self.core or package_of(entries[0]) == OWN:
                accepted, reason = [] if name in self.core else accepted, f"practicum has a {self.noun} with this name"
            elif len({entry.value for entry in entries}) > 1:
                packages = " and ".join(map(package_of, entries))
                accepted, reason = [], f"{packages} register this name: keep only one of them installed"
            used.update((name, entry) for entry in accepted)
            if reason:
                refused += [
                    Plugin(self.noun, one_line(name, 40), package_of(entry), reason)
                    for entry in entries[len(accepted) :]
                ]
        return used, refused


def package_of(entry: EntryPoint) -> str:
    """Return the name of the distribution that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"
