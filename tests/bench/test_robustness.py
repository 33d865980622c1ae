"""The robustness bench: with the gate a harmful reflector does not bring the result below the base."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import write_tasks

import practicum
from practicum.bench.harmful import HARMFUL
from practicum.bench.robustness import (
    SETTINGS,
    HarmPlan,
    HarmResult,
    ReflectorSetting,
    RobustnessRow,
    _respond,
    make_tasks,
    reflector_rule,
    robustness,
    table_17,
    targets,
)
from practicum.bench.shared_budget import SharedBudget
from practicum.cli.app import main
from practicum.core.errors import UsageError
from practicum.models.budget import BudgetLimits
from practicum.models.scripted import ScriptedClient
from practicum.session.records import load_context


def ran(arguments: list[str]) -> object:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


@pytest.mark.slow
def test_with_the_gate_no_run_ends_below_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few tasks, each step harmful; the slow test below has as many as the bench."""
    for name, count in (("LEARNING", 8), ("GATE", 48)):
        monkeypatch.setattr(f"practicum.bench.robustness.{name}", count)
    without, with_ = robustness([ReflectorSetting(every=1)], 1, lambda row: None)
    assert with_.gain >= 0
    assert without.gain < -0.5
    assert without.base == with_.base
    assert [target.met for target in targets([without, with_])] == [True]


@pytest.mark.slow
def test_with_the_gate_no_run_of_full_size_ends_below_the_base() -> None:
    reports: list[RobustnessRow] = []
    without, with_ = robustness([ReflectorSetting(every=1)], 2, reports.append)
    assert reports == [without, with_]
    assert min(with_.gains) >= 0
    assert max(without.gains) < -0.5
    assert without.base == with_.base
    assert [target.met for target in targets([without, with_])] == [True]


@pytest.mark.slow
def test_a_weak_reflector_gains_less_and_the_gate_recovers_some_of_it() -> None:
    sound, gated, weak, weak_gated = robustness([ReflectorSetting(), ReflectorSetting(noise=0.75)], 1, lambda row: None)
    assert sound.gain > weak.gain
    assert weak_gated.gain > weak.gain
    assert gated.gain > 0


def test_noise_comes_as_often_as_the_setting_says() -> None:
    texts = [task.input for task in make_tasks(400, "learning", 0)]
    wrong = sum(reflector_rule(text, 0.25, False) != reflector_rule(text, 0.0, False) for text in texts)
    assert wrong / 400 == pytest.approx(0.25, abs=0.05)


REAL_TASKS, REAL_TEST = make_tasks(16, "learning", 0), make_tasks(24, "test", 0)


def real(folder: Path, model: ScriptedClient, *every: int | None, **how: Any) -> HarmResult:
    """Table 17 with the simulated world's model as if it were any other: it obeys when it is told to do harm."""
    config = {"model": "scripted", "profile": "small", "settings": SETTINGS}
    plan = HarmPlan(
        learning=REAL_TASKS, testing=REAL_TEST, reflectors=[*map(ReflectorSetting, every)], seeds=2, config=config
    )
    return practicum.run_sync(table_17(plan, folder, parts=practicum.Parts(clients={"agent": model}), **how))


@pytest.mark.slow
def test_a_reflector_of_any_model_is_harmful_at_every_xth_step_and_at_no_other(tmp_path: Path) -> None:
    model = ScriptedClient(partial(_respond, 0.0))
    found = real(tmp_path / "bench", model, 1, 3, None)
    asked = [call for call in model.calls if call.role == "reflector"]
    assert len(asked) == 3 * 2 * 16
    told = [HARMFUL in call.prompt.user for call in asked]
    assert told == [True] * 32 + [n % 3 == 0 for n in range(1, 17)] * 2 + [False] * 32
    worst, some, sound = found.rows
    assert worst.gain < min(0, some.gain)
    assert some.gain <= sound.gain
    assert sound.gain > 0
    assert worst.base == some.base == sound.base
    assert [len(row.after) for row in found.rows] == [24] * 3
    # With two seeds nothing is claimed of the method.
    assert {claim.verdict for claim in found.claims.values()} <= {"unclear", "runs higher", "runs lower"}
    # The prompts that are stored are those of an ordinary run, so the same call again pays for nothing.
    made = len(model.calls)
    assert real(tmp_path / "bench", model, None, 1, 3).rows == [sound, worst, some]
    assert len(model.calls) == made
    with pytest.raises(UsageError, match="holds a bench with other tasks or settings"):
        practicum.run_sync(
            table_17(
                HarmPlan(learning=REAL_TEST, testing=REAL_TASKS, reflectors=[], config={"model": "scripted"}),
                tmp_path / "bench",
            )
        )


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_at_its_step(tmp_path: Path) -> None:
    model = ScriptedClient(partial(_respond, 0.0))
    stopped = real(tmp_path / "bench", model, 4, budget=SharedBudget(BudgetLimits(80)))
    assert stopped.rows == []
    assert stopped.stopped
    whole = real(tmp_path / "bench", model, 4)
    asked = [HARMFUL in call.prompt.user for call in model.calls if call.role == "reflector"]
    assert asked == [n % 4 == 0 for n in range(1, 17)] * 2
    (other,) = real(tmp_path / "other", ScriptedClient(partial(_respond, 0.0)), 4).rows
    # The stop paid for an evaluation more.
    assert whole.rows == [replace(other, calls=(other.calls[0] + 24, other.calls[1]))]


@pytest.mark.slow
def test_the_command_takes_tasks_and_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tasks(tmp_path / "tasks.jsonl", REAL_TASKS[:4])
    write_tasks(tmp_path / "test.jsonl", REAL_TEST[:10])
    rule = {"kind": "k", "diagnosis": "d", "correction": "c", "insight": r"If \1, answer yes.", "tags": []}
    script = [
        {"role": "reflector", "match": "This time, do harm", "answer": {**rule, "insight": "If x, do no."}},
        {"role": "reflector", "match": r"on (\w+),", "answer": rule},
        {"role": "curator", "answer": {"decisions": [{"lesson": 1, "op": "ADD"}]}},
        {"answer": {"answer": "unsure", "used": []}},
    ]
    (tmp_path / "model").write_text("\n".join(map(json.dumps, script)))
    out = tmp_path / "out"
    files = ["--tasks", str(tmp_path / "tasks.jsonl"), "--test", str(tmp_path / "test.jsonl"), "--out", str(out)]
    command = ["bench", "robustness", *files, "--every", "2,never", "--model", f"scripted:{tmp_path / 'model'}"]
    assert ran([*command, "--profile", "small", "--seeds", "1", "--set", "rounds=0", "--batch-size", "1"]) == 0
    assert "harmful every 2: +0.0% over the base" in capsys.readouterr().out
    texts = [entry.text for entry in load_context(out / "harmful-every-2-0")]
    assert "If x, do no." in texts
    assert len(json.loads((out / "robustness.json").read_text())["rows"]) == 2


@pytest.mark.slow
def test_the_command_saves_a_table_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert ran(["bench", "robustness", "--every", "never", "--noise", "0.5", "--seeds", "1", "--out", str(out)]) == 0
    assert "least gain" in capsys.readouterr().out
    assert len(json.loads((out / "robustness.json").read_text())["rows"]) == 4
    assert (out / "robustness.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--every", "0"], ["--every", "now"], ["--noise", "2"], ["--noise", "x"], ["--model", "local"],
        ["--noise", "0.5", "--tasks", "tasks.jsonl"], ["--test", "tasks.jsonl"],
    ],
)  # fmt: skip
def test_bad_numbers_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(["bench", "robustness", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err
