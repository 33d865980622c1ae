"""Forms: named values from outside, read and validated by pydantic. Every invalid form raises UsageError."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import UsageError
from practicum.core.words import fault, one_line, wrong_field

MOST_FIELDS = 100
"""Maximum fields of a form in a request. Reporting thousands of wrong fields would delay other requests."""


class Form(BaseModel):
    """Named values, from JSON or from a query string."""

    model_config = ConfigDict(extra="forbid")

    INVALID: ClassVar[str] = "request.malformed"
    """Error code for an invalid form."""

    WRONG: ClassVar[str] = "the request is wrong"
    """Beginning of the error message."""


F = TypeVar("F", bound=Form)


def read_form(form: type[F], values: bytes | Mapping[str, Any]) -> F:
    """Return the form with these values, from the bytes of a JSON object or from a mapping. Raises UsageError that
    names the first wrong value."""
    try:
        if isinstance(values, bytes):
            _require_few_fields(values)
            # Strict, because JSON distinguishes numbers from texts; a query string does not.
            return form.model_validate_json(values or b"{}", strict=True)
        if len(values) > MOST_FIELDS:
            raise _too_many(len(values))
        return form.model_validate({**values})
    except ValidationError as error:
        raise form_error(form, error) from error


def form_error(form: type[Form], error: ValidationError) -> UsageError:
    """Return the error for an invalid form."""
    extra = error.errors()[0]["type"] == "extra_forbidden"
    fields = f" (the fields are {', '.join(form.model_fields) or 'none'})" if extra else ""
    text = one_line(f"{form.WRONG}: {fault(error, model=form)}{fields}", 400)
    return UsageError(form.INVALID, text, param=wrong_field(error))


def _require_few_fields(body: bytes) -> None:
    """Raise UsageError for a JSON object with too many fields. A JSON value that is not an object passes this check,
    and is refused when the form is parsed."""
    if body.count(b":") <= MOST_FIELDS:
        return
    import msgspec

    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = len(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        if fields > MOST_FIELDS:
            raise _too_many(fields)


def _too_many(fields: int) -> UsageError:
    return UsageError("request.malformed", f"the request has {fields:,} fields, more than {MOST_FIELDS}")
