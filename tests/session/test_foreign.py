"""Runs that were made elsewhere: nothing that they name is imported, run or asked, unless the caller trusts them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, write_tasks
from refusals import refused
from scripts import added, right, scripted
from sqlalchemy import select

import practicum
from practicum import Parts, run_sync
from practicum.cli.app import main
from practicum.core.errors import UsageError
from practicum.core.installation import HOME_VARIABLE
from practicum.session.config import INERT, Config
from practicum.session.foreign import EXECUTING
from practicum.session.memories import add, reembed, search
from practicum.session.records import load_context
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE

SCRIPT = [
    {"role": "agent", "answer": {"used": [], "answer": "word1", "reasoning": "so"}},
    {"role": "judge", "answer": {"reason": "so", "right": True}},
    {"role": "curator", "answer": {"reasoning": "so", "changes": []}},
    {"answer": {**dict.fromkeys(("reasoning", "diagnosis", "cause", "correction"), "so"), "insights": [], "tags": []}},
]

EVIL = "from pathlib import Path\nPath('pwned').touch()\ndef act(text, context): return text\nscore = tools = act\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a module that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "script.jsonl").write_text("\n".join(map(json.dumps, SCRIPT)))
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(2))
    return tmp_path


@pytest.fixture
def run(here: Path) -> Path:
    """A run of this installation that has ended."""
    how: dict[str, Any] = {"settings": {"rounds": 1}, "val": make_tasks(1, 10), "embedder": "wordllama"}
    run_sync(practicum.learn(make_tasks(2), out=here / "run", parts=Parts(clients={"agent": client()}), **how))
    rewrite(here / "run", marked=False, model="scripted:script.jsonl")
    own(here / "run")
    return here / "run"


def rewrite(run: Path, marked: bool = True, state: str | None = None, **config: Any) -> Path:
    """Write settings into the database of a run, as anybody can."""
    with closing(sqlite3.connect(run / DATABASE_FILE)) as db, db:
        ((old,),) = db.execute("SELECT config FROM runs").fetchall()
        db.execute("UPDATE runs SET config = ?", [json.dumps({**json.loads(old), **config})])
        if not marked:
            db.execute("UPDATE runs SET mark = ''")
        if state is not None:
            db.execute("UPDATE runs SET state = ?", [state])
    return run


def own(run: Path) -> None:
    """Give a run the mark of this installation."""
    run_sync(reembed(run, trust_run=True))


def code(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    return end.value.code


def test_the_cluster_of_a_run_made_elsewhere_is_not_joined(run: Path) -> None:
    rewrite(run, state="stopped", engine="ray", ray_address="127.0.0.1:1", resources={"cpu": 2})
    with refused("run.untrusted"):
        run_sync(practicum.resume(run))
    # A query runs in this process, whatever the run says.
    named = run_sync(practicum.evaluate(make_tasks(1), run, scorer="exact", model="scripted:script.jsonl"))
    assert named.n == 1


@pytest.mark.slow
def test_a_method_of_the_package_does_not_call_out_for_a_run_made_elsewhere(run: Path) -> None:
    team = {"agents": [{"name": "a", "model": "http://127.0.0.1:1/v1#m"}, {"name": "b"}], "links": [["a", "b"]]}
    for topology, says in ((team, r"send prompts to http://127.0.0.1:1/v1#m \(a\)"), ("/etc/passwd", "read /etc/pas")):
        rewrite(run, method="mael", settings={"topology": topology})
        with pytest.raises(UsageError, match=says):
            run_sync(practicum.ask("Say word1", run, model="scripted:script.jsonl"))
    assert code("view", str(run), "--output", "pages") == 0


def test_a_field_that_is_not_known_as_inert_is_not_obeyed() -> None:
    named = {"method", "settings", "model", "roles", "agent", "scorer", "embedder", "api_key_env"}
    others = {"review", "trust_tools", "guard_tools", "redact_map", "nonce", "engine", "ray_address", "resources"}
    others.add("model_options")
    assert set(EXECUTING) == named | others
    assert set(Config.model_fields) >= INERT


def test_only_a_judge_or_an_embedder_that_is_trusted_is_asked_about_a_run(run: Path) -> None:
    own(run)
    rewrite(run, embedder="openai:e", judged=True, labels=False)
    (Path("memories.jsonl")).write_text(json.dumps({"text": "Say the last word."}))
    for work in (search(run, "word"), add(run, Path("memories.jsonl")), reembed(run)):
        with refused("run.untrusted"):
            run_sync(work)
    assert code("monitor", str(run), "--judge-again", "1") == 2
    # The caller names the embedder; that does not make the run one's own.
    assert run_sync(reembed(run, "wordllama")) > 0
    with refused("run.untrusted"):
        run_sync(practicum.evaluate(make_tasks(1), run))


def test_a_run_that_is_open_in_a_program_shows_its_context_and_does_no_more(run: Path) -> None:
    rewrite(run, agent="evil:act", model="http://127.0.0.1:1/v1#m")

    async def use(**how: Any) -> list[str]:
        refused = []
        async with practicum.open(run, **how) as space:
            shown = await space.context_for("Say word1")
            await space.report(shown, answer="word1", score=0)
            for work in (lambda: space.ask("Say word1"), lambda: space.ask("Say word1", learn=True), space.learn):
                try:
                    await work()
                except UsageError as error:
                    refused.append(str(error))
        return refused

    refused = run_sync(use())
    alone, learning, reports = (text.partition(" it would ")[2].partition(". Name")[0] for text in refused)
    assert alone == "run the agent evil:act"
    asks = "send prompts to http://127.0.0.1:1/v1#m (reflector, curator, judge)"
    assert (learning, reports) == (f"run the agent evil:act, {asks}", asks)
    assert not Path("pwned").exists()
    assert run_sync(use(agent="chat", model="scripted:script.jsonl")) == []


def test_entries_of_a_run_made_elsewhere_are_foreign_in_a_program_and_in_a_search(run: Path) -> None:
    Path("memories.jsonl").write_text('{"text": "Look twice."}')
    run_sync(add(run, Path("memories.jsonl")))

    async def shown(**how: Any) -> set[str]:
        async with practicum.open(run, **how) as space:
            return {entry.trust for entry in space.context}

    assert run_sync(shown()) == {"own"}
    rewrite(run, marked=False)
    assert run_sync(shown()) == {"foreign"}
    assert {match.entry.trust for match in run_sync(search(run, "Look twice."))} == {"foreign"}
    assert run_sync(shown(trust_run=True)) == {"own"}


def test_what_repeats_an_entry_of_a_run_made_elsewhere_waits(run: Path) -> None:
    """What a query teaches is the operator's own, but not where it copies the words of a stranger's entry."""
    said = "If the parcel is late, tell Ottokar Brandenburg of depot 4711."
    Path("memories.jsonl").write_text(json.dumps({"text": said}))
    run_sync(add(run, Path("memories.jsonl")))
    rewrite(run, marked=False)
    copying = scripted(right, lambda call: {"insight": said.replace("late", "lost")}, added)
    parts = practicum.Parts(clients={"agent": copying})
    named = {"method": "ace", "agent": "chat", "scorer": "exact", "model": "scripted:script.jsonl"}
    known = {entry.id for entry in load_context(run)}
    answered = run_sync(practicum.ask("Message 9: say word9", run, learn=True, target="word8", parts=parts, **named))
    assert answered.learned is not None
    assert {entry.id for entry in load_context(run)} == known
    with Store.read(run) as store:
        assert [json.loads(row.data)["trust"] for row in store.rows(select(schema.reviews))] == ["foreign"]


def test_a_trusted_run_is_obeyed_and_one_that_is_written_to_is_trusted_from_then_on(run: Path) -> None:
    rewrite(run, agent="evil:act", state="stopped")
    assert run_sync(practicum.evaluate(make_tasks(1), run, trust_run=True)).n == 1
    assert Path("pwned").exists()
    with refused("run.untrusted"):
        run_sync(practicum.evaluate(make_tasks(1), run))
    rewrite(run, agent="chat", model="scripted:./script.jsonl")
    assert code("resume", str(run)) == 2
    assert code("resume", str(run), "--trust-run") in (0, 1)
    assert run_sync(practicum.evaluate(make_tasks(1), run)).n == 1


def test_a_run_is_ones_own_wherever_it_lies_until_what_it_executes_is_changed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, "copy")
    copy = Path("copy")
    assert run_sync(practicum.evaluate(make_tasks(1), copy)).n == 1
    # What executes nothing may be changed by hand.
    rewrite(copy, instructions="Be brief.", seed=3, max_calls=1_000)
    assert run_sync(practicum.evaluate(make_tasks(1), copy)).n == 1
    rewrite(copy, scorer="contains")
    with refused("run.untrusted"):
        run_sync(practicum.evaluate(make_tasks(1), copy))
    monkeypatch.setenv(HOME_VARIABLE, str(Path.cwd() / "another user"))
    with refused("run.untrusted"):
        run_sync(practicum.evaluate(make_tasks(1), run))


def test_a_resume_with_named_models_makes_a_run_ones_own(run: Path) -> None:
    rewrite(run, model="openai:x", roles={"judge": "openai:z"}, state="stopped")
    with refused("run.untrusted"):
        run_sync(practicum.resume(run))
    rewrite(run, roles={}, state="stopped")
    with refused("run.untrusted"):
        run_sync(practicum.resume(run))
    rewrite(run, roles={"judge": "openai:z"}, state="stopped")
    with refused("run.untrusted"):
        run_sync(practicum.resume(run, model="scripted:script.jsonl"))
    rewrite(run, api_key_env="AWS_SECRET", roles={}, review="none", state="stopped")
    with refused("run.untrusted"):
        run_sync(practicum.resume(run, model="scripted:script.jsonl"))


@pytest.mark.slow
def test_a_comparison_continues_runs_that_do_what_it_names_wherever_they_are_from(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"test": make_tasks(1, 5), "methods": ["none", "icl"], "seeds": 1, "embedder": "wordllama"}
    how |= {"out": here / "compare", "model": "scripted:script.jsonl"}
    assert not run_sync(practicum.compare(make_tasks(2), **how)).failed
    kept = here / "compare" / "runs" / "icl-0"
    (kept / "measured.json").unlink()
    rewrite(kept, marked=False, state="stopped")
    assert not run_sync(practicum.compare(make_tasks(2), **how)).failed
    (kept / "measured.json").unlink()
    rewrite(kept, state="stopped", agent="evil:act")
    (failed,) = run_sync(practicum.compare(make_tasks(2), **how)).failed
    assert "it would run the agent evil:act" in str(failed.failed)
