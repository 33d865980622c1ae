"""Scripts of a model: what a file of rules means, and what is wrong with one before it is asked anything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from practicum.core.types import Prompt
from practicum.models.client import CallOptions
from practicum.models.scripted import ScriptedClient


def script(folder: Path, answer: Any, match: str = "say (?P<word>[a-z]+)") -> ScriptedClient:
    path = folder / "script.jsonl"
    path.write_text(json.dumps({"match": match, "answer": answer}, ensure_ascii=False) + "\n", encoding="utf-8")
    return ScriptedClient.from_file(path)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("\\1 and \\g<word>\\n", "this and this\n"),
        ("C:\\\\Users", "C:\\Users"),
        ({"\\d": ["\\1", 3, None]}, '{"\\\\d": ["this", 3, null]}'),
        ("one\u2028line", "one\u2028line"),
    ],
)
def test_an_answer_is_filled_with_the_groups_of_its_pattern(tmp_path: Path, answer: Any, expected: str) -> None:
    reply = asyncio.run(script(tmp_path, answer).complete("agent", Prompt("", "say this"), None, CallOptions()))
    assert reply.text == expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("C:\\Users", r"bad escape \\U"),
        ("\\2", "invalid group reference 2"),
        ({"used": [], "answer": "\\g<name>"}, "unknown group name 'name'"),
        ([{"text": "at the end \\"}], "bad escape"),
    ],
)
def test_an_answer_that_cannot_be_filled_is_refused_with_its_line(tmp_path: Path, answer: Any, reason: str) -> None:
    with refused("script.invalid"):
        script(tmp_path, answer)


def test_an_overflowing_pattern_is_refused_with_its_line(tmp_path: Path) -> None:
    with refused("script.invalid"):
        script(tmp_path, "x", "a{99999999999999999999}")
