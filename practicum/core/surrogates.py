"""Unpaired surrogates in JSON, which occur when a program cuts a text between the halves of a character. Strict parsers
refuse them."""

from __future__ import annotations

import re

_HALF = rb"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(%s)|.)" % _HALF, re.DOTALL)
"""Escape in JSON. The group is an unpaired surrogate."""


def without_unpaired(data: bytes) -> tuple[bytes, int]:
    """Replace each unpaired surrogate in JSON by U+FFFD. Return the JSON and the number of replacements."""
    if re.search(rb"\\" + _HALF, data) is None:
        return data, 0
    count = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if not match[1]:
            return match[0]
        count += 1
        return rb"\ufffd"

    return _ESCAPE.sub(replaced, data), count
