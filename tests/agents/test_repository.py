"""Agents that work in a copy of a task's repository (`cli:claude`, `cli:codex`). Scripts replace the programs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from standins import Event, StandIn, claude, codex, used

import practicum
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.errors import ModelError, UsageError
from practicum.core.types import Task, Trace, Usage

RULE = initial_context([Add("rules", "Name files in lower case.")])
SHELL = {"type": "command_execution", "command": "pytest", "aggregated_output": "1 failed\n", "exit_code": 1}
EDIT = {"type": "file_change", "changes": [{"path": "a.py", "kind": "update"}], "status": "completed"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "a.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("built\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(name, tmp_path / "bin", monkeypatch)


def attempted(repository: Path | None, **config: Any) -> tuple[Trace, practicum.Evaluation]:
    """The trace of an attempt under RULE, and the evaluation."""
    traces: list[Trace] = []

    def scorer(task: Task, answer: str, trace: Trace) -> bool:
        traces.append(trace)
        return answer == "done"

    task = Task("t1", "Fix it.", "done", {"repository": str(repository)})
    work = practicum.evaluate([task], RULE, parts=practicum.Parts(scorer=scorer), **{"agent": "cli:claude", **config})
    evaluation = practicum.run_sync(work)
    attempt = evaluation.attempts[0]
    return attempt.trace, evaluation


def test_the_diff_of_the_copy_applies_to_the_unchanged_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = "echo 'print(2)' > a.py; touch built; git rev-list --all --count > count; git commit -qam mine"
    agent = program("claude", tmp_path, monkeypatch)
    agent.prints(*claude("done")[:1], *used("Bash", "ok", command="make"), *claude("done", num_turns=3)[1:], first=work)
    before = sorted(path.read_bytes() for path in repository.rglob("*") if path.is_file())
    trace, evaluation = attempted(repository, instructions="Be brief.", max_turns=7, timeout=60.0)
    assert sorted(path.read_bytes() for path in repository.rglob("*") if path.is_file()) == before
    assert (trace.answer, trace.error, evaluation.score) == ("done", None, 1.0)
    assert [(step.kind, step.text) for step in trace.steps] == [
        ("action", 'Bash({"command":"make"})'), ("observation", "ok"),
    ]  # fmt: skip
    assert evaluation.usage == Usage(3, 19, 5, 9, 0.25, 3)
    subprocess.run(["git", "apply"], input=trace.data["diff"].encode(), cwd=repository, check=True)
    assert (repository / "a.py").read_text() == "print(2)\n"
    # The copy has one commit of practicum, and the diff has no files that git ignores.
    assert (repository / "count").read_text() == "1\n"
    assert not (repository / "built").exists()
    [args], [sent] = agent.calls(), agent.calls("input")
    assert args.splitlines()[args.splitlines().index("--max-turns") + 1] == "7"
    assert sent == "Fix it."


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_context_is_added_to_the_system_prompt(
    name: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = program(name, tmp_path, monkeypatch)
    save = f"cp ../system.md {tmp_path}/system.md"
    agent.prints(*(claude("done") if name == "claude" else codex(text="done")), first=save if name == "claude" else "")
    attempted(repository, agent=f"cli:{name}/m1", instructions="Be brief.")
    [args] = agent.calls()
    system = (tmp_path / "system.md").read_text() if name == "claude" else args
    assert system.index("Be brief.") < system.index("Name files in lower case.")
    assert args.splitlines()[-2:] == ["--model", "m1"]


def test_steps_of_codex_are_its_commands_and_edits(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thought = {"id": "0", "type": "reasoning", "text": "Look first."}
    program("codex", tmp_path, monkeypatch).prints(
        *codex(thought, {"id": "1", **SHELL}, {"id": "2", **EDIT}, text="done")
    )
    trace, evaluation = attempted(repository, agent="cli:codex/gpt-4.1-mini")
    steps = [(step.kind, step.text) for step in trace.steps if step.kind != "system"]
    assert steps == [
        ("thought", "Look first."), ("action", "shell(pytest)"), ("observation", "1 failed\n\nexit code 1"),
        ("action", 'edit([{"path":"a.py","kind":"update"}])'), ("observation", "completed"),
    ]  # fmt: skip
    assert trace.answer == "done"
    assert evaluation.usage.usd == pytest.approx((34 * 0.4 + 8 * 0.1 + 16 * 1.6) / 1e6)


def test_the_agent_cannot_run_a_program_through_the_configuration_of_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = f"git config core.fsmonitor 'touch {tmp_path}/ran; false'; rm -rf .git/refs; echo 2 > b"
    program("claude", tmp_path, monkeypatch).prints(*claude("done"), first=hostile)
    trace, _ = attempted(repository)
    assert "+++ b/b" in trace.data["diff"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("events", "then", "timeout"),
    [(claude(None, is_error=True, subtype="error_max_turns", errors=["x"])[2:], "", 60.0), ([], "sleep 300", 1.0)],
    ids=["turns", "time"],
)
def test_an_attempt_that_ends_at_a_limit_has_its_steps_and_its_diff(
    events: list[Event], then: str, timeout: float, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = program("claude", tmp_path, monkeypatch)
    agent.prints(*used("Edit", "ok", file="b"), *events, code=1, first="echo 2 > b", then=then)
    trace, evaluation = attempted(repository, timeout=timeout)
    assert (trace.answer, evaluation.score) == ("", 0.0)
    assert trace.error is not None
    assert [step.kind for step in trace.steps] == ["action", "observation"]
    assert "+++ b/b" in trace.data["diff"]


def test_a_program_that_is_not_logged_in_stops_the_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("codex", tmp_path, monkeypatch).prints(*codex(failed="unexpected status 401 Unauthorized"), code=1)
    with pytest.raises(ModelError) as stopped:
        attempted(repository, agent="cli:codex")
    assert stopped.value.code == "model.not_logged_in"


def test_an_attempt_is_lost_if_the_provider_fails(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("codex", tmp_path, monkeypatch).prints(*codex(failed="unexpected status 500"), code=1)
    with pytest.raises(practicum.ProviderError) as failed:
        attempted(repository, agent="cli:codex")
    assert failed.value.code == "attempts.all_failed"


def test_settings_that_the_program_does_not_use_and_a_missing_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("codex", tmp_path, monkeypatch).prints(*codex())
    with pytest.raises(UsageError) as unused:
        attempted(tmp_path, agent="cli:codex", max_turns=20)
    assert unused.value.code == "settings.unused"
    with pytest.raises(UsageError) as unpriced:
        attempted(tmp_path, agent="cli:codex", max_usd=1.0)
    assert unpriced.value.code == "price.unknown"
    with pytest.raises(practicum.PracticumError) as broken:
        attempted(None, agent="cli:codex")
    assert broken.value.code == "agent.always_failed"


def test_redacted_texts_stay_redacted_because_a_provider_receives_them(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = program("claude", tmp_path, monkeypatch)
    agent.prints(*claude("done"))
    task = Task("t1", "Write to anna@shop.example.", "done", {"repository": str(repository)})
    redacting: dict[str, Any] = {"redact": "all", "redact_map": tmp_path / "map.sqlite"}
    practicum.run_sync(practicum.learn([task], test=[task], method="none", agent="cli:claude", **redacting))
    inputs = agent.calls("input")
    assert inputs
    assert not any("anna@shop.example" in text for text in inputs)


def test_a_run_stops_when_the_agent_has_spent_the_budget(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = program("claude", tmp_path, monkeypatch)
    agent.prints(*claude("done"))
    tasks = [Task(f"t{n}", f"Fix {n}.", "done", {"repository": str(repository)}) for n in range(6)]
    how: dict[str, Any] = {"agent": "cli:claude", "concurrency": 1, "max_usd": 0.6}
    evaluation = practicum.run_sync(practicum.evaluate(tasks, RULE, **how))
    assert evaluation.stopped == "the budget of 0.6 USD is spent"
    assert (evaluation.n, evaluation.usage.usd) == (3, 0.75)
    assert len(agent.calls()) == 3
    assert "0.6" in agent.calls()[0].splitlines()
