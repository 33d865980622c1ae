"""Parser of the JSON object in a model's answer, with repair of common mistakes.

A valid answer is parsed directly. Otherwise these repairs are tried in turn, until the result fits the schema: an
object nested in another object is taken out (`{"Changes": {…}}`, a tool call), fields, or a whole answer, that are JSON
within a JSON string are decoded, the punctuation between strings is repaired (`models.punctuation`), and the library
`json-repair` fixes single quotes and unquoted names. A truncated answer is not completed, because the missing part
would be lost silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from practicum.models.backslashes import mend_backslashes
from practicum.models.prompting import extract_json
from practicum.models.punctuation import punctuated

M = TypeVar("M", bound=BaseModel)

MOST_REPAIRED, MOST_BRACES = 20_000, 500
"""Maximum number of characters, and of opening braces, of an answer that is repaired: the time of a repair is quadratic
in both numbers."""

MAX_STARTS = 8
"""Maximum number of opening braces at which a repair is tried, because prose before the object may contain braces."""

_LENIENT = json.JSONDecoder(strict=False)

_FENCE = re.compile(r"\A\s*(?:```\w*\n)?(.*?)(?:\n?```)?\s*\Z", re.DOTALL)


_OPENING = re.compile(r"""[\[{"]|(?<!\w)'""")


def read_object(schema: type[M], text: str, cut: bool = False) -> tuple[M, bool]:
    """Parse the object in an answer. Returns the object, and whether the answer was repaired. `cut`: the answer reached
    the output limit. Raises ValidationError if no object fits the schema, even after repair."""
    mended = mend_backslashes(text)
    whole, plain = extract_json(mended), None
    try:
        plain = schema.model_validate_json(whole)
        problem = None
        if plain.model_fields_set:
            return plain, mended != text
    except ValidationError as error:
        problem = error
    for value in _repaired(schema, mended, whole, cut):
        read = _validated(schema, value)
        if read is not None and read.model_fields_set:
            return read, True
    if plain is None:
        assert problem is not None
        raise problem
    return plain, mended != text


def _repaired(schema: type[BaseModel], text: str, whole: str, cut: bool) -> Iterator[dict[str, Any]]:
    """Yield candidates for the object, the most likely first."""
    value = _loaded(whole)
    yield from _objects_in(schema, value)
    if isinstance(inner := _loaded(_FENCE.sub(r"\1", text)), str):
        yield from _objects_in(schema, inner)
    ended = not cut and _ended(text)
    for start in _starts(text):
        if value := _object_at_start(punctuated(text[start:], close=ended)):
            yield from _objects_in(schema, value)
    if ended and len(text) <= MOST_REPAIRED and text.count("{") <= MOST_BRACES:
        from json_repair import loads

        for start in _starts(text):
            try:
                repaired = loads(text[start:], skip_json_loads=True)
            except (ValueError, RecursionError):
                # The JSON is nested too deeply.
                return
            for value in repaired if isinstance(repaired, list) else [repaired]:
                yield from _objects_in(schema, value)


def _starts(text: str) -> list[int]:
    """Return the positions of the first opening braces, at which an object may begin."""
    return [brace.start() for brace in islice(re.finditer("{", text), MAX_STARTS)]


def _object_at_start(text: str) -> Any:
    """Return the JSON object at the beginning of a text, or None."""
    try:
        return _LENIENT.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _objects_in(schema: type[BaseModel], value: object) -> Iterator[dict[str, Any]]:
    """Yield `value` if it is an object that has a field of the schema. Otherwise yield the objects directly in `value`
    that have a field of the schema."""
    value = _decoded(value)
    if not isinstance(value, dict):
        return
    if not schema.model_fields.keys().isdisjoint(value):
        yield value
        return
    for inner in map(_decoded, value.values()):
        if isinstance(inner, dict) and not schema.model_fields.keys().isdisjoint(inner):
            yield inner


def _validated(schema: type[M], value: dict[str, Any]) -> M | None:
    """Return the object as an instance of the schema; None if the object does not fit the schema. If the object does
    not fit at first, fields that hold JSON within a string are decoded, null fields are omitted, and the object is
    validated again."""
    for _ in range(2):
        try:
            return schema.model_validate_json(json.dumps(value))
        except ValidationError as error:
            value = _with_fields_mended(value, error)
    return None


def _with_fields_mended(value: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Repair the fields that `error` reports: remove null fields, and decode strings that should be lists or
    objects."""
    value = deepcopy(value)
    for fault in error.errors():
        *path, last = fault["loc"] or ("",)
        if not fault["type"].endswith("_type") or not isinstance(fault["input"], str | None):
            continue
        at: Any = value
        try:
            for name in path:
                at = at[name]
            if at[last] is None and isinstance(at, dict):
                del at[last]
            else:
                at[last] = _decoded(at[last])
        except (KeyError, IndexError, TypeError):
            # For unions, the location of a fault is not the location of the value.
            continue
    return value


def _decoded(value: object) -> object:
    """Decode a string that holds the JSON of an object or a list. Return other values unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    inner = _loaded(mend_backslashes(value))
    return value if inner is None else inner


def _loaded(text: str) -> Any:
    """Return the JSON value of a text, or None if the text is not JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _ended(text: str) -> bool:
    """Return whether an answer seems to be complete: no quote or bracket opens after the last closing brace."""
    last = text.rfind("}")
    return last >= 0 and not _OPENING.search(text, last)
