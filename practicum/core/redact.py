"""Redaction: credentials and personal data are replaced by placeholders before they are stored or sent.

A placeholder such as <email-3f2a9c01d4b7> is a keyed hash of the value. So a value has the same placeholder in all runs
of an installation, and a guessed value cannot be tested without the installation's secret key. The values are only
stored if the caller names a file for them, and only with that file can placeholders be turned back into values.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from practicum.core.errors import StoreError, UsageError
from practicum.core.files import PRIVATE, make_folder, others_may_read
from practicum.core.sensitive import NOUNS, PLACEHOLDER, Kind, find

T = TypeVar("T")

CACHED = 4096
"""Maximum number of texts in a redactor's cache. Texts are cached because the pages of a playbook are in every
prompt."""

_NUMBERS = {"cards", "ibans", "ids", "phones"}

_CODED = re.compile(r"((?<!\\)(?:\\\\)*)\\u00(?!22|5[cC]|7[fF])([2-7][0-9a-fA-F])")
"""JSON escape of an ASCII character (`\\u0041`), with the escaped backslashes before it."""


@dataclass
class Redactor:
    """Replaces values of these `kinds` by placeholders, made with `key`. `file` stores the values as lines of JSON, and
    only the user can read it. If `file` is None, the values are not stored."""

    kinds: tuple[Kind, ...]
    key: bytes = field(repr=False)
    file: Path | None = None
    _texts: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, value: T) -> T:
        """Return the value with placeholders in its texts, including the keys and values of mappings and the items of
        lists, tuples and dataclasses. A sensitive whole number, such as a card number, becomes a text. A value without
        sensitive parts is returned as the same object, so redacting twice changes nothing.

        Raises StoreError if the file of the values cannot be written.
        """
        redacted: T = _mapped(value, self._text)
        return redacted

    def reply(self, text: str) -> str:
        """Return a model's reply with placeholders. A reply that is JSON remains valid JSON, with its escaped letters
        decoded."""
        read = _CODED.sub(lambda code: code[1] + chr(int(code[2], 16)), text)
        try:
            value = json.loads(read) if read.lstrip()[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            value = None
        if value is None:
            redacted = self(read)
            return text if redacted == read else redacted
        redacted = self(value)
        return text if redacted is value else json.dumps(redacted, ensure_ascii=False)

    def restored(self, value: T) -> T:
        """Return `value` with its placeholders replaced by the values that the file stores for them."""
        return value if self.file is None else with_values(value, self._stored)

    def values_of(self, value: object) -> dict[str, str]:
        """Return the stored value of each placeholder in `value`, by placeholder. Placeholders without a stored value
        are left out."""
        names: list[str] = []

        def look(text: str) -> str:
            names.extend(PLACEHOLDER.findall(text))
            return text

        if self.file is not None:
            _mapped(value, look)
        return {name: self._stored[name] for name in names if name in self._stored}

    def _text(self, text: str) -> str:
        redacted = self._texts.get(text)
        if redacted is None:
            redacted = text
            # After a value was replaced by a placeholder, the text next to the placeholder may match as a further
            # value.
            while values := find(redacted, self.kinds):
                end, parts = 0, list[str]()
                for value in values:
                    sensitive = redacted[value.start : value.end]
                    parts += [redacted[end : value.start], self._placeholder(value.kind, sensitive)]
                    end = value.end
                redacted = "".join([*parts, redacted[end:]])
            if len(self._texts) >= CACHED:
                self._texts.clear()
            self._texts[text] = redacted
        return text if redacted == text else redacted

    def _placeholder(self, kind: Kind, value: str) -> str:
        # The same email address or number can be written with other capitals or other separators, so a placeholder does
        # not depend on them. In secrets, capitals are significant.
        same = value if kind == "secrets" else value.casefold()
        if kind in _NUMBERS:
            same = re.sub(r"[^\w+]", "", same)
        digest = hmac.new(self.key, f"{kind} {same}".encode(errors="surrogatepass"), hashlib.sha256).hexdigest()
        placeholder = f"<{NOUNS[kind]}-{digest[:12]}>"
        if self.file is not None and placeholder not in self._stored:
            self._stored[placeholder] = value
            self._append(self.file, json.dumps({"placeholder": placeholder, "value": value}) + "\n")
        return placeholder

    @cached_property
    def _stored(self) -> dict[str, str]:
        """Values by placeholder, from the file."""
        if self.file is None or not self.file.exists():
            return {}
        try:
            if others_may_read(self.file):
                raise UsageError(
                    "file.too_open",
                    f"`redact_map={self.file}`: other users can read this file: run chmod 600 {self.file}",
                )
            rows = [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]
            return {str(row["placeholder"]): str(row["value"]) for row in rows}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                "file.malformed", f"`redact_map={self.file}` is not a file of redacted values: {error}"
            ) from error

    @staticmethod
    def _append(path: Path, line: str) -> None:
        try:
            make_folder(path.parent)
            # A single write at the end of the file, so that lines of several processes do not mix.
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError("file.unwritable", f"cannot write {path}: {error.strerror}") from error


def with_values(value: T, values: Mapping[str, str]) -> T:
    """Return the value with its placeholders replaced by `values`; a placeholder that is not in `values` is left
    unchanged."""
    restored: T = _mapped(value, lambda text: PLACEHOLDER.sub(lambda match: values.get(match[0], match[0]), text))
    return restored


_IMAGE = re.compile(r"data:image/[\w.+-]+;base64,[\w+/=]+")
"""Data URL of an image. Redaction leaves it unchanged."""


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with `change` applied to each of its texts."""
    match value:
        case str():
            return value if _IMAGE.fullmatch(value) else change(value)
        case bool():
            return value
        case int():
            text = change(str(value))
            return value if text == str(value) else text
        case Mapping():
            pairs = {_mapped(key, change): _mapped(inner, change) for key, inner in value.items()}
            return value if pairs == value else pairs
        case list() | tuple():
            items = type(value)(_mapped(inner, change) for inner in value)
            return value if items == value else items
    if is_dataclass(value) and not isinstance(value, type):
        old_values = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new_values = {name: new for name, old in old_values.items() if (new := _mapped(old, change)) is not old}
        return replace(value, **new_values) if new_values else value
    return value
