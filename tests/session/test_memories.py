"""The memories of a run, looked at and changed by hand: through the library and through `practicum memory`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from runs import Words

from practicum import run_sync
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.retrieval.vectors import Vectors
from practicum.session.memories import add, reembed, remove
from practicum.session.records import create_seed, load_context
from practicum.store.database import Store
from practicum.store.versions import read_versions

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


def test_an_entry_that_is_removed_keeps_its_history(run: Path) -> None:
    context, gone = remove(run, "e1")
    assert (gone.id, [e.id for e in context], context.version) == ("e1", ["e0"], 1)
    with refused("entry.deleted"):
        remove(run, "e1")
    with refused("entry.unknown"):
        remove(run, "e9")
    assert load_context(run).version == 1
    with Store.read(run) as store:
        assert read_versions(store, store.run_id)[-1].parent == 0


async def embedded_by_words(run: Path) -> None:
    """The run's rules, embedded by another embedder than its own."""
    with Store.open(run) as store:
        await Vectors(Words(), store)([entry.text for entry in load_context(run)])


def test_nothing_is_added_where_the_run_has_another_embedders_vectors(tmp_path: Path, run: Path) -> None:
    run_sync(embedded_by_words(run))
    with refused("embedder.mismatch"):
        run_sync(add(run, written(tmp_path / "m", WET)))
    assert load_context(run).version == 0
    run_sync(reembed(run, "wordllama"))
    assert run_sync(add(run, written(tmp_path / "m", WET))).same == {}


LIVED = {"kind": "solve", "reward": 0.8, "trace": "by hand"}
EXPERIENCE = {"text": "word7", "key": "Message 7", "data": LIVED}


SAID: dict[str, dict[str, Any]] = {
    "judge": {"reason": "two parts", "alone": False},
    "decompose": {"parts": [{"text": "one", "to": "a", "needs": []}, {"text": "two", "to": "", "needs": [1]}]},
    "critique": {"feedback": "say more", "adequate": False},
    "solve": {"solution": "word7"},
}


@pytest.mark.parametrize(
    ("kind", "said", "line"),
    [
        ("judge", None, "a step of judge needs `said`, an object with reason and alone: it is missing"),
        ("judge", {"reason": "two parts"}, "a step of judge needs `said`, .*: alone: Field required"),
        ("judge", SAID["solve"], "a step of judge needs `said`, .*: reason: Field required"),
        (
            "decompose",
            {"parts": "one, two"},
            "a step of decompose needs `said`, .* with parts: parts: Input should",
        ),
        ("critique", "say more", "a step of critique needs `said`, an object with feedback and adequate: Invalid JSON"),
        ("critique", "", "a step of critique needs `said`, .*: Invalid JSON"),
        ("solve", "s", "a step of solve needs `said`, an object with solution: Invalid JSON"),
    ],
    ids=str,
)
def test_what_was_said_in_another_form_is_refused_in_one_line(
    tmp_path: Path, run: Path, kind: str, said: Any, line: str
) -> None:
    data = {**LIVED, "kind": kind} if said is None else {**LIVED, "kind": kind, "said": said}
    with refused("memories.malformed") as caught:
        run_sync(add(run, written(tmp_path / "m", {**EXPERIENCE, "data": data}), "pool agent2"))
    assert "\n" not in str(caught.value)
    assert load_context(run).version == 0
