"""What is compared: named variants of methods, in tables that each have a baseline. Everything here is data.

A list of methods, an ablation of a paper and a sweep over one setting are all the same to the harness.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from practicum import methods
from practicum.core.errors import UsageError

ABLATIONS = ("ace", "combee", "rcl")
"""Names of the modules in `ablations`."""


@dataclass(frozen=True)
class Variant:
    """A method with settings, by a name of its own. One that is a `stream` learns from the scored tasks alone, each
    predicted before it is learned from; `after` names the variant whose result it starts from, with the same seed."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    after: str = ""

    @property
    def folder(self) -> str:
        """The name as part of a path."""
        return re.sub(r"[^\w.=+-]+", "_", self.name)


@dataclass(frozen=True)
class Table:
    """Variants that are compared with one of them. `title` says which question they answer, and where it comes from."""

    title: str
    baseline: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Study:
    """Tables; a variant that stands in several is run once."""

    tables: tuple[Table, ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Each variant once, in the order of the tables."""
        found: dict[str, Variant] = {}
        for table in self.tables:
            for variant in table.variants:
                if found.setdefault(variant.name, variant) != variant:
                    raise UsageError(f"two variants are called {variant.name!r} and differ: give one another name")
        return tuple(found.values())

    def settled(self, settings: Mapping[str, Any], online: bool = False) -> Study:
        """The same with the user's settings in it, by "name" for every method that has it and "which.name" for one.

        A variant keeps what makes it that variant; a setting given to it by name goes over that. Raises UsageError for
        one that no variant has.
        """
        unused = set(settings)
        tables = tuple(
            replace(table, variants=tuple(_settled(v, settings, online, unused) for v in table.variants))
            for table in self.tables
        )
        if unused:
            raise UsageError(_unused(min(unused), self))
        return Study(tables)


def of_methods(names: Sequence[str], baseline: str | None = None) -> Study:
    """Each method at its defaults; "name=method" calls one by another name, so that it can stand there twice. The
    baseline is `none` where that is among them, else the first; one that is not among them is added."""
    variants = [_named(name) for name in names]
    called = [variant.name for variant in variants]
    if repeated := [name for name in called if called.count(name) > 1]:
        raise UsageError(f"{repeated[0]!r} is compared twice: call one of them by another name, as NAME={repeated[0]}")
    if not variants:
        raise UsageError("which methods? Give --methods none,ace,..., --ablate NAME, or one method with --sweep")
    chosen = baseline or ("none" if "none" in called else called[0])
    if chosen not in called:
        variants.insert(0, _named(chosen))
    if len(variants) < 2:
        raise UsageError(f"there is nothing to compare {chosen} with: name another method, or --baseline METHOD")
    return Study((Table(f"Methods compared with {chosen}", chosen, tuple(variants)),))


def of_sweep(method: str, setting: str, values: Sequence[str], baseline: str | None = None) -> Study:
    """One method with each value of one setting; the first is the baseline where none is named."""
    if setting not in methods.described(method):
        raise UsageError(f"method {method} has no setting {setting!r}: it has {', '.join(methods.described(method))}")
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise UsageError(f"--sweep {setting} needs two or more values, each once")
    swept = tuple(Variant(f"{method} {setting}={value}", method, {setting: value}) for value in values)
    called = {value: variant.name for value, variant in zip(values, swept, strict=True)}
    chosen = called.get(baseline or values[0], baseline or "")
    if chosen not in called.values():
        swept = (_named(chosen), *swept)
    return Study((Table(f"{method} by {setting}, compared with {chosen}", chosen, swept),))


def of_ablation(name: str) -> Study:
    """The tables of a paper's ablation."""
    if name not in ABLATIONS:
        raise UsageError(f"there is no ablation of {name!r}: there are {', '.join(ABLATIONS)}")
    study: Study = import_module(f"practicum.analysis.compare.ablations.{name}").STUDY
    return study


def _named(text: str) -> Variant:
    name, equals, method = (part.strip() for part in text.partition("="))
    if not name or (equals and not method):
        raise UsageError(f"{text!r} must read METHOD or NAME=METHOD")
    methods.settings_of(method or name)
    return Variant(name, method or name)


def _settled(variant: Variant, given: Mapping[str, Any], online: bool, unused: set[str]) -> Variant:
    # A stream sees each task once.
    has = {name for name in methods.described(variant.method) if not (variant.stream and name == "epochs")}
    general = {key: value for key, value in given.items() if "." not in key and key in has}
    own: dict[str, Any] = {}
    forced: dict[str, Any] = {}
    for key, value in given.items():
        which, dot, setting = key.rpartition(".")
        if dot and which in (variant.name, variant.method) and (setting in has or which == variant.name):
            (forced if which == variant.name != variant.method else own)[setting] = value
            unused.discard(key)
    unused.difference_update(general.keys() - own.keys() - variant.settings.keys())
    stream = {"online": True} if online else {}
    return replace(variant, settings={**general, **own, **variant.settings, **forced, **stream})


def _unused(key: str, study: Study) -> str:
    which, dot, setting = key.rpartition(".")
    if not dot and any(setting in methods.described(v.method) for v in study.variants):
        return f"every variant that has a setting {setting!r} has a value of its own: leave out --set {key}=..."
    if not dot:
        return f"none of the methods has a setting {setting!r} (--set {key}=...)"
    if which in {name for v in study.variants for name in (v.name, v.method)}:
        return f"{which} has no setting {setting!r} (--set {key}=...); `practicum methods {which}` lists them"
    return f"--set {key}=...: {which!r} is not compared here; {_listed(v.name for v in study.variants)} are"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
