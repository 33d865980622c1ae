"""Repair of the punctuation of model-written JSON between strings. The strings stay unchanged.

These mistakes are repaired: commas before a closing brace or bracket, missing commas at the end of a line, comments,
the literals of Python, and missing closing braces and brackets at the end of the text. General repair
(`json-repair`) also handles these mistakes, but it reads quotes, braces and fences within strings as punctuation, so
it cuts a text with a block of code or of JSON.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|//[^\n]*+|/\*(?:.*?\*/|.*)|[{}\[\],:]|[^\s"{}\[\],:/]++|\s++|.', re.DOTALL
)  # fmt: skip
"""Token of JSON. A string or comment without an end extends to the end of the text, so that the time is linear."""

_LITERALS = {"None": "null", "True": "true", "False": "false"}

_CLOSING = {"{": "}", "[": "]"}

_FENCE = "```"


def punctuated(text: str, close: bool) -> str:
    """Repair the punctuation of JSON, without its strings. With `close`, also add the braces and brackets that are
    missing at the end."""
    tokens: list[str] = []
    is_new_line = False
    for token in _TOKEN.findall(text):
        if token.isspace() or token.startswith(("//", "/*")):
            is_new_line |= "\n" in token
            continue
        last = tokens[-1] if tokens else ""
        if token in ("}", "]") and last == ",":
            tokens.pop()
        elif is_new_line and token[0] in '"{[' and last[-1:] in ('"', "}", "]"):
            tokens.append(",")
        tokens.append(_LITERALS.get(token, token))
        is_new_line = False
    if close:
        tokens += _missing(tokens)
    return " ".join(tokens)


def _missing(tokens: list[str]) -> list[str]:
    """Return the braces and brackets that are missing at the end. A fence and a comma at the end are removed from
    `tokens`."""
    while tokens and tokens[-1] in (_FENCE, ","):
        tokens.pop()
    opened: list[str] = []
    for token in tokens:
        if token in _CLOSING:
            opened.append(_CLOSING[token])
        elif opened and token == opened[-1]:
            opened.pop()
    return opened[::-1]
