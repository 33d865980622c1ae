"""The scorer `appworld`: reads what AppWorld's own tests say of the world that an attempt left."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import AgentError
from practicum.core.types import Score, Task, Trace
from practicum.core.views import truncate

NOTE = 3000
"""Most characters of what is told of failed tests."""


class _Test(BaseModel):
    model_config = ConfigDict(extra="ignore")

    requirement: str
    trace: str = ""


class _Evaluation(BaseModel):
    model_config = ConfigDict(extra="ignore")

    success: bool
    num_tests: int
    passes: list[_Test]
    failures: list[_Test]


class Evaluation:
    """Task goal completion: 1 where all of AppWorld's tests pass, else 0; the note says which failed, and how."""

    name = "appworld"
    needs_target = False

    def __call__(self, task: Task, trace: Trace) -> Score:
        """The score of the world an attempt left; AgentError where there is none that AppWorld looked at."""
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        state = trace.data.get("state")
        try:
            found = _Evaluation.model_validate(state["evaluation"] if isinstance(state, dict) else state)
        except (ValidationError, KeyError) as error:
            raise AgentError(f"the attempt at {task.id!r} left no evaluation of AppWorld to score") from error
        told = "\n".join(f"- {_failed(test)}" for test in found.failures)
        told = truncate(told, NOTE)
        passed = f"{len(found.passes)} of {found.num_tests} tests pass."
        note = passed if found.success else f"{passed} These fail:\n{told}"
        return Score(float(found.success), found.success, note)


def _failed(test: _Test) -> str:
    """What was wanted, and what was there: a trace is the test's code, a line of dashes, and the failed assertion."""
    said = test.trace.rpartition("----------\n")[2].strip()
    return f"{test.requirement} {said}".strip()
