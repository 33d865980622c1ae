"""Plug-ins, which installed packages register, and objects that a user names as `module:name`.

A package registers a plug-in in its `pyproject.toml`. It is imported when it is used:

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

OWN = "practicum"
"""The distribution whose plug-ins come first."""

NO_CORE: Mapping[str, str | None] = MappingProxyType({})

Lacks = Callable[[object], Sequence[str]]
"""Names the parts that an object lacks to be a plug-in of one kind."""


def implements(protocol: type) -> Lacks:
    """The check of plug-ins that must have all members of a protocol."""
    return lambda plugin: sorted(part for part in get_protocol_members(protocol) if not hasattr(plugin, part))


def called(plugin: object) -> Sequence[str]:
    """The check of plug-ins that are functions."""
    return [] if callable(plugin) else ["a call: it is not a function"]


@dataclass(frozen=True)
class Plugin:
    """A plug-in that a package registers: its kind, its name, and why it cannot be used ("" if it can)."""

    kind: str
    name: str
    package: str
    problem: str = ""

    def as_json(self) -> dict[str, str]:
        """Plain values, as `--json` prints them."""
        return asdict(self)


class Group(Generic[T]):
    """The plug-ins of one kind: those of the core, and those that installed packages register as entry points.

    `name` is the entry point group, such as "practicum.scorers", and `noun` the kind in messages. `lacks` checks what a
    package registers. `core` has the plug-ins of the core: each name with the "module:object" that it stands for, or
    with None where the core makes it in another way. `unknown` is the code of the error about an unknown
    name, and `advice` ends its message.

    A name of the core or of practicum's own plug-ins cannot be registered again: the other plug-in is refused. Where
    two other packages register one name, both are refused.
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
        self._found: tuple[dict[str, EntryPoint], list[Plugin]] = {}, []

    def names(self) -> tuple[str, ...]:
        """The names of the core in its order, then those of practicum's plug-ins, then those of other packages."""
        return (*self.core, *self.registered())

    def registered(self) -> Mapping[str, EntryPoint]:
        """The entry points that are used, by name: those of practicum first. Nothing is imported."""
        return self._sorted()[0]

    def refused(self) -> Sequence[Plugin]:
        """The plug-ins that are not used because of their names."""
        return self._sorted()[1]

    def load(self, name: str) -> T:
        """Import a plug-in.

        Raises UsageError for an unknown name; for a package that cannot be imported, which it names; and for a plug-in
        that lacks a part, which it names.
        """
        if (reference := self.core.get(name)) is not None:
            module, _, attribute = reference.partition(":")
            found = importlib.import_module(module)
            return cast(T, getattr(found, attribute) if attribute else found)
        if (entry := self.registered().get(name)) is None:
            refused = [plugin for plugin in self.refused() if plugin.name == name]
            raise UsageError(
                "plugin.duplicate" if refused else self._unknown,
                f"unknown {self.noun} {name!r}{closest(name, self.names())}: {self._known(refused)}",
                **{self.noun: name, "known": [*self.names()]},
            )
        try:
            plugin = entry.load()
        except (PracticumError, KeyboardInterrupt):
            # An error of practicum says already which package is missing.
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
        """All registered plug-ins. Each is imported, to see whether it can be used."""
        found = []
        for name, entry in self.registered().items():
            problem = ""
            try:
                self.load(name)
            except PracticumError as error:
                problem = str(error)
            found.append(Plugin(self.noun, name, package_of(entry), problem))
        return [*found, *self.refused()]

    def _known(self, refused: Sequence[Plugin]) -> str:
        why = [f"that of the package {plugin.package!r} is refused, as {plugin.problem}" for plugin in refused]
        return "; ".join([*why, f"known are {', '.join(self.names()) or 'none'}{self._advice}"])

    def _sorted(self) -> tuple[dict[str, EntryPoint], list[Plugin]]:
        """The entry points that are used, and those that are refused. They are kept until `sys.path` changes, since
        reading those of all packages takes 20 ms."""
        if self._path != (path := tuple(sys.path)):
            self._path, self._found = path, self._read()
        return self._found

    def _read(self) -> tuple[dict[str, EntryPoint], list[Plugin]]:
        by_name: dict[str, list[EntryPoint]] = {}
        for entry in sorted(entry_points(group=self.name), key=lambda each: (package_of(each) != OWN, each.name)):
            by_name.setdefault(entry.name, []).append(entry)
        used: dict[str, EntryPoint] = {}
        refused: list[Plugin] = []
        for name, entries in by_name.items():
            kept, reason = entries[:1], ""
            if not _NAME.fullmatch(name):
                kept, reason = [], "a name has at most 64 letters, digits and _.+- of ASCII"
            elif name in self.core or package_of(entries[0]) == OWN:
                kept, reason = [] if name in self.core else kept, f"practicum has a {self.noun} of this name"
            elif len({entry.value for entry in entries}) > 1:
                kept, reason = [], f"{' and '.join(map(package_of, entries))} register this name: uninstall all but one"
            used.update((name, entry) for entry in kept)
            if reason:
                refused += [
                    Plugin(self.noun, one_line(name, 40), package_of(entry), reason) for entry in entries[len(kept) :]
                ]
        return used, refused


def package_of(entry: EntryPoint) -> str:
    """The name of the distribution that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"
