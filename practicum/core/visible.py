r"""Foreign text as people and models may see it: what hides, reorders or steers is shown as an escape.

A stored text is never changed: these functions are for what is printed, put into a page, or put into a prompt. An
escape is `\x1b` or `\u{202e}`. Escaping twice is escaping once, so that each place of output can escape for itself. A
text that holds such an escape literally looks the same, and does as little.

Escaped are controls (line feed and tab excepted), marks that change the direction, characters without width or ink
(zero-width spaces, fillers, tags, variation selectors), halves of surrogate pairs, noncharacters, and private use,
where nobody can tell one character from another. Some are needed to write, and stand as they are exactly there:

- joiner and non-joiner between two letters of Arabic, Indic and related scripts (Persian, Urdu, Hindi, Sinhala ...);
- the zero-width space between two letters of scripts without spaces (Thai, Lao, Khmer, Burmese);
- the joiner between two emoji, and one selector of their style behind an emoji.

So what can hide in these places is a bit or two for each letter. The flags of England, Scotland and Wales are spelled
with tags, and are escaped: tags are how texts are smuggled past readers.
"""

from __future__ import annotations

import json
import re
import unicodedata

_JOINED = "\u0620-\u0dff\u1000-\u109f\u1780-\u18af\u1a20-\u1bff\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
"""Scripts whose letters take other forms beside a joiner."""

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
"""What may have to be escaped: a search for it takes half the time of the whole test."""

_HIDDEN = re.compile(
    f"[{_NEVER_SEEN}]"
    f"|\u200b(?!(?<=[{_UNSPACED}].)[{_UNSPACED}])"
    f"|[\u200c\u200d](?!(?<=[{_JOINED}].)[{_JOINED}]|(?<=[{_EMOJI}\ufe0f]\u200d)[{_EMOJI}])"
    f"|[\ufe0e\ufe0f](?!(?<=[{_EMOJI}].)|(?<=[#*0-9].)\u20e3)"
)

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers of Korean, and the empty pattern of Braille: letters and signs that show nothing."""

_BREAK = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What somebody takes for a line break, besides the line feed: what `str.splitlines` does."""

_BAR = "[|\uff5c]"
_PART = "[\\w\u2581.:/-]{1,48}"
_ANGLE = re.compile(
    # <|im_start|> and all others with bars, those of DeepSeek too, and Gemma's <|turn> and <turn|>
    f"<(?={_BAR}{_PART}{_BAR}?>|{_PART}{_BAR}>"
    "|/?(?:s|bos|eos|sop|eop|think|tool_call|tool_response|start_of_turn|end_of_turn|start_of_image|end_of_image)>"
    "|</?SYS>>)"
)
_FRAME = re.compile(r"<(?=[\s/]{0,9}(?:notes|data)[\s_-]{1,9}[0-9a-f]{6})", re.IGNORECASE)
"""The first character of what looks like a mark of `engine.framing`."""

_WIDE_FRAME = re.compile(
    # The same in signs and letters of another width or form.
    r"[<\uff1c\u2039\u27e8\u3008\ufe64](?=[\s/\uff0f\u2044\u2215]{0,9}"
    r"(?:notes|data|\uff4e\uff4f\uff54\uff45\uff53|\uff44\uff41\uff54\uff41)"
    r"[\s_\-\u2010-\u2015\u2212\uff0d\uff3f]{1,9}[0-9a-f\uff10-\uff19\uff41-\uff46]{6})",
    re.IGNORECASE,
)
_SQUARE = re.compile(  # Llama 2, Mistral, GLM
    r"\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]|[gs]MASK\])"
)
TEMPLATE = re.compile(f"{_ANGLE.pattern}|{_SQUARE.pattern}")
"""The first character of a token by which chat templates mark turns, roles, thoughts and calls of tools. Patterns that
begin with one character are found many times as fast as one that begins with either."""

_ORDINARY = bytes([*b"\n\t", *range(0x20, 0x7F)])


def _ordinary(text: str) -> bool:
    """Whether a text has nothing but printed ASCII characters, line feeds and tabs, which is quickly told."""
    return text.isascii() and not text.encode().translate(None, _ORDINARY)


def visible(text: str) -> str:
    """The text with everything escaped that hides or steers, line feeds and tabs as they are. Nearly every text has
    nothing of that, and the same object is returned."""
    return text if _ordinary(text) or not _SUSPECT.search(text) else _HIDDEN.sub(_escape, text)


def is_blank(text: str) -> bool:
    """Whether nothing of a text shows: it is empty, or has only spaces, controls, marks and characters without ink."""
    return all(unicodedata.category(c)[0] in "CMZ" or c in _BLANK_LETTERS for c in text)


def not_blank(text: str) -> str:
    """The text. Raises ValueError if it is blank."""
    if is_blank(text):
        raise ValueError("it is blank")
    return text


def visible_line(text: str) -> str:
    """A visible text where one line is shown: line feeds are escaped too."""
    return visible(text).replace("\n", "\\n")


def plain_breaks(text: str) -> str:
    """The text with each line break as a line feed: CR LF, CR, VT, FF, FS, GS, RS, NEL, and U+2028 and U+2029."""
    return _BREAK.sub("\n", text)


def lines(text: str) -> list[str]:
    """The lines of a text, by every line break; at least one."""
    return plain_breaks(text).split("\n")


def visible_to_model(text: str) -> str:
    r"""A text as a model may see it: visible, with plain line breaks, and with tokens of chat templates and marks of
    frames broken by an escape (`\x3c|im_start|>`). So no server takes a part of it for the beginning of a turn, and no
    model for the end of a frame."""
    if not _ordinary(text):
        text = _WIDE_FRAME.sub(_escape, visible(plain_breaks(text)))
    return _SQUARE.sub(_escape, _FRAME.sub(_escape, _ANGLE.sub(_escape, text)))


def visible_json(text: str) -> str:
    """A text of JSON with the same value, in which what hides or steers is escaped as in JSON."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
