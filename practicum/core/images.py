"""Images of tasks.

A text names an image by a mark with a digest of the image, such as `[image kcdffnabmcdefghi]`, and a model gets the
image after its mark. So each prompt that quotes the text of a task (an attempt, a reflection, a verdict, a solved task)
has the images of the task too, while digests, searches and redaction work only on texts.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

Images = Mapping[str, str]
"""Mark → address of the image: an https or data URL."""

MOST_IMAGES = 20
"""Largest number of images in a prompt. Of more images, the prompt has the last ones."""

IMAGE_TOKENS = 1_600
"""Estimated tokens of an image: the tokens of the largest image that Claude does not shrink."""

_MARK = re.compile(r"\[image [a-p]{16}\]")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
"""Digests are written in letters, because redaction replaces long numbers."""

_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
"""First bytes of a file → format of the image."""


def is_image(value: object) -> bool:
    """Return whether a value is the address of an image that a model can get."""
    return isinstance(value, str) and value.startswith(("https://", "data:image/"))


def mark(address: str) -> str:
    """Return the mark of the image at an address."""
    return f"[image {blake2b(address.encode(), digest_size=8).hexdigest().translate(_LETTERS)}]"


def marked(addresses: Iterable[str]) -> Images:
    """Return images by their marks."""
    return {mark(address): address for address in addresses}


def data_url(data: bytes) -> str | None:
    """Return the data URL of an image; None if the bytes are not a PNG, JPEG, GIF or WebP image."""
    kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
    return None if kind is None else f"data:image/{kind};base64,{b64encode(data).decode()}"


def split_text(text: str, images: Images) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a text, each with the address of the image after the piece; the address is empty if no image
    follows."""
    start = 0
    for match in _MARK.finditer(text) if images else ():
        if address := images.get(match[0], ""):
            yield text[start : match.end()], address
            start = match.end()
    if start < len(text) or not text:
        yield text[start:], ""


def images_in(texts: Iterable[str], images: Images) -> Images:
    """Return the images that texts name: the last MOST_IMAGES."""
    marks = dict.fromkeys(mark for text in texts for mark in _MARK.findall(text) if mark in images)
    return {mark: images[mark] for mark in [*marks][-MOST_IMAGES:]}


def address_in(part: Any) -> str:
    """Return the address of the image in a part of a message of OpenAI, Anthropic, Gemini or the Vercel AI SDK; empty
    if the part has none."""
    match part:
        case {"image_url": {"url": str(address)}} | {"image_url": str(address)} | {"source": {"url": str(address)}}:
            pass
        case (
            {"source": {"media_type": str(kind), "data": str(data)}}
            | {"inlineData": {"mimeType": str(kind), "data": str(data)}}
            | {"inline_data": {"mime_type": str(kind), "data": str(data)}}
        ):
            address = f"data:{kind};base64,{data}"
        case {"type": "image", "image": str(address)} | {"type": "file", "url": str(address)}:
            pass
        case _:
            return ""
    return address if is_image(address) else ""
