"""The acceptance gate keeps helpful deltas and drops harmful ones, with the errors it states and few tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st
from profiles import PROFILE
from runs import indoors
from scripts import Learned, learned, number, scripted

import practicum
from practicum.blocks.accept.always import always
from practicum.blocks.accept.gate import WORSE, Trial, gate, unshown_part
from practicum.cli.app import main
from practicum.core.context import ApplyResult, Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Resolution, Update, Vote
from practicum.core.errors import UsageError
from practicum.core.types import Feedback, Rollout, Score, Task, Trace
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

ALPHA = 0.05


def tried(draw: Callable[[], float], tasks: int, alpha: float = ALPHA) -> Trial:
    trial = Trial(alpha)
    for n in range(tasks):
        trial.take(str(n), draw())
    return trial


def ran(arguments: list[str]) -> object:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


# ---- the test


@given(st.lists(st.floats(-1, 1), max_size=8), st.floats(0, 1))
def test_a_bet_on_a_fair_difference_gains_nothing_on_average(past: list[float], size: float) -> None:
    def after(last: float) -> float:
        trial = Trial(1e-9)
        for difference in (*past, last):
            trial.take("t", difference)
        return trial.wealth[1]

    assert (after(size) + after(-size)) / 2 == pytest.approx(after(0.0))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize(
    "world",
    [
        lambda rng: float(rng.choice((-1, 1))),
        lambda rng: float(rng.choice((-1, 0, 0, 0, 0, 0, 0, 0, 0, 1))),
        lambda rng: rng.uniform(-1, 1),
        # Seldom much better, mostly a little worse: no difference on average.
        lambda rng: 0.9 if rng.random() < 0.1 else -0.1,
    ],
    ids=["coin", "mostly ties", "uniform", "skewed"],
)
@pytest.mark.slow
def test_the_test_errs_in_at_most_the_share_alpha_of_equal_deltas(
    world: Callable[[Random], float], alpha: float
) -> None:
    rng, runs = Random(7), 1000 if PROFILE == "slow" else 250
    found = [tried(lambda: world(rng), 120, alpha) for _ in range(runs)]
    assert sum(t.decided and not t.kept for t in found) / runs <= alpha
    assert sum(t.decided and t.kept for t in found) / runs <= alpha


def test_large_differences_need_few_tasks_and_small_ones_are_judged_by_the_mean() -> None:
    worse, better = tried(lambda: -1.0, 100), tried(lambda: 1.0, 100)
    assert [(t.decided, t.kept, len(t.differences)) for t in (worse, better)] == [(True, False, 7), (True, True, 7)]
    little = iter([-1.0, *[0.0] * 40])
    seen = tried(lambda: next(little), 40)
    assert (seen.decided, seen.kept, len(seen.differences)) == (False, False, 40)
    assert tried(lambda: 0.0, 40).kept


def test_helpful_deltas_are_kept_and_harmful_ones_dropped_nearly_always() -> None:
    def kept(up: float, down: float) -> float:
        rng = Random(3)

        def draw() -> float:
            luck = rng.random()
            return 1.0 if luck < up else -1.0 if luck < up + down else 0.0

        return sum(tried(draw, 40).kept for _ in range(400)) / 400

    assert kept(0.2, 0.05) > 0.95
    assert kept(0.05, 0.2) < 0.05


# ---- what is left of a dropped delta


def test_votes_and_hidden_edits_stay_and_other_lessons_are_resolved_as_dropped() -> None:
    context = seed_context([("rules", "Be kind."), (".notes", "so far")])
    delta = Delta(
        (
            Vote("e0", helpful=1, lessons=("l1",)),
            Add("rules", "Shout.", ref="r", lessons=("l2", "l1")),
            Vote("r", helpful=1),
            Update("e1", text="so far, and more"),
            Delete("e0", lessons=("l3",)),
        ),
        (Resolution("l4", "e0"), Resolution("l5", "r"), Resolution("l6", reason="said nothing")),
    )
    left = unshown_part(context, delta)
    assert left.edits == (delta.edits[0], delta.edits[3])
    assert left.resolutions == (
        Resolution("l4", "e0"), Resolution("l6", reason="said nothing"),
        *(Resolution(lesson, reason=WORSE) for lesson in ("l2", "l1", "l3", "l5")),
    )  # fmt: skip
    assert context.apply(left).context.digest == context.digest


def test_a_kept_addition_can_be_named_by_later_edits() -> None:
    context = seed_context([("rules", "Be kind.")])
    edits = (
        Add(".notes", "so far", ref="r"), Vote("e0", helpful=1), Add("rules", "Shout."), Update("r", text="and more"),
        Vote("nothing", helpful=1),
    )  # fmt: skip
    assert unshown_part(context, Delta(edits)).edits == (edits[0], edits[1], edits[3])


def test_each_edit_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    apply = Context.apply

    def counted(self: Context, delta: Delta) -> ApplyResult:
        tried.append(len(delta.edits))
        return apply(self, delta)

    monkeypatch.setattr(Context, "apply", counted)
    votes = Delta(tuple(Vote("e0", helpful=1, lessons=(f"l{n}",)) for n in range(100)))
    assert unshown_part(seed_context([("rules", "Be kind.")]), votes).edits == votes.edits
    assert sum(tried) == 100


def test_a_kept_vote_does_not_account_for_a_lesson_whose_text_is_dropped() -> None:
    context = seed_context([("rules", "one")])
    voted, silent = Vote("e0", 1, lessons=("l1",)), Vote("e0", 1, lessons=("l2",))
    left = unshown_part(context, Delta((voted, silent, Add("rules", "two", lessons=("l1",)))))
    assert left == Delta((voted, silent), (Resolution("l1", reason=WORSE),))


# ---- around another accept seam


class Acting:
    """An act seam without a model: right on every second task; always with a good rule, never with a bad one."""

    def __init__(self) -> None:
        self.attempts: list[str] = []

    async def __call__(self, task: Task, context: Context, run: Run) -> Rollout:
        self.attempts.append(task.id)
        rules = " ".join(entry.text for entry in context)
        right = "BAD" not in rules and ("GOOD" in rules or int(task.id[1:]) % 2 == 0)
        return Rollout(task, Trace(""), Score(float(right), right), Feedback(right, ""), run.place)


def judged(*texts: str) -> tuple[list[Delta], Context, Acting, Run]:
    """What the gate makes of additions, one a step."""
    act, run = Acting(), indoors(lambda call: "")
    accept = gate(always, act, make_tasks(40), ALPHA)

    async def work() -> tuple[list[Delta], Context]:
        deltas, context = list[Delta](), seed_context([("rules", "Be kind.")])
        for n, text in enumerate(texts):
            edit = Add("rules", text, lessons=(f"l{n}",)) if text else Vote("e0", helpful=1)
            deltas.append(await accept(context, Delta((edit,)), [], run.at(f"step {n}")))
            context = context.apply(deltas[-1]).context
        return deltas, context

    return *asyncio.run(work()), act, run


def test_harmful_deltas_are_dropped_at_every_step_with_few_tasks() -> None:
    deltas, context, act, run = judged("BAD 0", "BAD 1", "BAD 2", "BAD 3")
    assert [entry.text for entry in context] == ["Be kind."]
    assert run.counts["gated_deltas"] == 4
    for n, delta in enumerate(deltas):
        evidence = delta.evidence
        assert (evidence["gate"], evidence["by"]) == ("dropped", "test")
        assert evidence["e_worse"] >= 20
        assert len(evidence["differences"]) == evidence["tasks"] < 30
        assert sum(evidence["differences"].values()) / evidence["tasks"] == evidence["mean"] < -0.2
        assert delta.resolutions == (Resolution(f"l{n}", reason=WORSE),)
    # The old context is scored once, whatever is tried beside it.
    assert len(act.attempts) <= 40 + 4 * 32


def test_a_helpful_delta_is_kept_and_later_ones_are_compared_with_it() -> None:
    deltas, context, _, _ = judged("GOOD", "BAD 1", "BAD 2")
    assert [delta.evidence["gate"] for delta in deltas] == ["kept", "dropped", "dropped"]
    assert [entry.text for entry in context] == ["Be kind.", "GOOD"]


def test_a_delta_that_changes_nothing_shown_is_not_tried() -> None:
    deltas, context, act, _ = judged("", "")
    assert [dict(delta.evidence) for delta in deltas] == [{}, {}]
    assert [entry.helpful for entry in context] == [2]
    assert act.attempts == []


def test_a_delta_that_changes_no_score_is_kept() -> None:
    """Ties everywhere: not worse."""
    deltas, context, _, _ = judged("Neither 0", "Neither 1")
    assert [delta.evidence["by"] for delta in deltas] == ["mean", "mean"]
    assert len(context) == 3


# ---- in a run


def swayed(call: Call) -> dict[str, Any]:
    """Right one time in two by itself; always with a good rule, never with a bad one."""
    right = "BAD" not in call.text and ("GOOD" in call.text or number(call) % 2 == 0)
    return {"answer": f"word{number(call)}" if right else "wrong"}


def says(word: Callable[[int], str]) -> ScriptedClient:
    """A model whose reflector gives such rules."""
    return scripted(swayed, lambda call: {"insight": f"{word(number(call))}: rule of message {number(call)}."})


def gated(folder: Path, model: ScriptedClient, tasks: int = 4, **how: Any) -> Learned:
    settings = {"rounds": 0, "gate": True, **how.pop("settings", {})}
    val = make_tasks(40, 100)
    return learned(folder, model, tasks, settings, val=val, **{"validate_every": 100, **how})


def test_the_gate_works_asynchronously(tmp_path: Path) -> None:
    settings = {"batch": 4, "asynchronous": True}
    run = gated(tmp_path, says(lambda n: "BAD"), 8, method="combee", settings=settings)
    assert len(run.result.context) == 0
    assert run.result.errors["gated_deltas"] >= 1


def test_the_evidence_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = gated(tmp_path, says(lambda n: "BAD"), 2)
    assert ran(["show", str(run.folder), "--gate"]) == 0
    out = capsys.readouterr().out
    assert "dropped" in out
    assert "2 deltas tried, 2 dropped" in out
    assert ran(["show", str(run.folder), "--gate", "--json"]) == 0
    assert '"e_worse"' in capsys.readouterr().out
    assert ran(["show", str(run.folder), "--gate", "--version", "1"]) == 2
    plain = learned(tmp_path / "plain", scripted(), 1)
    capsys.readouterr()
    assert ran(["show", str(plain.folder), "--gate"]) == 2
    assert "--set gate=true" in capsys.readouterr().err


# ---- bad input


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"settings": {"gate": True}}, "give `val`"),
        ({"settings": {"gate": True}, "method": "none"}, "method none changes nothing"),
        ({"settings": {"gate_alpha": 0.1}}, "gate_alpha is for gate=true"),
        ({"settings": {"gate": True, "gate_alpha": 1.0}}, "gate_alpha"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_paid(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    model = scripted()
    with pytest.raises(UsageError, match=said):
        practicum.run_sync(
            practicum.learn(make_tasks(2), out=tmp_path / "run", parts=practicum.Parts(clients={"agent": model}), **how)
        )
    assert not model.calls
    assert not (tmp_path / "run").exists()
