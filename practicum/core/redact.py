"""Redaction: credentials and personal data become placeholders before anything is stored or sent.

A placeholder such as <email-3f2a9c01d4b7> is a keyed hash of the value, so that the same value has the same placeholder
in all runs of an installation, and nobody can test a guess without its key. The values themselves are kept nowhere,
unless the caller names a file for them: only with that can placeholders become values again.
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
"""Texts that a redactor remembers at most: pages of a playbook stand in every prompt."""

_NUMBERS = {"cards", "ibans", "ids", "phones"}

_CODED = re.compile(r"((?<!\\)(?:\\\\)*)\\u00(?!22|5[cC]|7[fF])([2-7][0-9a-fA-F])")
"""A letter that JSON may write as its code, after any escaped backslashes."""


@dataclass
class Redactor:
    """Replaces values of these `kinds` by placeholders, made with `key`. `file` is where the values are kept, if
    anywhere: lines of JSON, which the user alone may read."""

    kinds: tuple[Kind, ...]
    key: bytes = field(repr=False)
    file: Path | None = None
    _texts: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, value: T) -> T:
        """The value with placeholders in its texts: those of mappings, with their keys, of lists, tuples and
        dataclasses. A whole number that is sensitive, such as that of a card, becomes a text. What has nothing to
        replace is the same object, so doing it again changes nothing.

        Raises StoreError if the file of the values cannot be written."""
        redacted: T = _mapped(value, self._text)
        return redacted

    def reply(self, text: str) -> str:
        """A model's reply with placeholders. JSON stays JSON, and letters that it writes as codes are read."""
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
        """The value with what its placeholders stand for, as far as the file has it."""
        return value if self.file is None else with_values(value, self._kept)

    def kept_of(self, value: object) -> dict[str, str]:
        """What the placeholders in a value stand for, as far as the file has it."""
        found: list[str] = []

        def look(text: str) -> str:
            found.extend(PLACEHOLDER.findall(text))
            return text

        if self.file is not None:
            _mapped(value, look)
        return {name: self._kept[name] for name in found if name in self._kept}

    def _text(self, text: str) -> str:
        known = self._texts.get(text)
        if known is None:
            known = text
            # Beside a placeholder there may be another value, which did not look like one before.
            while found := find(known, self.kinds):
                end, parts = 0, list[str]()
                for value in found:
                    parts += [known[end : value.start], self._placeholder(value.kind, known[value.start : value.end])]
                    end = value.end
                known = "".join([*parts, known[end:]])
            if len(self._texts) >= CACHED:
                self._texts.clear()
            self._texts[text] = known
        return text if known == text else known

    def _placeholder(self, kind: Kind, value: str) -> str:
        # The same value may be written in capital letters and, where it is a number, with other separators.
        same = value if kind == "secrets" else value.casefold()
        if kind in _NUMBERS:
            same = re.sub(r"[^\w+]", "", same)
        digest = hmac.new(self.key, f"{kind} {same}".encode(errors="surrogatepass"), hashlib.sha256).hexdigest()
        placeholder = f"<{NOUNS[kind]}-{digest[:12]}>"
        if self.file is not None and placeholder not in self._kept:
            self._kept[placeholder] = value
            self._append(self.file, json.dumps({"placeholder": placeholder, "value": value}) + "\n")
        return placeholder

    @cached_property
    def _kept(self) -> dict[str, str]:
        """The values by placeholder, from the file."""
        if self.file is None or not self.file.exists():
            return {}
        try:
            if others_may_read(self.file):
                raise UsageError(
                    "file.too_open", f"`redact_map={self.file}`: others may read it: chmod 600 {self.file}"
                )
            rows = [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]
            return {str(row["placeholder"]): str(row["value"]) for row in rows}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                "file.malformed", f"`redact_map={self.file}` is no file of redacted values: {error}"
            ) from error

    @staticmethod
    def _append(path: Path, line: str) -> None:
        try:
            make_folder(path.parent)
            # One write at the end of the file: lines of other processes are not torn.
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError("file.unwritable", f"cannot write {path}: {error.strerror}") from error


def with_values(value: T, kept: Mapping[str, str]) -> T:
    """The value with what its placeholders stand for, as far as `kept` has it."""
    restored: T = _mapped(value, lambda text: PLACEHOLDER.sub(lambda found: kept.get(found[0], found[0]), text))
    return restored


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each of its texts changed."""
    match value:
        case str():
            return change(value)
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
        olds = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        news = {name: new for name, old in olds.items() if (new := _mapped(old, change)) is not old}
        return replace(value, **news) if news else value
    return value
