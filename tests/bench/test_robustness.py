"""The robustness bench: with the gate a harmful reflector does not bring the result below the base."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import run_command

from practicum.bench.robustness import ReflectorSetting, make_tasks, reflector_rule, robustness, targets


@pytest.mark.slow
def test_with_the_gate_no_run_ends_below_the_base_and_a_weak_reflector_gains_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, count in (("LEARNING", 8), ("GATE", 48)):
        monkeypatch.setattr(f"practicum.bench.robustness.{name}", count)
    settings = [ReflectorSetting(every=1), ReflectorSetting(), ReflectorSetting(noise=0.75)]
    without, gated, sound, _, weak, _ = robustness(settings, 1, lambda row: None)
    assert gated.gain >= 0
    assert without.gain < -0.5
    assert without.base == gated.base
    assert [target.met for target in targets([without, gated])] == [True]
    assert sound.gain > 0
    assert sound.gain > weak.gain


def test_noise_is_as_frequent_as_the_setting() -> None:
    texts = [task.input for task in make_tasks(400, "learning", 0)]
    wrong = sum(reflector_rule(text, 0.25, False) != reflector_rule(text, 0.0, False) for text in texts)
    assert wrong / 400 == pytest.approx(0.25, abs=0.05)


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    for option, value in (("--harmful-every", "0"), ("--harmful-every", "now"), ("--noise", "2"), ("--noise", "x")):
        done = run_command(["bench", "robustness", option, value], tmp_path)
        assert (done.code, option in done.err) == (2, True)
