"""Reads fields of records that another program wrote, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Warn = Callable[[str], None]
"""Records a problem at one position; reading goes on."""


def own_id(record: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these fields that can be the id of a trace."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None


def object_at(record: Any, *keys: str) -> Mapping[str, Any]:
    """The object below these keys; an empty one if there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def objects_in(record: Mapping[str, Any], key: str, warn: Warn) -> Iterator[Mapping[str, Any]]:
    """The objects of the list in this field."""
    value = record.get(key)
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item
        else:
            warn(f"{key!r} contains something that is not an object")
    if value is not None and not isinstance(value, list):
        warn(f"{key!r} is not a list")


def text_at(record: Mapping[str, Any], *keys: str) -> str:
    """The first of these fields that is a text; empty if none is."""
    return next((value for key in keys if isinstance(value := record.get(key), str) and value), "")
