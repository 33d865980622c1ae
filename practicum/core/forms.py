"""Forms: what comes from outside as named values, read and checked by pydantic, with one error for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import UsageError
from practicum.core.words import fault, one_line, wrong_field

MOST_FIELDS = 100
"""Fields of a form that is sent. Naming each of many as wrong would hold up other requests."""


class Form(BaseModel):
    """Named values, as JSON or as a query."""

    model_config = ConfigDict(extra="forbid")

    INVALID: ClassVar[str] = "request.malformed"
    """The code of the error for a form that is wrong."""

    WRONG: ClassVar[str] = "the request is wrong"
    """The beginning of the message of that error."""


F = TypeVar("F", bound=Form)


def read_form(form: type[F], given: bytes | Mapping[str, Any]) -> F:
    """The form with these values, from the bytes of a JSON object or from a mapping. Raises UsageError that names the
    first value that is wrong."""
    try:
        if isinstance(given, bytes):
            _require_few_fields(given)
            # JSON distinguishes numbers from texts, a query does not.
            return form.model_validate_json(given or b"{}", strict=True)
        if len(given) > MOST_FIELDS:
            raise _too_many(len(given))
        return form.model_validate({**given})
    except ValidationError as error:
        raise form_error(form, error) from error


def form_error(form: type[Form], error: ValidationError) -> UsageError:
    """The error for a form that is wrong."""
    extra = error.errors()[0]["type"] == "extra_forbidden"
    known = f" (the fields are {', '.join(form.model_fields) or 'none'})" if extra else ""
    text = one_line(f"{form.WRONG}: {fault(error, model=form)}{known}", 400)
    return UsageError(form.INVALID, text, param=wrong_field(error))


def _require_few_fields(body: bytes) -> None:
    """Raise UsageError for a JSON object with too many fields. Anything but an object is refused where it is read."""
    if body.count(b":") <= MOST_FIELDS:
        return
    import msgspec

    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = len(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        if fields > MOST_FIELDS:
            raise _too_many(fields)


def _too_many(fields: int) -> UsageError:
    return UsageError("request.malformed", f"the request has {fields:,} fields, more than {MOST_FIELDS}")
