"""Tables of benchmarks by others for `practicum bench paper`: the agent without learning, the whole history in the
prompt (`icl`), and practicum's methods at their defaults. Each table has the numbers of the benchmark's paper for the
methods that are the same there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import NONE, PaperTable
from practicum.retrieval.search import DEFAULT

DEFAULTS: Mapping[str, Any] = {"retrieval": DEFAULT}
"""Settings of these tables: methods retrieve as they do by default, not as in their papers."""

OURS = ("icl", "episodes", "ace", "reasoning_bank", "unified")

COMPARED = ((NONE, ""), *((Variant(name, name), "") for name in OURS))
"""Rows of a benchmark that is not a stream, without numbers of its paper."""

MEASURES = ("calls", "learning_tokens", "tokens_per_test_task")

OUTCOMES: Mapping[str, Any] = {"targets": False}

_STREAMED = {"none": "67.89 50.55 29.60 52.85 48.49", "icl": "69.90 51.97 30.35 55.10 51.38",
             "episodes": "74.63 55.05 35.31 70.56 54.80"}  # fmt: skip

STREAMBENCH = PaperTable(
    name="streambench",
    source="StreamBench, table 2",
    about="a stream of tasks: each prediction is scored before it is learned from",
    setup="means of gpt-3.5-turbo, gemini-1.0-pro and claude-3-haiku; all tasks of each data set",
    data=("ddxplus", "hotpotqa", "text2sql"),
    columns=("Spider", "CoSQL", "BIRD", "DDXPlus", "HotpotQA"),
    rows=tuple(
        (NONE if name == "none" else Variant(name, name, stream=True, options=OUTCOMES), _STREAMED.get(name, ""))
        for name in ("none", *OURS)
    ),
    measures=("calls", "tokens"),
    settings=DEFAULTS,
    note="The paper's rows are Zero-Shot (none), GrowPrompt (icl) and Self-StreamICL (episodes). As there, "
    "learning sees whether an answer is right, and no right answers.",
)

TEST_TIME_LEARNING = PaperTable(
    name="ttl",
    source="MemoryAgentBench, test-time learning",
    about="labels whose meaning only examples show",
    setup="one row of the benchmark, such as BANKING77 with 5,900 examples, and its 100 questions",
    data=("ttl",),
    rows=COMPARED,
    measures=MEASURES,
    settings=DEFAULTS,
)

RULES = PaperTable(
    name="rules",
    source="Nursery (UCI)",
    about="the rules of a committee, learned from its decisions",
    setup="12,960 applications, ranked by a decision model with eight attributes (Olave, Rajkovic, Bohanec 1989)",
    data=("nursery",),
    rows=COMPARED,
    measures=MEASURES,
    settings=DEFAULTS,
)
