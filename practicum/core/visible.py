r"""Escaping of text from outside for people and models: characters that hide, reorder or steer text are escaped.

A stored text is never changed: these functions are for texts that are printed, put into a page, or put into a prompt.
An escape looks like `\x1b` or `\u{202e}`. Escaping twice has no further effect, so each output can escape its texts
itself. An author can also write such an escape with ordinary letters; this text looks like an escaped text, but is
harmless.

Escaped are control characters (except line feed and tab), direction marks, characters without width or ink (zero-width
spaces, fillers, tags, variation selectors), surrogates, noncharacters, and private use characters (which look alike
without a special font). Some of the escaped characters are needed for writing. The needed characters are left unchanged
only in these positions:

- joiner and non-joiner between two letters of Arabic, Indic and related scripts (Persian, Urdu, Hindi, Sinhala ...);
- the zero-width space between two letters of scripts without spaces (Thai, Lao, Khmer, Burmese);
- the joiner between two emoji, and one variation selector after an emoji.

So these positions can hide at most two bits of data per letter. The flags of England, Scotland and Wales are spelled
with tag characters, and are escaped, because tag characters are used to smuggle text past readers.
"""

from __future__ import annotations

import json
import re
import unicodedata

_JOINED = "\u0620-\u0dff\u1000-\u109f\u1780-\u18af\u1a20-\u1bff\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
"""Scripts whose letters change their form next to a joiner."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf"
"""Scripts that are written without spaces between words."""

_EMOJI = "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"

_NEVER_SEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # without width, ink or letters
    "\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe\U0002ffff"
    "\U0003fffe-\U0010ffff"  # among them tags, the variation selectors from 17 on, and private use
)

_SUSPECT = re.compile(f"[{_NEVER_SEEN}\u200b-\u200d\ufe0e\ufe0f]")
"""Characters that are escaped, some of them depending on the characters around them. A search for this pattern takes
half the time of a search for `_HIDDEN`."""

_HIDDEN = re.compile(
    f"[{_NEVER_SEEN}]"
    f"|\u200b(?!(?<=[{_UNSPACED}].)[{_UNSPACED}])"
    f"|[\u200c\u200d](?!(?<=[{_JOINED}].)[{_JOINED}]|(?<=[{_EMOJI}\ufe0f]\u200d)[{_EMOJI}])"
    f"|[\ufe0e\ufe0f](?!(?<=[{_EMOJI}].)|(?<=[#*0-9].)\u20e3)"
)

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Korean fillers and the empty Braille pattern: letters and signs without ink."""

_BREAK = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Line breaks other than the line feed, as `str.splitlines` defines them."""

_BAR = "[|\uff5c]"
_PART = "[\\w\u2581.:/-]{1,48}"
_ANGLE = re.compile(
    # <|im_start|> and all other tokens with bars, also DeepSeek's, and Gemma's <|turn> and <turn|>
    f"<(?={_BAR}{_PART}{_BAR}?>|{_PART}{_BAR}>"
    "|/?(?:s|bos|eos|sop|eop|think|tool_call|tool_response|start_of_turn|end_of_turn|start_of_image|end_of_image)>"
    "|</?SYS>>)"
)
_FRAME = re.compile(r"<(?=[\s/]{0,9}(?:notes|data)[\s_-]{1,9}[0-9a-f]{6})", re.IGNORECASE)
"""Pattern of a `<` that begins a text like a frame mark (see `engine.framing`)."""

_WIDE_FRAME = re.compile(
    # The marks of `_FRAME`, written with full-width or other variants of signs and letters.
    r"[<\uff1c\u2039\u27e8\u3008\ufe64](?=[\s/\uff0f\u2044\u2215]{0,9}"
    r"(?:notes|data|\uff4e\uff4f\uff54\uff45\uff53|\uff44\uff41\uff54\uff41)"
    r"[\s_\-\u2010-\u2015\u2212\uff0d\uff3f]{1,9}[0-9a-f\uff10-\uff19\uff41-\uff46]{6})",
    re.IGNORECASE,
)
_SQUARE = re.compile(  # Llama 2, Mistral, GLM
    r"\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]|[gs]MASK\])"
)
TEMPLATE = re.compile(f"{_ANGLE.pattern}|{_SQUARE.pattern}")
"""Pattern of the first character of a token with which chat templates mark turns, roles, thoughts and tool calls.
Functions that replace these characters use `_ANGLE` and `_SQUARE` one after the other: two patterns that each begin
with one fixed character are searched several times faster than `TEMPLATE`."""

_ORDINARY = bytes([*b"\n\t", *range(0x20, 0x7F)])


def _ordinary(text: str) -> bool:
    """Whether a text has only printable ASCII characters, line feeds and tabs; a fast check."""
    return text.isascii() and not text.encode().translate(None, _ORDINARY)


def visible(text: str) -> str:
    """Escape all characters that hide, reorder or steer text. Line feeds and tabs are left unchanged. A text without
    characters to escape, as most texts are, is returned as the same object."""
    return text if _ordinary(text) or not _SUSPECT.search(text) else _HIDDEN.sub(_escape, text)


def is_blank(text: str) -> bool:
    """Whether no part of a text is visible: it is empty, or has only spaces, controls, marks and characters without
    ink."""
    return all(unicodedata.category(c)[0] in "CMZ" or c in _BLANK_LETTERS for c in text)


def not_blank(text: str) -> str:
    """Return the text. Raises ValueError if the text is blank."""
    if is_blank(text):
        raise ValueError("it is blank")
    return text


def visible_line(text: str) -> str:
    """Return a text for output on one line: like `visible`, but line feeds are escaped too."""
    return visible(text).replace("\n", "\\n")


def plain_breaks(text: str) -> str:
    """Replace each line break by a line feed: CR LF, CR, VT, FF, FS, GS, RS, NEL, U+2028 and U+2029."""
    return _BREAK.sub("\n", text)


def lines(text: str) -> list[str]:
    """Return the lines of a text, split at every line break. An empty text has one empty line."""
    return plain_breaks(text).split("\n")


def visible_to_model(text: str) -> str:
    r"""Return a text as a model may see it: visible, with plain line breaks, and with tokens of chat templates and
    frame marks broken by an escape (`\x3c|im_start|>`). So no server parses a part of the text as the beginning of a
    turn, and no model reads a part of the text as the end of a frame."""
    if not _ordinary(text):
        text = _WIDE_FRAME.sub(_escape, visible(plain_breaks(text)))
    return _SQUARE.sub(_escape, _FRAME.sub(_escape, _ANGLE.sub(_escape, text)))


def line_visible_to_model(text: str) -> str:
    """Return a text on one line, as a model may see it."""
    return visible_line(visible_to_model(text))


def visible_json(text: str) -> str:
    """Return a JSON text of the same value, with JSON escapes for all characters that hide, reorder or steer text."""
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
