"""Redaction of values: their placeholders, idempotence, and the file of values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.redact import Redactor
from practicum.core.sensitive import KINDS, PLACEHOLDER, find
from practicum.core.types import Recorded, Step, Task, Trace

KEY = b"k" * 32
redact = Redactor(KINDS, KEY)

VALUES = [
    "bob@example.com", "AKIAIOSFODNN7EXAMPLE", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "555-123-2002",
    "192.0.2.7", "219-09-9998", "https://bob:Hunter22@example.com/x", "password: hunter2hunter2", "+49 30 901820",
    "<email-0123456789ab>", "-----BEGIN PRIVATE KEY-----\nMIIE\n", "-----END PRIVATE KEY-----",
]  # fmt: skip


@given(st.lists(st.sampled_from([*VALUES, " ", "", "\n", "-", "@", "a", "7", ".", '"', "<", ">"]), max_size=12))
def test_redacting_again_changes_nothing_and_leaves_nothing(parts: list[str]) -> None:
    text = redact("".join(parts))
    assert redact(text) == text
    assert find(text) == []
    assert redact.reply(text) == text


def test_no_part_of_a_value_is_left() -> None:
    for value in VALUES[:10]:
        text = redact(f"It is {value}, they say.")
        secret = value.split(": ")[-1] if value.startswith("password") else value
        assert ("Hunter22" if value.startswith("https") else secret) not in text
        assert PLACEHOLDER.search(text)
    assert Redactor(("emails",), KEY)("bob@example.com, 192.0.2.7").endswith(", 192.0.2.7")


def test_the_same_value_has_the_same_placeholder_under_the_same_key_alone() -> None:
    one, two = redact("Bob@Example.com"), redact("mail bob@example.com")
    assert one in two
    assert redact("4111-1111-1111-1111") == redact("4111 1111 1111 1111") == redact("4111111111111111")
    assert redact("192.0.2.71") != redact("192.0.27.1")
    assert Redactor(KINDS, b"other")("bob@example.com") != redact("bob@example.com")
    assert re.fullmatch(r"<email-[0-9a-f]{12}>", redact("bob@example.com"))


def test_a_task_is_redacted_in_all_its_parts_and_else_is_the_same_object() -> None:
    trace = Trace("4111 1111 1111 1111", steps=(Step("observation", "from 192.0.2.7"),))
    meta = {"n": 3, "of": ["a@b.co", 4111111111111111]}
    new = redact(Task("bob@example.com", "call 555-123-2002", "a@b.co", meta, Recorded(trace)))
    assert find(repr(new)) == []
    assert (new.meta["n"], new.meta["of"][0]) == (3, new.target)
    assert redact(new) is new


def test_json_stays_json_and_numbers_are_unchanged() -> None:
    text = json.dumps(
        {"answer": "bob@example.com", "card": 4111111111111111, "n": 7, "key": "-----BEGIN PRIVATE KEY-----\nMI"}
    )
    assert json.loads(redact.reply(text)) == {
        "answer": redact("bob@example.com"), "card": redact("4111111111111111"), "n": 7,
        "key": redact("-----BEGIN PRIVATE KEY-----\nMI"),
    }  # fmt: skip
    coded = '```json\n{"answer": "bob\\u0040example.com", "quoted": "\\u0022"}\n```'
    assert redact.reply(coded) == f'```json\n{{"answer": "{redact("bob@example.com")}", "quoted": "\\u0022"}}\n```'
    values: dict[str, Any] = {"n": 123456789, "at": 1700000000000, "x": 3.5, "yes": True, "none": None}
    assert redact(values) is values
    for plain in (json.dumps(values), '{"answer":  "caf\\u00e9 \\u0041"}'):
        assert redact.reply(plain) == plain


def test_values_are_stored_in_a_private_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "map.jsonl"
    keeping = Redactor(KINDS, KEY, path)
    text = keeping("mail Bob@example.com or bob@example.com")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == ["Bob@example.com"]
    later = Redactor(KINDS, KEY, path)
    assert later.restored({"to": [text]}) == {"to": ["mail Bob@example.com or Bob@example.com"]}
    assert later(text) == text
    assert redact.restored(text) == text
    path.chmod(0o644)
    with refused("file.too_open"):
        Redactor(KINDS, KEY, path)("bob@example.com")
