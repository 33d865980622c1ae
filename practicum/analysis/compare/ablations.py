"""The ablations of the papers: variants, and the tables in which they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.analysis.compare.variants import ComparisonTable, Study, Variant
from practicum.core.errors import UsageError

NONE, ACE = Variant("none", "none"), Variant("ace", "ace")
ONLINE = Variant("online", "ace", {"online": True}, stream=True)

ACE_STUDY = Study(
    (
        ComparisonTable(
            "ACE with one part changed (ACE, tables 3, 18, 20 and 21)",
            ACE.name,
            (
                NONE,
                ACE,
                Variant("no reflector", "ace", {"reflector": False}),
                Variant("1 round", "ace", {"rounds": 1}),
                Variant("5 rounds", "ace", {"rounds": 5}),
                Variant("critique", "ace", {"refine": "critique"}),
                Variant("5 epochs", "ace", {"epochs": 5}),
                Variant("whole rewrite", "ace", {"curator": "rewrite"}),
                Variant("threshold 0.5", "ace", {"threshold": 0.5}),
                Variant("threshold 0.95", "ace", {"threshold": 0.95}),
                Variant("never merged", "ace", {"dedupe": "never"}),
                Variant("pruned at 10,000", "ace", {"budget": 10_000, "dedupe": "lazy"}),
                Variant("harmful kept", "ace", {"harmful": 0}),
            ),
        ),
        ComparisonTable(
            "ACE online on the test tasks, with and without offline warm-up (ACE, table 3)",
            ONLINE.name,
            (NONE, ACE, ONLINE, Variant("online after ace", "ace", {"online": True}, stream=True, after=ACE.name)),
        ),
    )
)

COMBEE = Variant("combee", "combee")

COMBEE_STUDY = Study(
    (
        ComparisonTable(
            "A fixed batch size against the controller's (Combee, figures 4, 5 and 7)",
            COMBEE.name,
            (COMBEE, *(Variant(f"batch {size}", "combee", {"batch": size}) for size in (10, 20, 40))),
        ),
        ComparisonTable(
            "Combee with one part changed (Combee, figure 7)",
            COMBEE.name,
            (
                COMBEE,
                Variant("exact", "combee", {"exact": True}),
                Variant("1 copy", "combee", {"copies": 1}),
                Variant("blind shuffle", "combee", {"shuffle": "random"}),
                Variant("joined by model", "combee", {"join": "model"}),
                Variant("not accounted", "combee", {"accounting": False}),
            ),
        ),
        ComparisonTable(
            "Other ways to learn from many at once (Combee, section 2.2)",
            COMBEE.name,
            (
                COMBEE,
                Variant("one at a time", "ace", {"batch": 1}),
                Variant("naive", "naive"),
                Variant("top_k", "top_k"),
                Variant("summarized", "summarized"),
            ),
        ),
    )
)

# The base is that of RCL, section 4.1: ACE with one reflection, without de-duplication and merging, on one failure per
# step. All variants size their steps by the failure rate. With these settings and all primitives, ACE is RCL, prompt by
# prompt, in both profiles.
BASE: Mapping[str, Any] = {
    "rounds": 0, "dedupe": "never", "learn_from": "failures", "lessons": "all", "curator": "edits", "merge": False,
    "uncovered": "drop", "rules_shown": True, "batch": 1, "rollouts": "auto",
}  # fmt: skip

PRIMITIVES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "replay": ({"replay": 0.5}, {"replay": 0.0}),
    "state": ({"state": True}, {"state": False}),
    "twin": ({"twin": True}, {"twin": False}),
    "groups": ({"group": 3}, {"group": 1}),
    "batching": ({"batch": 3}, {"batch": 1}),
    "heads": ({"heads": True}, {"heads": False}),
}
"""For each primitive of RCL the settings that switch it on in ACE, and off in RCL."""

ACE_BASE, RCL = Variant("ace base", "ace", BASE), Variant("rcl", "rcl")
ADDED = tuple(Variant(f"ace + {name}", "ace", {**BASE, **on}) for name, (on, _) in PRIMITIVES.items())
LEFT_OUT = tuple(Variant(f"rcl - {name}", "rcl", off) for name, (_, off) in PRIMITIVES.items())

RCL_STUDY = Study(
    (
        ComparisonTable("One primitive added to ACE (RCL, table 3)", ACE_BASE.name, (NONE, ACE_BASE, *ADDED, RCL)),
        ComparisonTable("One primitive left out of RCL (RCL, table 4)", RCL.name, (RCL, *LEFT_OUT)),
    )
)

BANK = Variant("reasoning_bank", "reasoning_bank")

BANK_STUDY = Study(
    (
        ComparisonTable(
            "ReasoningBank with one part changed (Ouyang et al., 2025)",
            BANK.name,
            (
                NONE,
                BANK,
                Variant("successes alone", "reasoning_bank", {"extract": "successes"}),
                Variant("no contrast", "reasoning_bank", {"contrast": False}),
                Variant("1 memory", "reasoning_bank", {"memories": 1}),
                Variant("10 memories", "reasoning_bank", {"memories": 10}),
                Variant("1 attempt", "reasoning_bank", {"scaling": "none"}),
                Variant("5 attempts", "reasoning_bank", {"k": 5}),
                Variant("in sequence", "reasoning_bank", {"scaling": "sequential"}),
            ),
        ),
    )
)

ABLATIONS: Mapping[str, Study] = {
    "ace": ACE_STUDY, "combee": COMBEE_STUDY, "rcl": RCL_STUDY, "reasoning_bank": BANK_STUDY,
}  # fmt: skip


def of_ablation(name: str) -> Study:
    """The ablation tables of a paper. Raises UsageError for another name."""
    if name not in ABLATIONS:
        raise UsageError(f"there is no ablation of {name!r}: there are {', '.join(ABLATIONS)}")
    return ABLATIONS[name]
