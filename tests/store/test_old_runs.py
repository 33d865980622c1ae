"""Runs that an earlier practicum made still open, answer and resume (`data/README.md` says how they were made)."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import select

import practicum
from practicum.cli.app import main
from practicum.core.counts import Count
from practicum.core.errors import JournalMismatch
from practicum.core.playbook import export
from practicum.models.scripted import ScriptedClient
from practicum.session.records import RUN
from practicum.store import schema
from practicum.store.database import DATABASE_FILE, Store
from practicum.store.snapshot import read_context
from practicum.store.versions import read_versions, rebuild

DATA = Path(__file__).parent / "data"
STOPPED = ("ace", "combee", "reasoning_bank")
ALL = (*STOPPED, "mael")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the script that the runs' configurations name."""
    shutil.copy(DATA / "script.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unpacked(name: str, folder: Path) -> Path:
    run = folder / name
    run.mkdir()
    (run / DATABASE_FILE).write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    return run


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 0


def paid_rows(run: Path) -> dict[str, tuple[str, str]]:
    """Digest and answer of each effect that cost a call, by place."""
    with sqlite3.connect(run / DATABASE_FILE) as db:
        rows = db.execute("SELECT place, digest, answer FROM journal WHERE calls > 0").fetchall()
    db.close()
    return {place: (digest, answer) for place, digest, answer in rows}


@pytest.mark.parametrize("name", ALL)
def test_an_old_run_is_shown_and_exported(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpacked(name, here)
    command("show", str(run), "--json")
    shown = json.loads(capsys.readouterr().out)
    command("export", str(run), "--format", "json")
    exported = json.loads(capsys.readouterr().out)
    with Store.read(run) as store:
        versions = read_versions(store, RUN)
        context = read_context(store, RUN)
    assert export(rebuild(versions), "json") == export(context, "json")
    # It has no mark, so who wrote it is not known.
    assert exported == json.loads(export(context.marked("foreign"), "json"))
    assert len(exported["entries"]) == len(context) > 0
    assert (shown["method"], shown["state"]) == (name, "done" if name == "mael" else "stopped")
    assert versions[-1].version == exported["version"] > 0
    if name == "mael":
        kept = [{**e, "sources": [s for s in e["sources"] if s != "trust:foreign"]} for e in exported["entries"]]
        assert [{**e, "trust": "own"} for e in kept] == [
            {"trust": "own", **e} for e in json.loads((DATA / "mael.json").read_text())["entries"]
        ]


@pytest.mark.parametrize("name", ALL)
def test_an_old_run_answers(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpacked(name, here)
    before = len(paid_rows(run))
    command("run", "The battery of my phone is flat.", "--context", str(run), "--trust-run", "--json")
    first = json.loads(capsys.readouterr().out)
    assert first["answer"] == ("K2" if name == "mael" else "K5")
    assert bool(first["memories"]) == (name in ("reasoning_bank", "mael"))
    second = practicum.run_sync(practicum.ask("The screen of my tablet is black.", run, trust_run=True)).as_json()
    assert second["answer"] == ("K2" if name == "mael" else "K7")
    assert len(paid_rows(run)) == before


@pytest.mark.parametrize("name", STOPPED)
def test_an_old_run_with_other_prompts_is_not_resumed_and_nothing_is_paid(name: str, here: Path) -> None:
    run = unpacked(name, here)
    before = paid_rows(run)
    model = ScriptedClient.from_file(Path("script.jsonl"))
    parts = practicum.Parts(clients={"agent": model})
    with pytest.raises(JournalMismatch, match="`seed_context`"):
        practicum.run_sync(practicum.resume(run, max_calls=1_000, trust_run=True, parts=parts))
    assert paid_rows(run) == before


def counters(run: Path) -> dict[str, int]:
    """The counters in the result of a run, after it was opened for writing."""
    with Store.open(run) as store:
        ((result,),) = store.rows(select(schema.runs.c.result))
    errors: dict[str, int] = json.loads(result)["errors"]
    return errors


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ace", {Count.DUPLICATE_ENTRIES: 9, Count.KEPT_LESSONS: 9, Count.REUSED_ATTEMPTS: 1}),
        ("combee", {Count.DUPLICATE_ENTRIES: 3, Count.REPEATED_LESSONS: 3, Count.UNKNOWN_TAGS: 2}),
        ("mael", {}),
    ],
)
def test_the_counters_of_an_old_run_get_their_keys(name: str, expected: dict[Count, int], tmp_path: Path) -> None:
    assert counters(unpacked(name, tmp_path)) == expected


def test_every_phrase_of_old_counters_has_a_key(tmp_path: Path) -> None:
    run = unpacked("ace", tmp_path)
    phrases = (DATA / "counters.txt").read_text().splitlines()
    with sqlite3.connect(run / DATABASE_FILE) as db:
        db.execute("UPDATE runs SET result = ?", [json.dumps({"errors": dict.fromkeys(phrases, 2)})])
    db.close()
    migrated = counters(run)
    assert migrated.keys() <= set(Count)
    assert sum(migrated.values()) == 2 * len(phrases)
    assert migrated[Count.SHORTENED_PROMPTS] == 6  # three phrases had this meaning, one after another
    assert counters(run) == migrated
