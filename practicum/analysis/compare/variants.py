"""Variants of methods to compare, in tables that each have a baseline.

Lists of methods, tables of papers, and sweeps over a setting are all given to the harness as a `Study`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from practicum import methods
from practicum.core.errors import UsageError
from practicum.engine.loop import Method

LENGTH = frozenset({"epochs", "steps"})
"""Settings that define the end of learning. A method uses one of these two settings."""


@dataclass(frozen=True)
class Variant:
    """A method with settings, under a name.

    `stream`: learn only from the scored tasks, and predict each of these tasks before learning from it. `after`: name
    of the variant whose result (with the same seed) this variant starts from; empty if this variant does not start from
    another variant. `part`: begin and end of the range of training tasks to learn from, as shares of all training
    tasks; (1, 1): no tasks. `options`: values of fields of `Config` for this variant only. `change`: function that
    receives the method and returns the method to run instead, for example a harmful one.
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
    """Variants that are compared with a baseline variant. `title`: the subject of the table; in a table of a paper, the
    source precedes the subject."""

    title: str
    baseline: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Study:
    """Tables of a comparison. A variant in several tables is run once."""

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
                        f"two different variants have the name {variant.name!r}: rename one of them",
                    )
        return tuple(by_name.values())

    def with_settings(self, settings: Mapping[str, Any], online: bool = False) -> Study:
        """Return the study with the user's settings. The key "rounds" sets `rounds` for every method with such a
        setting, "ace.rounds" only for the method or variant `ace`.

        A setting that a variant itself defines can only be changed by a key that begins with the name of the variant.
        Raises UsageError for a setting that does not apply to any variant.
        """
        unused = set(settings)
        tables = tuple(
            replace(table, variants=tuple(_with_settings(v, settings, online, unused) for v in table.variants))
            for table in self.tables
        )
        if unused:
            raise UsageError("settings.unused", _unused_message(min(unused), self))
        return Study(tables)


def default_methods(labels: bool) -> tuple[str, ...]:
    """Return the methods that a comparison has if none are named: the agent without learning, the whole history in the
    prompt (which needs labels), and one method each that shows solved tasks, and rules."""
    return suited(("none", "icl", "episodes", "ace"), labels)


def suited(names: Sequence[str], labels: bool) -> tuple[str, ...]:
    """Return the methods that can learn: without labels, no method that needs labels."""
    return tuple(name for name in names if labels or not methods.settings_of(name).NEEDS_LABELS)


def of_methods(names: Sequence[str], baseline: str | None = None) -> Study:
    """Return a study that compares methods with their default settings.

    "name=method" gives a method another name, so that the method can be compared twice. The default baseline is the
    method `none` if `names` lists it, else the first of `names`. A baseline that is not in `names` is added.
    """
    variants = [_parsed(name) for name in names]
    listed = [variant.name for variant in variants]
    if repeated := [name for name in listed if listed.count(name) > 1]:
        raise UsageError(
            "comparison.duplicate",
            f"{repeated[0]!r} is listed twice: give one of them another name, as NAME={repeated[0]}",
        )
    if not variants:
        raise UsageError(
            "settings.missing",
            "no methods: pass `methods=none,ace,...`, or one method with `sweep`",
            setting="methods",
        )
    chosen = baseline or ("none" if "none" in listed else listed[0])
    if chosen not in listed:
        variants.insert(0, _parsed(chosen))
    if len(variants) < 2:
        raise UsageError(
            "settings.missing",
            f"only one method, {chosen}: pass another method to compare it with, or `baseline=METHOD`",
        )
    return Study((ComparisonTable(f"Methods compared with {chosen}", chosen, tuple(variants)),))


def of_sweep(method: str, setting: str, values: Sequence[str], baseline: str | None = None) -> Study:
    """Return a study that compares the values of one setting of a method. The default baseline is the first of
    `values`."""
    if setting not in methods.setting_docs(method):
        raise UsageError(
            "settings.unknown",
            f"method {method} has no setting {setting!r}: list its settings with practicum bench methods {method}",
            setting=setting,
            method=method,
        )
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise UsageError("settings.invalid", f"`sweep={setting}` needs at least two different values", setting="sweep")
    variants = tuple(Variant(f"{method} {setting}={value}", method, {setting: value}) for value in values)
    names = {value: variant.name for value, variant in zip(values, variants, strict=True)}
    chosen = names.get(baseline or values[0], baseline or "")
    if chosen not in names.values():
        variants = (_parsed(chosen), *variants)
    return Study((ComparisonTable(f"{method} by {setting}, compared with {chosen}", chosen, variants),))


def _parsed(text: str) -> Variant:
    name, equals, method = (part.strip() for part in text.partition("="))
    if not name or (equals and not method):
        raise UsageError("settings.invalid", f"{text!r}: write METHOD or NAME=METHOD")
    methods.settings_of(method or name)
    return Variant(name, method or name)


def reachable(variant: Variant) -> set[str]:
    """Return the names of the variant's settings that a key without the name of a method or variant can set. But if the
    variant itself defines a value of the setting, that value is used."""
    # Settings in `LENGTH` do not apply to a stream, which sees each task once, nor to a variant that sets one of them.
    fixed = LENGTH if variant.stream or LENGTH & variant.settings.keys() else frozenset()
    return {name for name in methods.setting_docs(variant.method) if name not in fixed}


def _with_settings(variant: Variant, settings: Mapping[str, Any], online: bool, unused: set[str]) -> Variant:
    """Return the variant with the settings that apply to it. Remove these settings from `unused`."""
    applicable = reachable(variant)
    general = {key: value for key, value in settings.items() if key in applicable}
    for_method: dict[str, Any] = {}
    for_variant: dict[str, Any] = {}
    for key, value in settings.items():
        owner, dot, setting = key.rpartition(".")
        if dot and owner in (variant.name, variant.method) and (setting in applicable or owner == variant.name):
            (for_variant if owner == variant.name != variant.method else for_method)[setting] = value
            unused.discard(key)
    unused.difference_update(general.keys() - for_method.keys() - variant.settings.keys())
    stream = {"online": True} if online else {}
    return replace(variant, settings={**general, **for_method, **variant.settings, **for_variant, **stream})


def _unused_message(key: str, study: Study) -> str:
    owner, dot, setting = key.rpartition(".")
    if dot and owner in {name for v in study.variants for name in (v.name, v.method)}:
        listing = f"list its settings with practicum bench methods {owner}"
        return f"{owner} has no setting {setting!r} (`settings: {key}=...`): {listing}"
    if dot:
        names = ", ".join(v.name for v in study.variants)
        return f"`settings: {key}=...`: this comparison has no method or variant {owner!r}; its variants are {names}"
    if any(setting in methods.setting_docs(v.method) for v in study.variants):
        return f"every variant with a setting {setting!r} defines its own value: leave out `settings: {key}=...`"
    return f"no method of this comparison has a setting {setting!r}: leave out `settings: {key}=...`"
