"""Scorers by name: built in, registered by an installed package, or a function of the user."""

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
"""Scorers that ask a judge."""

COMPARING = ("exact", "numeric", "choice", "contains", "regex", "list")
"""Scorers that compare an answer with its target."""

RUNS_CODE = ("tests", "software")
"""Scorers that run code which a model wrote."""

BUILT_IN = (*COMPARING, "tests", "coverage", "software", *JUDGED)
"""Names of the scorers of the core."""


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """Scores answers without a model. `score(task, trace)` gives a Score or an awaitable of one. It is called only for
    attempts that did not fail, at tasks that have what it needs; `Run.score` checks both."""

    name: str
    score: Callable[[Task, Trace], Score | Awaitable[Score]]
    needs_target: bool = False
    pure: bool = True  # whether an answer always gets the same score, which therefore is not journaled
    agent: str | None = None  # the kind of agent whose attempts alone it can score

    async def __call__(self, task: Task, trace: Trace, run: object = None) -> Score:
        """The score. Raises TaskFileError for a task whose target or `meta` the scorer cannot use."""
        score = self.score(task, trace)
        return await score if inspect.isawaitable(score) else score


SCORERS: Group[Any] = Group(
    "practicum.scorers",
    "scorer",
    called,
    dict.fromkeys(BUILT_IN),
    unknown="scorer.unknown",
    advice="; write module:function for your own",
)
"""Packages register a function as scorer, or an AnswerScorer of their own."""


def function_scorer(name: str, function: Any, origin: str = "") -> AnswerScorer:
    """Scores with a user's `function(task, answer)`, which returns a number in [0, 1], a bool or a Score. An async one
    runs in the event loop. Another one runs in a thread, where it may block or start an event loop, one call at a time.

    A function with a parameter `trace` also gets the whole trace: its steps, and in `trace.data["state"]` the state
    that an agent with tools left. With labels, learning sees the note of a Score. The scorer raises AgentError, naming
    task and scorer, when the function raises or returns no score.

    Raises UsageError, with name and `origin`, when the object cannot be called as `(task, answer[, trace])`.
    """
    if not callable(function):
        kind = type(function).__name__
        raise UsageError(
            "scorer.invalid", f"scorer {name!r}{origin}: a scorer must be a function (task, answer), not {kind}"
        )
    takes_trace = False
    try:
        signature = inspect.signature(function)
        takes_trace = "trace" in signature.parameters
        signature.bind(None, None, **({"trace": None} if takes_trace else {}))
    except TypeError:
        text = f"scorer {name!r}{origin}: the function must take (task, answer), or (task, answer, trace)"
        raise UsageError("scorer.invalid", text) from None
    except ValueError:  # some builtins have no signature; the first call will show
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
    """The scorer with this name: a built-in one, one that a package registers, or `module:function`. Raises UsageError
    for an unknown name, for `choice` without choices, for a function that cannot be imported or called as `(task,
    answer[, trace])`, and for `tests` where generated code cannot be run."""
    if ":" in name:
        return function_scorer(name, import_function(name))
    if name in ("software", *JUDGED):
        raise UsageError(
            "scorer.invalid", f"scorer {name!r} needs a run's models, so it cannot be loaded by its name alone"
        )
    if name in COMPARING:
        if name == "choice" and not (choices and all(map(normalise, choices))):
            raise UsageError(
                "settings.missing",
                "scorer 'choice' needs choices, none of them empty: `choices=a,b,c` or `choices=auto`",
                setting="choices",
            )
        compare = RULES.get(name) or partial(one_choice, choices or ())
        # The time of a search is limited, and how far it gets in that differs.
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
    """What a task's `meta` lacks for the scorer, worded to follow "task X"; None if it lacks nothing."""
    match scorer_name:
        case "tests":
            return tests_fault(meta)
        case "software":
            return software_fault(meta)
        case "coverage" | "commongen":
            return concepts_fault(meta, scorer_name)
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
    """What a scorer returned, as a Score. Rounding errors are put at the bound of [0, 1] (`core.scores`). Raises
    TypeError for what is no score, and ValueError for nan and what is out of bounds by more."""
    if isinstance(result, Score):
        score = result
    elif isinstance(result, SupportsFloat):  # includes numpy's bool and floats
        score = Score(float(result), float(result) >= PASS_MARK)
    else:
        raise TypeError(f"it returned {type(result).__name__}, not a number, a bool or a Score")
    if (value := rounded(score.value)) != score.value:
        score = replace(score, value=value)
    if not 0.0 <= score.value <= 1.0:
        raise ValueError(f"it returned {score.value}, which is not between 0 and 1")
    return score
