"""Scripts of a model: what a file of rules means, and what is wrong with one before it is asked anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from practicum.models.scripted import ScriptedClient


def script(folder: Path, answer: Any, match: str = "say (?P<word>[a-z]+)") -> ScriptedClient:
    path = folder / "script.jsonl"
    path.write_text(json.dumps({"match": match, "answer": answer}, ensure_ascii=False) + "\n", encoding="utf-8")
    return ScriptedClient.from_file(path)


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
