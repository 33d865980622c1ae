"""Tables 1 to 4 and figures 2 to 4 of MAEL."""

from __future__ import annotations

from functools import partial
from typing import Any

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import PaperTable

NOTHING = (1.0, 1.0)
"""Empty part of the training tasks, for variants that do not learn."""

NO_EXPERIENCE = Variant("no experience", "mael", {"experience": "none"}, part=NOTHING)
ONE_AGENT = Variant("one agent", "mael", {"experience": "none", "depth": 0}, part=NOTHING)
CHAT = Variant("group chat", "group_chat")
TASK = Variant("task-wise", "mael", {"experience": "task"})


def reading(name: str, **settings: Any) -> Variant:
    """Return a variant that reads the pools of the task-wise variant and does not learn. The setting for retrieval does
    not change the pools."""
    return Variant(name, "mael", settings, after=TASK.name, part=NOTHING)


STEP = reading("step-wise", experience="step")
GPT = "GPT-3.5 at temperature 0.2, four agents; 30 tasks to learn from"
QUALITY = ("completeness", "executability", "consistency")
SIZE = ("complexity", "lines", "tokens", "functions", "files")
COST = ("tokens_per_test_task", "output_tokens_per_test_task", "agent_steps")
"""Metrics of costs. Figure 2 shows output tokens, the second of these metrics, and the rounds of critique."""


HARD = {"rounds": 3, "depth": 2}
"""Settings of the paper on hard data sets (section 3.1)."""


def pool(name: str, after: str, first: int) -> Variant:
    """Return the task-wise variant that continues from the variant `after` and learns from a third of the tasks:
    `first` is 0, 1 or 2."""
    return Variant(name, "mael", TASK.settings, after=after, part=(first / 3, (first + 1) / 3))


table = partial(
    PaperTable, baseline=NO_EXPERIENCE.name, measures=COST, scored=("rounds",),
    on_data={"commongen": HARD, "srdd": HARD},
)  # fmt: skip
"""Makes a table with the fields that most of the tables share."""

TABLES: tuple[PaperTable, ...] = (
    table(
        name="mael1",
        source="MAEL, table 1 and figure 2",
        about="a network of agents, with and without experience",
        setup=f"{GPT}; one agent: GPT-4o-mini",
        data=("mmlu", "gsm8k", "humaneval", "commongen", "srdd"),
        columns=("MMLU", "GSM", "HumanEval", "CommonGen", "SRDD", "average"),
        rows=(
            (ONE_AGENT, "83.33 23.33 90.00 37.05 70.19 60.78"),
            (CHAT, "83.33 23.33 80.00 33.03 56.21 55.18"),
            (Variant("evolving team", "evomac"), "80.00 70.00 46.67 45.48 8.26 50.08"),
            (NO_EXPERIENCE, "80.00 70.00 76.67 34.50 67.17 65.67"),
            (TASK, "80.00 60.00 90.00 46.54 71.93 69.69"),
            (STEP, "76.67 50.00 86.67 42.81 76.43 66.52"),
        ),
        note="The group chat replaces AutoGen, the evolving team replaces EvoMac.",
    ),
    PaperTable(
        name="mael2",
        source="MAEL, tables 2 and 3",
        about="the quality and the size of software",
        setup=f"{GPT}; SRDD",
        data=("srdd",),
        baseline=NO_EXPERIENCE.name,
        columns=(*QUALITY, "quality", *SIZE),
        rows=(
            (CHAT, "85.0 85.0 80.0 56.0 11.20 55.70 503.40 5.10 1.00"),
            (NO_EXPERIENCE, "90.0 95.0 78.9 67.2 28.70 114.03 781.95 13.15 4.15"),
            (TASK, "100.0 90.0 79.4 71.6 22.90 99.75 721.75 11.15 3.80"),
            (STEP, "95.0 95.0 80.2 76.4 27.55 119.30 805.65 14.05 4.20"),
        ),
        settings=HARD,
        scored=(*QUALITY, *SIZE),
    ),
    table(
        name="mael4",
        source="MAEL, table 4",
        about="the similarity and the reward of the shown experience",
        setup=f"{GPT}; HumanEval and CommonGen",
        data=("humaneval", "commongen"),
        columns=("HumanEval", "CommonGen"),
        rows=(
            (NO_EXPERIENCE, "73.3 34.5"),
            (reading("low similarity and reward", experience="task", similarity="low", reward="low"), "80.0 35.4"),
            (reading("low similarity", experience="task", similarity="low"), "86.7 36.2"),
            (reading("low reward", experience="task", reward="low"), "86.7 36.4"),
            (TASK, "90.0 46.5"),
        ),
        note="All rows retrieve task-wise, because the best scores are the task-wise scores of table 1.",
    ),
    table(
        name="mael-pools",
        source="MAEL, figure 3",
        about="the size of the pools: experience from one third, two thirds and all of the tasks",
        setup=f"{GPT}; pools of 0, 10, 20 and 30 tasks",
        data=("humaneval", "commongen"),
        columns=("HumanEval", "CommonGen"),
        rows=(
            (NO_EXPERIENCE, "76.7 34.5"),
            (pool("a third", "", 0), "80.0 42.7"),
            (pool("two thirds", "a third", 1), "76.7 43.4"),
            (pool("all", "two thirds", 2), "90.0 46.5"),
        ),
        measures=("entries", *COST),
    ),
    table(
        name="mael-rounds",
        source="MAEL, figure 4",
        about="quality by the maximum rounds of critique, with two levels of decomposition",
        setup=f"{GPT}; five cases of SRDD",
        data=("srdd", "humaneval", "commongen"),
        rows=(
            (NO_EXPERIENCE, ""), (TASK, ""), (STEP, ""),
            *((Variant(f"no experience {n} rounds", "mael", {"experience": "none", "rounds": n}, part=NOTHING), "")
              for n in (0, 1, 2)),
            *((reading(f"{level}-wise {n} rounds", experience=level, rounds=n), "")
              for level in ("task", "step") for n in (0, 1, 2)),
        ),
        settings=HARD,
        note="The scores of single tasks are in the folders of the runs. The first three rows have three rounds, as in "
        "the paper on SRDD.",
    ),
)  # fmt: skip
