"""Combinations of settings that are refused: settings that exclude each other, or that have no effect in combination
with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from practicum.core.errors import UsageError

ON = bool
"""Condition that any true value of a setting fulfills."""


@dataclass(frozen=True, slots=True)
class Clash:
    """Combination of settings that is refused. The settings object has a method `were_set(*names)`, which returns the
    names that were set.

    The clash holds if all conditions of `when` are true and no condition of `unless` is true. `unused` are the settings
    that have no effect in this combination. If `unused` is not empty, the clash only holds if at least one of these
    settings was set. A condition maps the name of a setting (`splits.val` is an attribute of an attribute) to a value,
    a tuple of values, or a function of the value; `when` may also be a function of the settings.

    `do` is the message, with the advice. In the message, {names} is replaced by the settings of `unused` that were set,
    {setting} by the first of these settings, and {s.NAME} by the value of the setting NAME. `code` and `fields` are the
    code and the fields of the error.
    """

    when: Mapping[str, Any] | Callable[[Any], object]
    do: str
    unused: tuple[str, ...] = ()
    unless: Mapping[str, Any] = field(default_factory=dict)
    code: str = "settings.invalid"
    fields: Mapping[str, str] = field(default_factory=dict)

    def holds(self, s: Any) -> bool:
        if self.unused and not s.were_set(*self.unused):
            return False
        when = self.when(s) if callable(self.when) else all(_is(s, *item) for item in self.when.items())
        return bool(when) and not any(_is(s, *item) for item in self.unless.items())

    def error(self, s: Any) -> UsageError:
        """Return the error for these settings."""
        names = s.were_set(*self.unused)
        first = {"setting": names[0]} if names else {}
        return UsageError(self.code, self.do.format(names=", ".join(names), s=s, **first), **{**first, **self.fields})


def needs(*names: str, code: str = "settings.invalid", **values: Any) -> Clash:
    """Return the clash that refuses the settings `names`, unless another setting has an accepted value. `values` maps
    the names of such other settings to an accepted value, or to a tuple of accepted values."""
    several = {name: accepted if isinstance(accepted, tuple) else (accepted,) for name, accepted in values.items()}
    texts = (
        name if ON in accepted else f"{name}={' or '.join(map(str, accepted))}" for name, accepted in several.items()
    )
    text = " or ".join(texts).replace("True", "true")
    return Clash({}, f"{{names}} needs {text}: set {text}, or omit {{names}}", names, unless=values, code=code)


def _is(s: Any, name: str, expected: Any) -> bool:
    value = attrgetter(name)(s)
    if callable(expected):
        return bool(expected(value))
    return value in expected if isinstance(expected, tuple) else bool(value == expected)


def refuse(s: Any, clashes: Iterable[Clash]) -> None:
    """Raise UsageError for the first clash that holds for these settings."""
    for clash in clashes:
        if clash.holds(s):
            raise clash.error(s)
