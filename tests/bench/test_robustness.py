"""The robustness bench: with the gate, a harmful reflector does not bring the result below the base."""

from __future__ import annotations

import pytest

from practicum.bench.robustness import ReflectorSetting, make_tasks, reflector_rule, robustness, targets


@pytest.mark.slow
def test_with_the_gate_no_run_ends_below_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few tasks, and each step harmful."""
    for name, count in (("LEARNING", 8), ("GATE", 48)):
        monkeypatch.setattr(f"practicum.bench.robustness.{name}", count)
    without, with_ = robustness([ReflectorSetting(every=1)], 1, lambda row: None)
    assert with_.gain >= 0
    assert without.gain < -0.5
    assert without.base == with_.base
    assert [target.met for target in targets([without, with_])] == [True]


def test_the_share_of_wrong_rules_is_the_set_noise() -> None:
    texts = [task.input for task in make_tasks(400, "learning", 0)]
    wrong = sum(reflector_rule(text, 0.25, False) != reflector_rule(text, 0.0, False) for text in texts)
    assert wrong / 400 == pytest.approx(0.25, abs=0.05)
