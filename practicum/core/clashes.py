"""Settings that exclude each other, or that have no effect beside others: declared in tables next to the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from practicum.core.errors import UsageError

ON = bool
"""In a condition: any value that is true."""


@dataclass(frozen=True, slots=True)
class Clash:
    """Values that are refused together. Settings have a method `given(*names)`: those of the names that were set.

    It holds if all of `when` is true, none of `unless`, and, where `unused` names settings, one of those was set: they
    have no effect then. A condition has a value by the name of a setting (`splits.val` is an attribute of an
    attribute), or several values as a tuple, or a function of the value; `when` may also be a function of the settings.

    `do` says what to do: {names} are the unused settings that were set, {setting} the first of them, {s.NAME} a value.
    """

    when: Mapping[str, Any] | Callable[[Any], object]
    do: str
    unused: tuple[str, ...] = ()
    unless: Mapping[str, Any] = field(default_factory=dict)
    code: str = "settings.invalid"
    fields: Mapping[str, str] = field(default_factory=dict)

    def holds(self, s: Any) -> bool:
        if self.unused and not s.given(*self.unused):
            return False
        when = self.when(s) if callable(self.when) else all(_is(s, *one) for one in self.when.items())
        return bool(when) and not any(_is(s, *one) for one in self.unless.items())

    def error(self, s: Any) -> UsageError:
        """The refusal of these settings."""
        names = s.given(*self.unused)
        first = {"setting": names[0]} if names else {}
        return UsageError(self.code, self.do.format(names=", ".join(names), s=s, **first), **{**first, **self.fields})


def needs(*names: str, code: str = "settings.invalid", **values: Any) -> Clash:
    """Settings that have an effect only beside one of these values."""
    several = {name: wanted if isinstance(wanted, tuple) else (wanted,) for name, wanted in values.items()}
    texts = (name if ON in wanted else f"{name}={' or '.join(map(str, wanted))}" for name, wanted in several.items())
    text = " or ".join(texts).replace("True", "true")
    return Clash({}, f"{{names}} needs {text}: set that too, or leave it out", names, unless=values, code=code)


def _is(s: Any, name: str, wanted: Any) -> bool:
    value = attrgetter(name)(s)
    if callable(wanted):
        return bool(wanted(value))
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)


def refuse(s: Any, clashes: Iterable[Clash]) -> None:
    """Raises UsageError for the first clash that holds."""
    for clash in clashes:
        if clash.holds(s):
            raise clash.error(s)
