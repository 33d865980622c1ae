"""Fields of an operation's form with their controls, for pages and commands. Also reads the values of a form from the
texts that a browser sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen

from practicum.core.errors import UsageError
from practicum.core.forms import Form
from practicum.core.words import one_line

LONG = 500
"""Length limit (characters) above which a text field gets several lines."""

Control = Literal["line", "text", "number", "choice", "choices", "check"]


@dataclass(frozen=True)
class FormField:
    """Field of a form, with its control. `about` is the help text. `choices` has the values to choose from; `least` and
    `most` are the bounds of a number. `whole`: only whole numbers are valid."""

    name: str
    control: Control
    about: str
    required: bool
    default: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = False

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")

    @property
    def sent(self) -> tuple[str, ...]:
        """Names under which a browser sends the values of the field: a separate name for each choice if several choices
        are allowed, else the name of the field."""
        return tuple(f"{self.name}.{choice}" for choice in self.choices) if self.control == "choices" else (self.name,)


def fields_of(form: type[Form], but: str) -> list[FormField]:
    """Return the fields of a form, except the field `but`."""
    return [_field(name, field) for name, field in form.model_fields.items() if name != but]


def _field(name: str, field: Any) -> FormField:
    kind, limits = _plain(field.annotation, [*field.metadata])
    about, required = field.description or "", field.is_required()
    default = "" if field.default is None or required else str(field.default)
    if get_origin(kind) is list:
        inner, _ = _plain(get_args(kind)[0], [])
        return FormField(name, "choices", about, required, choices=tuple(map(str, get_args(inner))))
    if get_origin(kind) is Literal:
        return FormField(name, "choice", about, required, default, tuple(map(str, get_args(kind))))
    if kind is bool:
        return FormField(name, "check", about, required, "")
    if kind in (int, float):
        least = next((one.ge for one in limits if isinstance(one, Ge)), None)
        most = next((one.le for one in limits if isinstance(one, Le)), None)
        return FormField(name, "number", about, required, default, (), least, most, kind is int)  # type: ignore[arg-type]
    most_length = next((one.max_length for one in limits if isinstance(one, MaxLen)), 0)
    return FormField(name, "text" if most_length > LONG else "line", about, required, default)


def _plain(annotation: Any, limits: list[Any]) -> tuple[Any, list[Any]]:
    """Return the type of a field without None, and the limits of the field."""
    kind, arguments = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        limits = [*limits, *arguments[1:]]
        # pydantic keeps the limits of a Field in its metadata.
        return _plain(
            arguments[0], [*limits, *(one for part in arguments[1:] for one in getattr(part, "metadata", ()))]
        )
    if kind in (Union, UnionType):
        # A time is sent as text.
        return (
            (str, limits)
            if datetime in arguments
            else _plain(next(one for one in arguments if one is not NoneType), limits)
        )
    return annotation, limits


def read_fields(fields: Sequence[FormField], sent: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a form from the texts that a browser sent. Empty values are left out. Raise UsageError if a
    text belongs to no field."""
    if unknown := sent.keys() - {"token", *(name for field in fields for name in field.sent)}:
        named = ", ".join(field.name for field in fields) or "none"
        text = f"no field named {min(unknown)}: the fields are {named}"
        raise UsageError("request.malformed", one_line(text, 400))
    values = dict[str, Any]()
    for field in fields:
        if field.control == "choices":
            chosen = [choice for choice in field.choices if f"{field.name}.{choice}" in sent]
            values |= {field.name: chosen} if chosen else {}
        elif field.control == "check":
            values |= {field.name: True} if field.name in sent else {}
        elif (text := sent.get(field.name, "").strip()) != "":
            values[field.name] = _number(text, field) if field.control == "number" else text
    return values


def _number(text: str, field: FormField) -> Any:
    """Return the number in a text. If the text is not a number, return the text: validation of the form refuses it."""
    try:
        return int(text) if field.whole else float(text)
    except ValueError:
        return text
