"""Registry of scorers by name: built-in, registered by an installed package, or a user's function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, SupportsFloat

from practicum.core.calls import OwnThread
from practicum.core.errors import AgentError, TaskFileError, UsageError
from practicum.core.plugins import Group, called, import_function, package_of
from practicum.core.scores import rounded
from practicum.core.types import Score, Task, Trace
from practicum.core.words import error_line
from practicum.tasks.sandbox.runner import Sandbox
from practicum.tasks.scoring.coverage import concept_coverage, concepts_fault
from practicum.tasks.scoring.rules import PASS_MARK, RULES, normalise, one_choice, target_fault
from practicum.tasks.scoring.software import software_fault
from practicum.tasks.scoring.unit_tests import score_tests, tests_fault

JUDGED = ("judge", "commongen")
"""Scorers that call a judge model."""

COMPARING = ("exact", "numeric", "choice", "contains", "regex", "list")
"""Scorers that compare an answer with its target."""

RUNS_CODE = ("tests", "software", "sql")
"""Scorers that run model-generated code."""

BUILT_IN = (*COMPARING, "tests", "coverage", "software", *JUDGED)
"""Names of the built-in scorers."""


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """Scorer that needs no model. `score(task, trace)` returns a Score or an awaitable of a Score. `Run.score` calls
    the scorer only for attempts that did not fail, and only if the task has the data that the scorer needs."""

    name: str
    score: Callable[[Task, Trace], Score | Awaitable[Score]]
    needs_target: bool = False
    pure: bool = True  # whether equal answers always get equal scores; scores of a pure scorer are not journaled
    agent: str | None = None  # kind of agent whose attempts the scorer can score; None: any kind
    fault: Callable[[Mapping[str, Any]], str | None] = lambda meta: None  # what `meta_fault` returns for this scorer

    async def __call__(self, task: Task, trace: Trace, run: object = None) -> Score:
        """Return the score. Raises TaskFileError for a task whose target or `meta` the scorer cannot use."""
        score = self.score(task, trace)
        return await score if inspect.isawaitable(score) else score


SCORERS: Group[Any] = Group(
    "practicum.scorers",
    "scorer",
    called,
    dict.fromkeys(BUILT_IN),
    unknown="scorer.unknown",
    advice="; write module:function for your own function",
)
"""Registered scorers. An installed package can register a function or an AnswerScorer."""


def function_scorer(name: str, function: Any, origin: str = "") -> AnswerScorer:
    """Return a scorer that calls a user's `function(task, answer)`, which returns a number in [0, 1], a bool or a
    Score. An async function runs in the event loop. Other functions run in a thread, one call at a time, so these
    functions may block or start an event loop.

    A function with a parameter `trace` also gets the whole trace: its steps, and in `trace.data["state"]` the final
    state of an agent with tools. With the setting `labels`, learning sees the note of a Score. The scorer raises
    AgentError, naming task and scorer, if the function raises or does not return a score.

    Raises UsageError if `function` cannot be called as `(task, answer[, trace])`. The message names the scorer by
    `name` and `origin`, a text such as " of the package 'x'".
    """
    if not callable(function):
        kind = type(function).__name__
        raise UsageError("scorer.invalid", f"scorer {name!r}{origin}: must be a function (task, answer), not {kind}")
    takes_trace = False
    try:
        signature = inspect.signature(function)
        takes_trace = "trace" in signature.parameters
        signature.bind(None, None, **({"trace": None} if takes_trace else {}))
    except TypeError:
        text = f"scorer {name!r}{origin}: the function must take (task, answer), or (task, answer, trace)"
        raise UsageError("scorer.invalid", text) from None
    except ValueError:  # some builtins have no signature, so only the first call can show that the arguments do not fit
        pass

    thread = OwnThread("practicum scorer")

    async def score(task: Task, trace: Trace) -> Score:
        call = partial(function, task, trace.answer, **({"trace": trace} if takes_trace else {}))
        try:
            return as_score(await thread.call(call))
        except Exception as error:
            raise AgentError(
                "scorer.failed", f"scorer {name!r} failed on task {task.id!r}: {error_line(error)}"
            ) from error

    return AnswerScorer(name, score, pure=False)


def load_scorer(name: str, choices: tuple[str, ...] | None) -> AnswerScorer:
    """Load the scorer with this name: a built-in scorer, a scorer of an installed package, or `module:function`. Raises
    UsageError for an unknown name, for `choice` without choices, for a function that cannot be imported or called as
    `(task, answer[, trace])`, and for `tests` if generated code cannot be run on this machine."""
    if ":" in name:
        return function_scorer(name, import_function(name))
    if name in ("software", *JUDGED):
        raise UsageError("scorer.invalid", f"scorer {name!r} needs the models of a run, so it cannot be loaded by name")
    if name in COMPARING:
        if name == "choice" and not (choices and all(map(normalise, choices))):
            raise UsageError(
                "settings.missing",
                "scorer 'choice' needs choices that are not empty: set `choices=a,b,c` or `choices=auto`",
                setting="choices",
            )
        compare = RULES.get(name) or partial(one_choice, choices or ())
        # `regex` is not pure: its search has a time limit, so the result may differ between calls.
        return AnswerScorer(name, partial(_score_target, name, compare), needs_target=True, pure=name != "regex")
    if name == "tests":
        sandbox = Sandbox()
        sandbox.require()
        return AnswerScorer(name, partial(score_tests, sandbox), pure=False)
    if name == "coverage":
        return AnswerScorer(name, lambda task, trace: concept_coverage(task.meta["concepts"], trace.answer))
    plugin = SCORERS.load(name)
    if isinstance(plugin, AnswerScorer):
        return plugin
    return function_scorer(name, plugin, f" of the package {package_of(SCORERS.registered()[name])!r}")


def meta_fault(scorer_name: str, meta: Mapping[str, Any]) -> str | None:
    """Return the fault of a task's `meta` for the scorer, phrased to follow "task X"; None if the scorer can use the
    `meta`."""
    match scorer_name:
        case "tests":
            return tests_fault(meta)
        case "software":
            return software_fault(meta)
        case "coverage" | "commongen":
            return concepts_fault(meta, scorer_name)
        case name if name in SCORERS.registered():
            plugin = SCORERS.load(name)
            return plugin.fault(meta) if isinstance(plugin, AnswerScorer) else None
        case _:
            return None


def _score_target(name: str, compare: Callable[[str, str], Score], task: Task, trace: Trace) -> Score:
    if task.target is None:
        raise TaskFileError(
            "tasks.no_target", f"task {task.id!r} has no target, which scorer {name!r} needs", task=task.id, scorer=name
        )
    if fault := target_fault(name, task.target):
        raise TaskFileError(
            "tasks.invalid_target",
            f"target of task {task.id!r} {fault}, so scorer {name!r} cannot use it",
            task=task.id,
            scorer=name,
        )
    return compare(task.target, trace.answer)


def as_score(result: object) -> Score:
    """Convert the result of a scorer to a Score. Values that are outside [0, 1] only by a rounding error are set to 0
    or 1 (`core.scores`). Raises TypeError for a result that is not a score, and ValueError for nan and other values
    outside [0, 1]."""
    if isinstance(result, Score):
        score = result
    elif isinstance(result, SupportsFloat):  # includes numpy's bool and floats
        score = Score(float(result), float(result) >= PASS_MARK)
    else:
        raise TypeError(f"the scorer returned {type(result).__name__}, not a number, a bool or a Score")
    if (value := rounded(score.value)) != score.value:
        score = replace(score, value=value)
    if not 0.0 <= score.value <= 1.0:
        raise ValueError(f"the score is {score.value}, which is not between 0 and 1")
    return score
