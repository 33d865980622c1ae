"""Tables 3 and 4 of RCL. This project's copy of the paper is a scan, so the scores were checked against the differences
that are printed next to the scores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import ICL, NONE, PaperTable

# The base of RCL, section 4.1: ACE with one reflection, without de-duplication and merging, on one failure per step.
# All variants size their steps by the failure rate. With these settings and all primitives, the prompts of ACE are
# equal to the prompts of RCL, in both profiles.
BASE: Mapping[str, Any] = {
    "rounds": 0, "dedupe": "never", "learn_from": "failures", "lessons": "all", "curator": "edits", "merge": False,
    "uncovered": "drop", "rules_shown": True, "batch": 1, "attempted": "auto",
}  # fmt: skip

PRIMITIVES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "replay": ({"replay": 0.5}, {"replay": 0.0}),
    "state": ({"state": True}, {"state": False}),
    "twin": ({"twin": True}, {"twin": False}),
    "groups": ({"group": 3}, {"group": 1}),
    "batching": ({"batch": 3}, {"batch": 1}),
    "heads": ({"heads": True}, {"heads": False}),
}
"""Primitive of RCL → the settings that enable it in ACE, and the settings that disable it in RCL."""

ADDED: Mapping[str, str] = {
    "replay": "84.5 82.7 73.1 81.8 40.0 47.3 80.4 65.4",
    "state": "88.1 84.5 73.9 79.4 36.0 56.4 82.8 69.9",
    "twin": "83.9 84.5 71.5 79.4 37.3 46.3 77.2 63.5",
    "groups": "86.3 86.8 72.4 81.4 38.7 50.7 81.5 77.8",
    "batching": "88.7 87.2 71.2 83.4 31.3 48.3 82.9 63.6",
    "heads": "86.3 89.2 74.6 80.6 38.0 54.7 82.5 71.2",
}
LEFT_OUT: Mapping[str, str] = {
    "replay": "85.7 88.5 71.5 74.9 38.7 33.3 83.1 59.4",
    "state": "89.9 85.5 71.2 82.5 34.0 46.7 74.6 64.1",
    "twin": "89.9 85.0 73.4 82.1 32.7 41.3 74.3 75.1",
    "groups": "79.8 86.8 71.9 79.2 36.7 45.3 78.5 58.5",
    "batching": "83.9 86.3 70.4 79.4 40.0 36.7 81.2 64.6",
    "heads": "87.5 89.2 70.0 82.2 33.3 49.3 80.9 82.4",
}

ACE_BASE, RCL = Variant("ace base", "ace", BASE), Variant("rcl", "rcl")
WHOLE = "89.3 89.1 71.9 83.7 37.3 51.3 82.4 69.8"
COLUMNS = (
    "Normal, Lite", "Normal, Nano", "Challenge, Lite", "Challenge, Nano", "BrowseComp+, Lite", "BrowseComp+, Nano",
    "RewardBench2, Lite", "RewardBench2, Nano",
)  # fmt: skip
table = partial(
    PaperTable,
    setup="Gemini 3.1 Flash-Lite and GPT-5.4 Nano, Claude Opus 4.6 as reflector and mutator; 30 steps, one run",
    data=("rewardbench2", "appworld"),
    columns=COLUMNS,
    settings={"steps": 30},
    measures=("learning_calls", "tokens", "entries"),
    note="The paper starts from the seed playbooks in its appendix D (pass one with --seed-playbook). BrowseComp+ "
    "needs its corpus.",
)
"""Makes a table with the fields that tables 3 and 4 share."""

TABLES: tuple[PaperTable, ...] = (
    table(
        name="rcl3",
        source="RCL, table 3",
        about="one primitive added to ACE",
        baseline=ACE_BASE.name,
        rows=(
            (NONE, "78.0 81.5 64.3 75.8 28.9 40.7 75.9 67.2"),
            (ICL, ""),
            (Variant("gepa", "gepa"), "82.7 76.2 62.6 66.7 35.3 48.7 79.2 76.5"),
            (ACE_BASE, "83.3 86.9 69.1 80.7 37.3 50.0 79.2 62.7"),
            *((Variant(f"ace + {name}", "ace", {**BASE, **PRIMITIVES[name][0]}), row) for name, row in ADDED.items()),
            (RCL, WHOLE),
        ),
    ),
    table(
        name="rcl4",
        source="RCL, table 4",
        about="one primitive removed from RCL",
        baseline=RCL.name,
        rows=(
            (RCL, WHOLE),
            *((Variant(f"rcl - {name}", "rcl", PRIMITIVES[name][1]), row) for name, row in LEFT_OUT.items()),
        ),
    ),
)
