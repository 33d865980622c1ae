"""What is compared: named variants of methods, in tables that each have a baseline.

All of it is data: lists of methods, tables of papers and sweeps over a setting look the same to the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from practicum import methods
from practicum.core.errors import UsageError
from practicum.engine.loop import Method

LENGTH = frozenset({"epochs", "steps"})
"""Settings that say when learning ends; a method is given one of them."""


@dataclass(frozen=True)
class Variant:
    """A method with settings, under its own name. A `stream` variant learns only from the scored tasks, and predicts
    each of them before learning from it. `after` names the variant whose result (with the same seed) it starts from.

    `part` is the part of the training tasks that it learns from, (1, 1) for none. `options` are the fields of `Config`
    in which it differs from the others. `change` makes another method of its own, such as one that is told to do harm.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    after: str = ""
    part: tuple[float, float] = (0, 1)
    options: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Method], Method] | None = None


@dataclass(frozen=True)
class ComparisonTable:
    """Variants that are compared with one of them. `title` says which question the table answers, and its source."""

    title: str
    baseline: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Study:
    """The tables of a comparison; a variant that stands in several tables is run once."""

    tables: tuple[ComparisonTable, ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Each variant once, in the order of the tables."""
        by_name: dict[str, Variant] = {}
        for table in self.tables:
            for variant in table.variants:
                if by_name.setdefault(variant.name, variant) != variant:
                    raise UsageError(
                        "comparison.duplicate",
                        f"two different variants are called {variant.name!r}: rename one of them",
                    )
        return tuple(by_name.values())

    def with_settings(self, settings: Mapping[str, Any], online: bool = False) -> Study:
        """Add the user's settings: "name" for every method that has it, "which.name" for one method or variant.

        The settings that define a variant can only be changed by its name. Raises UsageError for a setting that reaches
        no variant.
        """
        unused = set(settings)
        tables = tuple(
            replace(table, variants=tuple(_with_settings(v, settings, online, unused) for v in table.variants))
            for table in self.tables
        )
        if unused:
            raise UsageError("settings.unused", _unused_message(min(unused), self))
        return Study(tables)


def of_methods(names: Sequence[str], baseline: str | None = None) -> Study:
    """Compare methods at their defaults.

    "name=method" gives a method another name, so that it can be compared twice. The default baseline is `none` where
    it is listed, otherwise the first method; a baseline that is not listed is added.
    """
    variants = [_parsed(name) for name in names]
    listed = [variant.name for variant in variants]
    if repeated := [name for name in listed if listed.count(name) > 1]:
        raise UsageError(
            "comparison.duplicate",
            f"{repeated[0]!r} is compared twice: give one of them another name, as NAME={repeated[0]}",
        )
    if not variants:
        raise UsageError(
            "settings.missing",
            "which methods? Give `methods=none,ace,...`, or one method with `sweep`",
            setting="methods",
        )
    chosen = baseline or ("none" if "none" in listed else listed[0])
    if chosen not in listed:
        variants.insert(0, _parsed(chosen))
    if len(variants) < 2:
        raise UsageError(
            "settings.missing", f"there is nothing to compare {chosen} with: name another method, or `baseline=METHOD`"
        )
    return Study((ComparisonTable(f"Methods compared with {chosen}", chosen, tuple(variants)),))


def of_sweep(method: str, setting: str, values: Sequence[str], baseline: str | None = None) -> Study:
    """Compare one method with each value of one setting; the default baseline is the first value."""
    if setting not in methods.setting_docs(method):
        raise UsageError(
            "settings.unknown",
            f"method {method} has no setting {setting!r}: practicum bench methods {method} lists those it has",
            setting=setting,
            method=method,
        )
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise UsageError(
            "settings.invalid", f"`sweep={setting}` needs at least two values, each only once", setting="sweep"
        )
    variants = tuple(Variant(f"{method} {setting}={value}", method, {setting: value}) for value in values)
    names = {value: variant.name for value, variant in zip(values, variants, strict=True)}
    chosen = names.get(baseline or values[0], baseline or "")
    if chosen not in names.values():
        variants = (_parsed(chosen), *variants)
    return Study((ComparisonTable(f"{method} by {setting}, compared with {chosen}", chosen, variants),))


def _parsed(text: str) -> Variant:
    name, equals, method = (part.strip() for part in text.partition("="))
    if not name or (equals and not method):
        raise UsageError("settings.invalid", f"{text!r} is not of the form METHOD or NAME=METHOD")
    methods.settings_of(method or name)
    return Variant(name, method or name)


def reachable(variant: Variant) -> set[str]:
    """The settings that a value for all variants can reach in this one, unless it has its own value of them."""
    # A stream sees each task once, and a variant that has one of the two says with it when its learning ends.
    fixed = LENGTH if variant.stream or LENGTH & variant.settings.keys() else frozenset()
    return {name for name in methods.setting_docs(variant.method) if name not in fixed}


def _with_settings(variant: Variant, given: Mapping[str, Any], online: bool, unused: set[str]) -> Variant:
    """The variant with those of the given settings that concern it, which are removed from `unused`."""
    known = reachable(variant)
    general = {key: value for key, value in given.items() if key in known}
    for_method: dict[str, Any] = {}
    for_variant: dict[str, Any] = {}
    for key, value in given.items():
        which, dot, setting = key.rpartition(".")
        if dot and which in (variant.name, variant.method) and (setting in known or which == variant.name):
            (for_variant if which == variant.name != variant.method else for_method)[setting] = value
            unused.discard(key)
    unused.difference_update(general.keys() - for_method.keys() - variant.settings.keys())
    stream = {"online": True} if online else {}
    return replace(variant, settings={**general, **for_method, **variant.settings, **for_variant, **stream})


def _unused_message(key: str, study: Study) -> str:
    which, dot, setting = key.rpartition(".")
    if dot and which in {name for v in study.variants for name in (v.name, v.method)}:
        listed = f"`practicum bench methods {which}` lists its settings"
        return f"{which} has no setting {setting!r} (`settings: {key}=...`); {listed}"
    if dot:
        return f"`settings: {key}=...`: {which!r} is not compared here; {', '.join(v.name for v in study.variants)} are"
    if any(setting in methods.setting_docs(v.method) for v in study.variants):
        return f"every variant that has a setting {setting!r} has its own value of it: leave out `settings: {key}=...`"
    return f"none of the methods has a setting {setting!r} (`settings: {key}=...`)"
