"""TextGrad: one text that is rewritten against criticism of all attempts, with momentum, and never for the worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks
from scripts import Learned, Role, insight, number, resumed, right, same_after_any_kill, scripted

import practicum
from practicum.blocks.search.candidates import FEEDBACK
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.forget import forget
from practicum.store.database import Store
from practicum.store.versions import read_versions, rebuild


def obeying(call: Call) -> str:
    """Right about as many messages as the instructions name: "solve 3" solves messages 0, 1 and 2."""
    said = call.prompt.head.rpartition("solve ")[2].strip()
    return right(call) if said.isdigit() and number(call) < int(said) else "wrong"


def in_turn(*texts: str) -> Role:
    """The first of the texts that was not proposed yet, told by how far the one shown had come."""

    def propose(call: Call) -> dict[str, Any]:
        current = call.prompt.user.partition("# Said before")[0]
        done = max((n for n, text in enumerate(texts, 1) if f"\n{text}\n" in current), default=0)
        return {"instruction": texts[min(done, len(texts) - 1)]}

    return propose


def criticising(call: Call) -> dict[str, Any]:
    """What follows for the instructions; the instructions that it reads name no message."""
    return {"answer": "it is short", "instructions": str(insight(call)["insight"])}


def model_of(texts: Sequence[str], curator: Role | None = None) -> ScriptedClient:
    return scripted(obeying, criticising, curator or in_turn(*texts))


def run_of(
    folder: Path, *texts: str, model: ScriptedClient | None = None, steps: int = 1, tasks: int = 4, **settings: Any
) -> Learned:
    watched = Learned(model or model_of(texts), folder / "run")
    work = practicum.learn(
        make_tasks(tasks), out=watched.folder, method="textgrad", watch=watched,
        settings={"batch": 4, "steps": steps, **settings}, parts=practicum.Parts(clients={"agent": watched.model}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def test_the_instructions_get_better_step_by_step_and_are_one_text(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 3", "solve 4", steps=4)
    assert run.texts == ["solve 4"]
    assert [sum(r.trace.answer != "wrong" for r in report.rollouts) for report in run.reports] == [0, 1, 3, 4]
    [best] = [entry for entry in run.result.context if not entry.hidden]
    assert best.data == {"score": 1.0, "n": 4}


def test_a_worse_text_is_rejected_and_an_equal_one_accepted(tmp_path: Path) -> None:
    assert run_of(tmp_path / "worse", "solve 3", "solve 2", steps=2).texts == ["solve 3"]
    assert run_of(tmp_path / "same", "solve 3", "well, solve 3", steps=2).texts == ["well, solve 3"]


def test_a_step_costs_attempts_criticisms_a_rewriting_and_a_trial(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 3", steps=2)
    # Attempts, a criticism of each, the rewriting, the trial.
    assert run.counts == [4 + 4 + 1 + 4] * 2
    same = run_of(tmp_path / "same", "solve 3", steps=2)
    # What it was before is not tried again.
    assert same.counts == [13, 9]


def test_a_rewrite_reads_the_new_criticism_and_the_newest_earlier_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 2", "solve 3", steps=3, momentum=3)
    first, second, third = run.prompts("curator")
    assert "# Said before\n(nothing)\n" in first
    assert first.partition("# Said now")[2].count("If it is message") == 4
    assert second.partition("# Said before")[2].partition("# Said now")[0].count("If it is message") == 3
    assert "Score: 25\nsolve 1" in second
    before = third.partition("# Said before\n")[2].partition("\n\n")[0].splitlines()
    assert before == [f"- {lesson.text}" for lesson in run.reports[1].lessons[-3:]]
    assert len(run.result.context.in_section(FEEDBACK)) == 3


def test_without_momentum_nothing_is_kept_of_what_was_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 2", steps=2, momentum=0)
    assert run.result.context.in_section(FEEDBACK) == []
    assert "# Said before\n(nothing)\n" in run.prompts("curator")[1]


def test_no_agent_sees_the_criticism(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 3", steps=2)
    assert "If it is message" in "".join(run.prompts("curator"))
    assert "If it is message" not in "".join(call.text for call in run.calls("agent"))


def test_a_failed_rewrite_leaves_the_instructions_and_keeps_the_criticism(tmp_path: Path) -> None:
    run = run_of(tmp_path, model=model_of((), lambda call: ProviderError("provider.failed", "gone")))
    assert (run.texts, run.result.errors["lost_updates"]) == ([], 1)
    assert len(run.result.context.in_section(FEEDBACK)) == 4


def test_forgetting_reaches_the_criticism_and_the_text_written_from_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, "solve 1", "solve 3", steps=2, momentum=8)
    gone = run.reports[0].lessons[0]
    told = "|".join(e.text for e in run.result.context.in_section(FEEDBACK))
    assert gone.text in told
    with Store.open(run.folder) as store:
        forget(store, "run", tasks=["t1"])
        left = list(rebuild(read_versions(store, "run")))
    # The text was first written after an attempt at each of the tasks, and all later ones rest on it.
    assert {entry.section for entry in left} == {FEEDBACK}
    assert not any("task:t1" in entry.sources for entry in left)
    assert len(left) == 6


def test_a_resume_pays_for_nothing_twice(tmp_path: Path) -> None:
    texts = ("solve 1", "solve 3")
    whole = run_of(tmp_path / "whole", *texts, steps=2)
    same_after_any_kill(
        whole, model_of(texts).respond, tmp_path / "killed",
        lambda folder, model: run_of(folder, model=model, steps=2),
    )  # fmt: skip
    again = resumed(whole, client(model_of(texts).respond))
    assert again.model.calls == []
    assert context_bytes(again.result) == context_bytes(whole.result)


def test_a_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a stream shows each once"):
        run_of(tmp_path, "solve 1", online=True)
