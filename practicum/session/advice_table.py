"""What `practicum bench advise` knows: the method for each kind of task and model, and the calls that methods make.

To correct an advice, edit a row of `ADVICE`. Of the rows for a kind of task and model, the first whose `when` holds is
given. `measured` is the place of the measurement that the reason rests on; a row without one is our judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from practicum.core.types import Profile

TaskKind = Literal["choices", "answers", "text", "tools"]
"""choices: few distinct targets; answers: short targets, many distinct ones; text: no targets that learning may see, or
long ones, or a judge; tools: an agent with tools."""

ModelKind = Literal["tiny", "small", "capable"]
"""tiny: the 135M model `local`; small: another model with the profile small; capable: the profile full."""

When = Literal["few", "similar", "any"]
"""few: fewer than `FEW` tasks; similar: the nearest tasks have the same target (see `SIMILAR`); any: otherwise."""

FEW = 20
"""Tasks below which nearest tasks say little, and rules rest on little."""

SIMILAR = 0.75
"""The tasks are similar if their nearest tasks decide this share of what the most frequent target leaves open."""


@dataclass(frozen=True, slots=True)
class Row:
    """An advice: a method, its settings where they are not the default, and the reason."""

    tasks: TaskKind
    model: ModelKind
    when: When
    method: str
    settings: Mapping[str, Any]
    reason: str
    measured: str = ""


DEMO = "docs/results.md#the-demo-episodes-with-a-135m-model"
BEDS = "docs/results.md#beds-for-small-models"
RULES = "docs/results.md#rules-past-similarity-with-the-15b-model"
WORKBENCH = "docs/benchmarks.md#what-the-15b-model-gets"

TINY: Mapping[str, Any] = {"k": 3, "batch": 8}
SMALL: Mapping[str, Any] = {"batch": 4}
BATCH: Mapping[str, Any] = {"batch": 8}

ADVICE = (
    Row("choices", "tiny", "any", "episodes", TINY,
        "a 135M model cannot follow a rule, but it can continue a conversation: with three solved tasks as earlier "
        "turns the demo goes from 12.5% to 96.9%", DEMO),
    Row("choices", "small", "few", "episodes", SMALL,
        "few tasks teach few rules, and a solved task helps from the first on"),
    Row("choices", "small", "similar", "episodes", SMALL,
        "similar tasks have the same answer, and the nearest solved ones are shown: bank messages went from 10.4% to "
        "87.5% without a call to learn", BEDS),
    Row("choices", "small", "any", "ace", {},
        "similar tasks often have other answers (thresholds, exceptions), so rules must reach past similarity: on 48 "
        "requests under access rules by others a 1.5B model had 67% to 73% with ace, 58% with unified or episodes, and "
        "56% to 65% without learning (one run each)", RULES),
    Row("choices", "capable", "few", "episodes", BATCH,
        "few tasks teach few rules, and a solved task helps from the first on"),
    Row("choices", "capable", "similar", "episodes", BATCH,
        "similar tasks have the same answer, so that solved tasks suffice, without a call to learn"),
    Row("choices", "capable", "any", "unified", {},
        "similar tasks often have other answers, and a capable model writes rules that reach past similarity"),
    Row("answers", "tiny", "any", "episodes", TINY,
        "a 135M model cannot follow a rule; solved tasks show it at least the form of an answer"),
    Row("answers", "small", "any", "episodes", SMALL,
        "a small model's rules rarely help with open answers (ace learned nothing on Formula and FiNER), and solved "
        "tasks show form and method"),
    Row("answers", "capable", "few", "episodes", BATCH,
        "few tasks teach few rules, and a solved task helps from the first on"),
    Row("answers", "capable", "similar", "episodes", BATCH,
        "similar tasks have the same answer, so that solved tasks suffice"),
    Row("answers", "capable", "any", "ace", {},
        "answers differ from task to task, so what carries over is how to get there, which ace keeps as a playbook"),
    Row("text", "tiny", "any", "none", {},
        "nothing pays: a 135M model neither follows what was learned nor judges a text; name a larger model"),
    Row("text", "small", "any", "episodes", SMALL,
        "what went well is shown with similar tasks; a small model's advice on free text is too vague"),
    Row("text", "capable", "any", "reasoning_bank", {},
        "strategies are drawn from successes and failures alike, which the scorer or a judge tells apart"),
    Row("tools", "tiny", "any", "none", {},
        "nothing pays: a 135M model does not call tools reliably; name a larger model"),
    Row("tools", "small", "any", "unified", {},
        "solved tasks are shown with their calls, and a task that stays unsolved is tried once more, told what was "
        "wrong: on single calls of WorkBench a 1.5B model went from 0% to 58%", WORKBENCH),
    Row("tools", "capable", "any", "reasoning_bank", {},
        "failures teach too, and memories say how to go about a task rather than what its answer is"),
)  # fmt: skip
"""The advice."""

CHEAPER = ("episodes", BATCH)
"""What is advised, with its settings, where the method above exceeds the budget."""

CALLS: Mapping[tuple[str, Profile], tuple[float, float]] = {
    ("none", "full"): (0, 0), ("none", "small"): (0, 0),
    ("episodes", "full"): (0, 0), ("episodes", "small"): (0, 0),
    ("ace", "full"): (2.7, 3.2), ("ace", "small"): (1.8, 0.8),
    ("unified", "full"): (4, 6), ("unified", "small"): (2.5, 0.7),
    ("reasoning_bank", "full"): (3, 2), ("reasoning_bank", "small"): (3, 2),
}  # fmt: skip
"""For each method and profile: attempts, and other calls (reflection, curation, proposals, extraction), at a task that
is learned from. They were counted at the defaults with a simulated model of which half of the attempts fail; a test
counts them again."""
