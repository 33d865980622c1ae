"""Scorer `appworld`: reads the results of AppWorld's tests, which check the state of the world after an attempt."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from practicum.core.errors import AgentError
from practicum.core.types import Score, Task, Trace
from practicum.core.views import truncate
from practicum.tasks.scoring.registry import AnswerScorer

MAX_NOTE = 3000  # maximum number of characters in the list of failed tests


class _Test(BaseModel):
    requirement: str
    trace: str = ""


class _TestResults(BaseModel):
    success: bool
    num_tests: int
    passes: list[_Test]
    failures: list[_Test]


def score_world(task: Task, trace: Trace) -> Score:
    """Return the score "task goal completion": 1 if all of AppWorld's tests pass, else 0. The note lists each failed
    test with the assertion that failed. Raises AgentError if AppWorld did not evaluate the world."""
    state = trace.data.get("state")
    try:
        results = _TestResults.model_validate(state["evaluation"] if isinstance(state, dict) else state)
    except (ValidationError, KeyError) as error:
        raise AgentError(
            "scorer.failed",
            f"the attempt at task {task.id!r} was not evaluated by AppWorld: "
            "use the scorer 'appworld' with the agent appworld:URL",
        ) from error
    note = f"{len(results.passes)} of {results.num_tests} tests pass."
    if not results.success:
        # AppWorld's trace is code, a line of dashes, and the assertion that failed.
        details = ((test.requirement, test.trace.rpartition("----------\n")[2].strip()) for test in results.failures)
        failures = "\n".join("- " + f"{requirement} {assertion}".strip() for requirement, assertion in details)
        note = f"{note} These fail:\n{truncate(failures, MAX_NOTE)}"
    return Score(float(results.success), results.success, note)


SCORER = AnswerScorer("appworld", score_world, agent="appworld")
