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


@pytest.mark.slow
def test_memories_are_added_listed_searched_and_removed(go: Any, tmp_path: Path) -> None:
    assert "there are no memories in run yet; its entries are in: rules (2) (--section NAME)" in go("list", "run").out
    said = go("add", "run", "m.jsonl").out
    assert "+ [e4] (memories) Successful approach: Wet phones" in said
    assert "(the same text as e2)" in said
    assert "3 added, 1 of them known already: version 1 of run" in said

    assert "3 in version 1" in go("list", "run").out
    newest = go("list", "run", "-k", 1).out
    assert "e4" in newest
    assert "e2" not in newest
    assert "2 older ones not shown" in newest
    assert [e["id"] for e in go("list", "run", "-k", 1, "--json").json["entries"]] == ["e4"]
    assert [e["id"] for e in go("list", "run", "--tag", "phone", "--json").json["entries"]] == ["e3"]
    assert [e["id"] for e in go("list", "run", "--outcome", "success", "--json").json["entries"]] == ["e2", "e4"]
    assert len(go("list", "run", "--section", "all", "--json").json["entries"]) == 5
    assert "none of the 3 memories in run match" in go("list", "run", "--tag", "tablet").out

    found = go("search", "run", "my screen is dark", "--json").json["entries"]
    assert found[0]["id"] == "e3"
    assert found[0]["similarity"] > found[1]["similarity"]
    assert "Dark screens" in go("search", "run", "my screen is dark", "-k", 1).out
    assert [e["id"] for e in go("search", "run", "screen", "--section", "rules", "--json").json["entries"]] == [
        "e0",
        "e1",
    ]

    assert "sources: file:m.jsonl" in run_command(["show", "run", "--entry", "e3"], tmp_path).out
    assert go("remove", "run", "e2", "--json").json["removed"]["id"] == "e2"
    assert "undo it with practicum rollback run 2" in go("remove", "run", "e4").out
    assert "deleted (removed by hand)" in run_command(["show", "run", "--entry", "e4"], tmp_path).out


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "nowhere"), "nowhere is not a run folder"),
        (("drop", "run", "e1"), "No such command 'drop'"),
        (("search", "run"), "Missing argument"),
        (("search", "run", " "), "the text to search for is empty"),
        (("list", "run", "e1"), "unexpected extra argument"),
        (("list", "run", "--outcome", "won"), "'won' is not one of 'success', 'failure'"),
        (("list", "run", "--embedder", "wordllama"), "No such option: --embedder"),
        (("remove", "run", "e1", "--section", "rules"), "No such option: --section"),
        (("remove", "run", "e77"), "run has never had an entry 'e77'"),
        (("add", "run", "none.jsonl"), "cannot read none.jsonl: No such file or directory"),
        (("add", "run", "m.jsonl", "--section", "all"), "all stands for every section"),
        (("add", "run", "m.jsonl", "--section", " "), "cannot name a section"),
        (("search", "run", "x", "-k", "0"), "-k"),
    ],
)
def test_wrong_use_is_reported_in_one_line(go: Any, arguments: tuple[str, ...], said: str) -> None:
    assert said in go(*arguments, code=2).line
