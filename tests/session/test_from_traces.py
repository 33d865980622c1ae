"""Learning from stored traces: what each method makes of them, with nothing tried again, or that it is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import Launcher, make_tasks
from refusals import refused
from scripts import Learned, insight, learned, memory, scripted

from practicum.core.errors import WindowError
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.models.scripted import Call


def recorded(n: int = 4) -> list[Task]:
    """Tasks whose attempts went well and badly by turns."""
    made = [Recorded(Trace(f"word{i}" if i % 2 else "no"), Score(i % 2, i % 2 == 1)) for i in range(n)]
    return [replace(task, recorded=one) for task, one in zip(make_tasks(n), made, strict=True)]


def refusing(call: Call) -> str:
    raise AssertionError("nothing was to be tried")


def curating(call: Call) -> dict[str, Any]:
    return {"decisions": [{"lesson": 1, "op": "ADD"}], "sheet": "a sheet", "points": ["a point"]}


def read(folder: Path, method: str, tasks: Sequence[Task], **settings: Any) -> Learned:
    model = scripted(refusing, lambda call: {**insight(call), **memory("a way"), "reflection": "look"}, curating)
    return learned(folder, model, tasks, settings, method, from_traces=True)


LONG = Recorded(Trace("no", reasoning="begin " + "word " * 100_000 + "end"), Score(0.0, False))


def test_a_trace_that_is_too_long_is_cut_and_the_others_are_read_as_they_are(tmp_path: Path) -> None:
    def narrow(call: Call) -> dict[str, Any] | Exception:
        return (
            insight(call)
            if len(call.prompt.user) < 100_000
            else WindowError("window.exceeded", "larger than the window")
        )

    tasks = [*recorded(3), replace(make_tasks(4)[3], recorded=LONG)]
    run = learned(
        tmp_path, scripted(refusing, narrow), tasks, {"curator": "append", "batch": 4}, "combee", from_traces=True
    )
    assert len(run.texts) == 4
    assert run.result.errors["shortened_prompts"] == 1
    assert "lost_reflections" not in run.result.errors
    (cut,) = {prompt for prompt in run.prompts("reflector") if "left out here" in prompt and len(prompt) < 100_000}
    assert "Reasoning: begin word" in cut
    assert "Answer: no\nFeedback: The answer is wrong. The right answer is: word3" in cut


def test_where_every_trace_is_too_long_for_its_model_the_run_says_so(tmp_path: Path) -> None:
    def blind(call: Call) -> Exception:
        return WindowError("window.exceeded", "larger than the window")

    with refused("attempts.all_failed"):
        learned(tmp_path, scripted(refusing, blind), recorded(), {"batch": 4}, "combee", from_traces=True)


def test_a_trace_is_read_again_only_where_that_is_asked_for(tmp_path: Path) -> None:
    assert len(read(tmp_path / "a", "reflexion", recorded()).rollouts) == 4
    # A solved one is not read again.
    assert len(read(tmp_path / "b", "reflexion", recorded(), epochs=2).rollouts) == 4 + 2


def test_solved_traces_become_insights_and_examples(tmp_path: Path) -> None:
    run = read(tmp_path, "expel", recorded(), batch=4)
    assert len(run.calls("curator")) == 1
    assert run.prompts("curator")[0].count("# Attempt ") == 2
    # With one trace of each task, no failure stands beside a success at the same task.
    assert "Answer: no" not in run.prompts("curator")[0]
    assert {e.section for e in run.result.context} == {"episodes"}


@pytest.mark.slow
def test_unreadable_traces_are_counted_in_total_and_after_a_resume_too(launcher: Launcher, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.mkdir()
    said = [{"role": "user", "content": "what?"}, {"role": "assistant", "content": "that"}]
    (stored / "good.jsonl").write_text((json.dumps({"messages": said}) + "\n") * 4)
    for n in range(22):
        (stored / f"other{n}.jsonl").write_text('{"title": "none of ours"}\n' * 2)
    reflection = {"kind": "k", "correction": "c", "insight": "i", "diagnosis": "d", "tags": []}
    script = ({"role": "reflector", "answer": reflection}, {"role": "curator", "answer": {"decisions": []}})
    (tmp_path / "model").write_text("\n".join(map(json.dumps, script)))

    start = ["learn", "--from-traces", "stored", "--model", "scripted:model", "--max-calls", "3", "--out", "run"]
    start += ["--profile", "small"]
    first = launcher.run([*start, "--json"], tmp_path)
    assert first.err.count("could not be read in full: ") == 20
    assert "and 2 more such lines\nin all, 44 parts could not be read in full" in first.err
    again = launcher.run(["resume", "run", "--max-calls", "99", "--json"], tmp_path)
    for done, stopped in ((first, True), (again, False)):
        assert done.json["errors"]["trace_faults"] == 44
        assert ("stopped" in done.json) is stopped
