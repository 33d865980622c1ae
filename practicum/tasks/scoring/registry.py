"""Scorers by name: built in, registered by an installed package, or a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

from practicum.core import plugins
from practicum.core.errors import AgentError, UsageError
from practicum.core.importing import import_function
from practicum.core.types import Score, Task, Trace
from practicum.tasks.scoring.rules import PASS_MARK, RULES, OneChoice, RuleScorer, Scorer, normalise

JUDGED = ("judge", "commongen")
"""Scorers that ask a judge."""

WITH_MODELS = ("software", *JUDGED)
"""Scorers that need a run's models; `session` makes them."""

COMPARING = ("exact", "numeric", "choice", "contains", "regex", "list")
"""Scorers that compare an answer with its target."""

SCORERS = (*COMPARING, "tests", "coverage", "software", "appworld", *JUDGED)
"""Names of the built-in scorers."""

GROUP = "practicum.scorers"
"""The entry point group in which packages register scorers: `name = "module:function"`."""


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """Scores with a function of the user: `function(task, answer)`, sync or async, returns a number in [0, 1], a bool
    or a Score.

    A function with a parameter `trace` also gets the whole trace: its steps, and in `trace.data["state"]` the state
    that an agent with tools left. With labels, learning sees the note of a Score.
    """

    name: str
    function: Callable[..., Any]
    needs_target: bool = False

    def __call__(self, task: Task, trace: Trace) -> Score | Awaitable[Score]:
        """Call the function. Raises AgentError, naming task and scorer, when it raises or returns no score."""
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        try:
            arguments = {"trace": trace} if _takes_trace(self.function) else {}
            result = self.function(task, trace.answer, **arguments)
            return self._await(task, result) if inspect.isawaitable(result) else _as_score(result)
        except Exception as error:
            raise self._failure(task, error) from error

    async def _await(self, task: Task, result: Awaitable[object]) -> Score:
        try:
            return _as_score(await result)
        except Exception as error:
            raise self._failure(task, error) from error

    def _failure(self, task: Task, error: Exception) -> AgentError:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return AgentError(f"scorer {self.name!r} failed on task {task.id!r}: {reason}")


def load_scorer(name: str, choices: tuple[str, ...] | None) -> Scorer:
    """The scorer with this name: a built-in one, one that a package registers, or `module:function`.

    Raises UsageError for an unknown name, for `choice` without choices, for a function that cannot be imported or
    called as `(task, answer[, trace])`, and for `tests` where generated code cannot be run.
    """
    if ":" in name:
        return FunctionScorer(name, _checked(f"scorer {name!r}", import_function(name)))
    if name in RULES:
        return RuleScorer(name, RULES[name])
    if name in WITH_MODELS:
        raise UsageError(f"scorer {name!r} needs a run's models, so it cannot be loaded by its name alone")
    match name:
        case "choice":
            if not choices or not all(map(normalise, choices)):
                raise UsageError("scorer 'choice' needs choices, none of them empty: --choices a,b,c or --choices auto")
            return RuleScorer(name, OneChoice(choices))
        case "tests":
            from practicum.tasks.scoring.unit_tests import UnitTestScorer

            scorer = UnitTestScorer()
            scorer.sandbox.require()
            return scorer
        case "coverage":
            from practicum.tasks.scoring.coverage import CoverageScorer

            return CoverageScorer()
        case "appworld":
            from practicum.tasks.scoring.appworld import AppWorldScorer

            return AppWorldScorer()
    registered = plugins.registered(GROUP)
    if name not in registered:
        others = "".join(f", {entry}" for entry in plugins.describe(GROUP))
        raise UsageError(
            f"unknown scorer {name!r}; use one of {', '.join(SCORERS)}{others}, or your own function as module:function"
        )
    what = f"scorer {name!r} of the package {plugins.package_of(registered[name])!r}"
    return FunctionScorer(name, _checked(what, plugins.load(GROUP, name)))


def meta_fault(scorer_name: str, meta: Mapping[str, Any]) -> str | None:
    """What a task's `meta` lacks for the scorer, worded to follow "task X"; None if it lacks nothing."""
    match scorer_name:
        case "tests":
            from practicum.tasks.scoring.unit_tests import tests_fault

            return tests_fault(meta)
        case "software":
            from practicum.tasks.scoring.software import software_fault

            return software_fault(meta)
        case "coverage" | "commongen":
            from practicum.tasks.scoring.coverage import concepts_fault

            return concepts_fault(meta, scorer_name)
        case _:
            return None


def _as_score(result: object) -> Score:
    if isinstance(result, Score):
        score = result
    elif isinstance(result, SupportsFloat):  # includes numpy's bool and floats
        score = Score(float(result), float(result) >= PASS_MARK)
    else:
        raise TypeError(f"it returned {type(result).__name__}, not a number, a bool or a Score")
    if not 0.0 <= score.value <= 1.0:
        raise ValueError(f"it returned {score.value}, which is not between 0 and 1")
    return score


def _takes_trace(function: Callable[..., object]) -> bool:
    try:
        return "trace" in inspect.signature(function).parameters
    except ValueError:  # some builtins have no signature
        return False


def _checked(what: str, function: Any) -> Callable[..., Any]:
    """The function, if it can be called as a scorer; else UsageError."""
    if not callable(function):
        raise UsageError(f"{what}: a scorer must be a function (task, answer), not {type(function).__name__}")
    checked: Callable[..., Any] = function
    try:
        inspect.signature(checked).bind(None, None, **({"trace": None} if _takes_trace(checked) else {}))
    except TypeError:
        raise UsageError(f"{what}: the function must take (task, answer), or (task, answer, trace)") from None
    except ValueError:  # some builtins have no signature; the first call will show
        return checked
    return checked
