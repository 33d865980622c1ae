"""The memories of a run, looked at and changed by hand: through the library and through `practicum memory`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from runs import Words

from practicum import run_sync
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.errors import ContextFileError
from practicum.retrieval.vectors import Vectors
from practicum.session.forget import forget
from practicum.session.memories import LONGEST, add, read, reembed, remove
from practicum.session.records import config_columns, create_seed, load_context, read_run, update_run
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


def test_what_is_added_reads_as_what_was_learned(tmp_path: Path, run: Path) -> None:
    file = written(tmp_path / "m.jsonl", WET, {**WET, "outcome": "failure", "tags": ["phone"]})
    made = run_sync(add(run, file))
    first, second = made.entries
    assert first.text == "Successful approach: Wet phones (a phone that fell into water). Dry it before you open it."
    assert second.text.startswith("Failed approach (avoid): Wet phones")
    assert first.key == "Wet phones. a phone that fell into water Dry it before you open it."
    assert (first.section, first.data["outcome"], second.data["outcome"]) == ("memories", "success", "failure")
    assert second.sources == ("file:m.jsonl", "tag:phone")
    assert load_context(run).version == 1
    assert made.same == {}


def test_a_list_and_entries_of_other_sections(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(
        json.dumps([{"text": "If it is wet, dry it."}, {"text": "Screen?", "data": {"answer": "K7"}, "key": "k"}])
    )
    made = run_sync(add(run, file, "episodes"))
    assert [(e.section, e.text, e.key) for e in made.entries] == [
        ("episodes", "If it is wet, dry it.", ""), ("episodes", "Screen?", "k")
    ]  # fmt: skip
    assert made.entries[1].data == {"answer": "K7"}


def test_a_duplicate_is_accepted_and_reported(tmp_path: Path, run: Path) -> None:
    file = written(tmp_path / "m.jsonl", WET, WET)
    assert run_sync(add(run, file)).same == {"e3": "e2"}
    assert run_sync(add(run, file)).same == {"e4": "e2", "e5": "e2"}
    assert len(load_context(run)) == 6


def test_what_was_added_can_be_forgotten_by_its_file(tmp_path: Path, run: Path) -> None:
    run_sync(add(run, written(tmp_path / "m.jsonl", WET)))
    with Store.open(run) as store:
        assert forget(store, store.run_id, sources=["file:m.jsonl"]).left == 0
    assert len(load_context(run)) == 2


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


def test_nothing_is_added_where_the_runs_embedder_cannot_be_used(tmp_path: Path, run: Path) -> None:
    with Store.open(run) as store:
        config, _, _ = read_run(store)
        update_run(store, **config_columns(config.model_copy(update={"embedder": "none"})))
    with refused("embedder.unknown"):
        run_sync(add(run, written(tmp_path / "m", WET)))
    assert load_context(run).version == 0


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_run_that_can_go_on_is_left_alone(tmp_path: Path, run: Path, state: str) -> None:
    with Store.open(run) as store:
        update_run(store, state=state)
    for change in (lambda: remove(run, "e1"), lambda: run_sync(add(run, written(tmp_path / "m", WET)))):
        with refused("run.unfinished"):
            change()
    assert load_context(run).version == 0


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([WET, {"title": "only"}], "m.jsonl line 2: content: Field required"),
        ([{**WET, "content": " "}], "line 1: content: String should have at least 1 character"),
        ([{**WET, "content": "x" * 8001}], "line 1: content: String should have at most 8000 characters"),
        ([{"text": "x" * (LONGEST + 1)}], f"line 1: text: String should have at most {LONGEST} characters"),
        ([{**WET, "outcome": "won"}], "line 1: outcome: Input should be 'success' or 'failure'"),
        ([{**WET, "titel": "x"}], "line 1: titel: Extra inputs are not permitted"),
        ([{**WET, "tags": [""]}], r"line 1: tags\.0: String should have at least 1 character"),
        (["text"], "line 1: a memory is an object"),
        ([3], "line 1: a memory is an object"),
        ([], "has no memories"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, run: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(ContextFileError, match=said):
        run_sync(add(run, written(tmp_path / "m.jsonl", *lines)))
    assert load_context(run).version == 0


LIVED = {"kind": "solve", "reward": 0.8, "trace": "by hand"}
EXPERIENCE = {"text": "word7", "key": "Message 7", "data": LIVED}


def test_an_experience_for_an_agents_pool(tmp_path: Path, run: Path) -> None:
    file = written(tmp_path / "m", {**EXPERIENCE, "data": {**LIVED, "reward": 1, "by": "me"}, "tags": ["phone"]})
    (made,) = run_sync(add(run, file, "pool agent2")).entries
    assert (made.section, made.text, made.key) == ("pool agent2", "word7", "Message 7")
    assert made.data == {**LIVED, "reward": 1.0, "by": "me", "trace": made.data["trace"]}
    assert made.data["trace"].endswith("/by hand")
    assert made.sources == ("file:m", "tag:phone")


SAID: dict[str, dict[str, Any]] = {
    "judge": {"reason": "two parts", "alone": False},
    "decompose": {"parts": [{"text": "one", "to": "a", "needs": []}, {"text": "two", "to": "", "needs": [1]}]},
    "critique": {"feedback": "say more", "adequate": False},
    "solve": {"solution": "word7"},
}


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("written_as", [dict, json.dumps], ids=["object", "text"])
def test_what_was_said_is_kept_as_the_form_that_a_model_fills_in(
    tmp_path: Path, run: Path, kind: str, written_as: Callable[[dict[str, Any]], Any]
) -> None:
    line = {**EXPERIENCE, "data": {**LIVED, "kind": kind, "said": written_as({**SAID[kind], "aside": "left out"})}}
    (made,) = run_sync(add(run, written(tmp_path / "m", line), "pool agent2")).entries
    assert isinstance(made.data["said"], str)
    assert json.loads(made.data["said"]) == SAID[kind]


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"text": "my own hint", "key": "k", "data": {"kind": "solve"}}, r"data\.reward: Field required"),
        ({**EXPERIENCE, "data": {**LIVED, "reward": 1.2}}, r"data\.reward: Input should be less than or equal to 1"),
        ({**EXPERIENCE, "data": {**LIVED, "kind": "think"}}, r"data\.kind: Input should be 'judge', 'decompose'"),
        ({**EXPERIENCE, "data": {"kind": "solve", "reward": 1}}, r"data\.trace: Field required"),
        ({"text": "word7", "data": LIVED}, "key: Field required"),
        ({"text": "word7", "key": "k"}, "data: Field required"),
        (WET, "text: Field required"),
    ],
    ids=str,
)
def test_what_lacks_what_an_experience_is_found_by_is_refused(
    tmp_path: Path, run: Path, line: dict[str, Any], said: str
) -> None:
    with refused("memories.malformed"):
        run_sync(add(run, written(tmp_path / "m", line), "pool agent2"))
    assert load_context(run).version == 0


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"title": \n', "memories.malformed"),
        (b"[1, 2", "memories.malformed"),
        (b'[{"title": "a", "content": "b"}, 3]', "memories.malformed"),
        (b"\xff\xfe", "file.unreadable"),
        (b"[" * 100_000, "memories.malformed"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, raw: bytes, code: str) -> None:
    (tmp_path / "m").write_bytes(raw)
    with refused(code):
        read(tmp_path / "m")
    with refused("file.unreadable"):
        read(tmp_path / "none")


def test_the_longest_memory_is_taken(tmp_path: Path, run: Path) -> None:
    longest = {"title": "t" * 8_000, "description": "d" * 8_000, "content": "c" * 8_000}
    run_sync(add(run, written(tmp_path / "m", longest, {"text": "x" * LONGEST})))
    assert len(load_context(run)) == 4
