"""`practicum memory`: list, search, add, remove and reembed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command
from runs import Words

from practicum import run_sync
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.retrieval.vectors import Vectors
from practicum.session.records import create_seed, load_context
from practicum.store.database import Store

WET = {"title": "Wet phones", "description": "a phone that fell into water", "content": "Dry it before you open it."}


def written(path: Path, *items: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, items)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two rules, which has not learned anything yet."""
    rules = (Add("rules", "If it is a screen, send it to K7."), Add("rules", "If it is a drive, send it to K9."))
    create_seed(tmp_path / "run", Context().apply(Delta(rules)).context)
    return tmp_path / "run"


@pytest.fixture
def go(tmp_path: Path, run: Path) -> Any:
    written(tmp_path / "m.jsonl", WET, {**WET, "title": "Dark screens", "outcome": "failure", "tags": ["phone"]}, WET)

    def start(*arguments: object, code: int = 0) -> Any:
        done = run_command(["memory", *map(str, arguments)], tmp_path)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    return start


def test_a_search_without_memories_finds_nothing(go: Any) -> None:
    assert "there are no memories in run yet" in go("search", "run", "anything").out
    assert go("search", "run", "anything", "--json").json["entries"] == []


@pytest.mark.slow
def test_vectors_of_another_embedder_are_refused_until_reembed(go: Any, run: Path) -> None:
    with Store.open(run) as store:
        run_sync(Vectors(Words(), store)([entry.text for entry in load_context(run)]))
    refused = go("search", "run", "screen", "--section", "rules", code=1).line
    assert "holds vectors of embedder 'words', not of 'wordllama'" in refused
    assert "practicum memory reembed run --embedder wordllama" in refused
    assert "2 texts of run embedded by wordllama" in go("reembed", "run", "--embedder", "wordllama").out
    assert go("search", "run", "screen", "--section", "rules", "--json").json["entries"][0]["id"] == "e0"
    assert go("reembed", "run", "--json").json == {"run": "run", "embedder": "wordllama", "embedded": 2}
