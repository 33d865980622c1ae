"""Table of `practicum bench advise`: a method for each kind of task and model, and the number of calls of each method.

To change the advice, edit a row of `ADVICE`. Of the rows with the kind of the tasks and the kind of the model, the
first row whose `when` is true is used. `measured` links to the measurement that supports the reason; a row without a
link is a judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from practicum.core.types import Profile

TaskKind = Literal["choices", "answers", "text", "tools"]
"""Kind of the tasks.

choices: few distinct targets; answers: many distinct, short targets; text: targets that are long, missing or hidden
from learning, or a judge as scorer; tools: an agent with tools.
"""

ModelKind = Literal["tiny", "small", "capable"]
"""Kind of the model. tiny: the 135M model `local`; small: any other model with the profile small; capable: any model
with the profile full."""

When = Literal["few", "similar", "any"]
"""Condition of a row. few: fewer than `FEW` training tasks; similar: a task usually has the same target as the tasks
nearest to it (see `SIMILAR`); any: always."""

FEW = 20
"""With fewer training tasks than this number, guesses from the nearest tasks and learned rules are unreliable."""

SIMILAR = 0.75
"""Tasks count as similar if guesses from the nearest tasks avoid at least this share of the errors that are made by
always guessing the most frequent target."""


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the table: the kinds and the condition (`when`) that the row applies to, and the advice. The advice is a
    method, the settings that differ from the method's defaults, and the reason."""

    tasks: TaskKind
    model: ModelKind
    when: When
    method: str
    settings: Mapping[str, Any]
    reason: str
    measured: str = ""


DEMO = "docs/results.md#the-demo"
BEDS = "docs/results.md#beds"
WORKBENCH = "docs/results.md#tools"

TINY: Mapping[str, Any] = {"k": 3, "batch": 8}
SMALL: Mapping[str, Any] = {"batch": 4}
BATCH: Mapping[str, Any] = {"batch": 8}

ADVICE = (
    Row("choices", "tiny", "any", "episodes", TINY,
        "a 135M model cannot follow a rule, but it can continue a conversation: with three solved tasks as earlier "
        "turns, the score of the demo rises from 12.5% to 96.9%", DEMO),
    Row("choices", "small", "similar", "episodes", SMALL,
        "similar tasks have the same answer, and the nearest solved tasks are shown: the score on bank messages rose "
        "from 16.7% to 97.9%, without a model call for learning", BEDS),
    Row("choices", "small", "any", "episodes", SMALL,
        "a small model writes few rules that help, and solved tasks did no harm where similar tasks have different "
        "answers: a 1.5B model gained 23 to 81 points on five data sets, and 4 points on a set that "
        "it knew already", BEDS),
    Row("choices", "capable", "few", "episodes", BATCH,
        "few tasks teach few rules, while solved tasks help from the first one on"),
    Row("choices", "capable", "similar", "episodes", BATCH,
        "similar tasks have the same answer, so solved tasks are enough, and learning makes no model calls"),
    Row("choices", "capable", "any", "unified", {},
        "similar tasks often have different answers, and a capable model writes rules that hold where similar tasks "
        "mislead"),
    Row("answers", "tiny", "any", "episodes", TINY,
        "a 135M model cannot follow a rule, but solved tasks show the model the form of an answer"),
    Row("answers", "small", "any", "episodes", SMALL,
        "a small model's rules rarely help with open answers (ace learned nothing on Formula and FiNER), while solved "
        "tasks show the form and the method"),
    Row("answers", "capable", "few", "episodes", BATCH,
        "few tasks teach few rules, while solved tasks help from the first one on"),
    Row("answers", "capable", "similar", "episodes", BATCH,
        "similar tasks have the same answer, so solved tasks are enough"),
    Row("answers", "capable", "any", "ace", {},
        "answers differ from task to task, but strategies transfer to other tasks, and ace stores strategies in a "
        "playbook"),
    Row("text", "tiny", "any", "none", {},
        "no method helps: a 135M model neither follows lessons nor judges a text; name a larger model"),
    Row("text", "small", "any", "episodes", SMALL,
        "successful answers are shown to the model with similar new tasks; a small model's advice on free text is too "
        "vague"),
    Row("text", "capable", "any", "reasoning_bank", {},
        "strategies are extracted from attempts that the scorer or a judge labels as successes or failures"),
    Row("tools", "tiny", "any", "none", {},
        "no method helps: a 135M model does not call tools reliably; name a larger model"),
    Row("tools", "small", "any", "unified", {},
        "solved tasks are shown with their calls, and an unsolved task is attempted once more with feedback on the "
        "error: on single calls of WorkBench the score of a 1.5B model rose from 0% to 58%", WORKBENCH),
    Row("tools", "capable", "any", "reasoning_bank", {},
        "the method learns from failures too, and a memory describes an approach to tasks rather than one answer"),
)  # fmt: skip
"""Advice by kind of task and model; the first row that applies is used."""

CHEAPER = ("episodes", BATCH)
"""Method and settings to use if the advised method exceeds the budget."""

CALLS: Mapping[tuple[str, Profile], tuple[float, float]] = {
    ("none", "full"): (0, 0), ("none", "small"): (0, 0),
    ("episodes", "full"): (0, 0), ("episodes", "small"): (0, 0),
    ("ace", "full"): (2.7, 3.2), ("ace", "small"): (1.8, 0.8),
    ("unified", "full"): (4, 6), ("unified", "small"): (2.5, 0.7),
    ("reasoning_bank", "full"): (3, 2), ("reasoning_bank", "small"): (3, 2),
}  # fmt: skip
"""Number of attempts, and number of other calls (reflection, curation, proposals, extraction), per training task, by
method and profile. Both numbers were counted with default settings and a simulated model that fails half of the
attempts. A test repeats the count."""
