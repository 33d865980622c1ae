"""The whole way with a real model: the small one in llama.cpp learns by episodes, and is asked nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import context_bytes

import practicum
from practicum.core.types import Task
from practicum.tasks.load import load_tasks

DATA = Path(practicum.__file__).parent / "cli" / "data"
TEAMS = ("Birch", "Hazel", "Maple")


def messages(name: str, count: int) -> list[Task]:
    """Return the first messages of three teams. A model cannot know the work of a team."""
    return [t for t in load_tasks(DATA / f"support_{name}.jsonl") if t.target in TEAMS][:count]


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_small_real_model_learns_to_route_messages_and_a_resume_repeats_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests are at work on all cores: two threads of the model would mostly wait for each other.
    monkeypatch.setattr("practicum.models.local._cores", lambda: 1)
    learning = practicum.learn(
        messages("train", 16),
        test=messages("test", 6),
        out=tmp_path / "run",
        method="episodes",
        settings={"batch": 8, "k": 2},
        model="local",
        instructions=f"You route support messages to a team: {', '.join(TEAMS)}. Answer with the team's name only.",
        choices=TEAMS,
        before=True,
        max_output_tokens=32,
        window=1024,
    )
    result = practicum.run_sync(learning)
    assert result.stopped is None
    assert not result.errors
    assert len(result.context) == 16
    assert result.scores["test"] >= 0.75
    assert result.scores["test"] > result.scores["before"]
    assert result.usage.calls == 2 * 6
    assert result.usage.input_tokens > result.usage.cached_tokens > 0
    assert 0 < result.usage.output_tokens <= 32 * result.usage.calls

    again = practicum.run_sync(practicum.resume(tmp_path / "run"))
    assert again.usage == result.usage
    assert again.hits == result.usage.calls
    assert again.scores == result.scores
    assert context_bytes(again) == context_bytes(result)
