"""The robustness bench: with the gate a harmful reflector does not bring the result below the base."""

from __future__ import annotations

import pytest

from practicum.bench.robustness import (
    ReflectorSetting,
    make_tasks,
    reflector_rule,
    robustness,
    targets,
)
from practicum.cli.app import main


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
def test_a_weak_reflector_gains_less_and_the_gate_recovers_some_of_it() -> None:
    sound, gated, weak, weak_gated = robustness([ReflectorSetting(), ReflectorSetting(noise=0.75)], 1, lambda row: None)
    assert sound.gain > weak.gain
    assert weak_gated.gain > weak.gain
    assert gated.gain > 0


def test_noise_comes_as_often_as_the_setting_says() -> None:
    texts = [task.input for task in make_tasks(400, "learning", 0)]
    wrong = sum(reflector_rule(text, 0.25, False) != reflector_rule(text, 0.0, False) for text in texts)
    assert wrong / 400 == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--harmful-every", "0"],
        ["--harmful-every", "now"],
        ["--noise", "2"],
        ["--noise", "x"],
    ],
)
def test_bad_numbers_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(["bench", "robustness", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err
