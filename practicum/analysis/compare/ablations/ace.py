"""ACE without one of its parts, or with another value of it (tables 3, 18, 20 and 21 of the paper)."""

from __future__ import annotations

from practicum.analysis.compare.variants import ComparisonTable, Study, Variant

NONE, ACE = Variant("none", "none"), Variant("ace", "ace")
ONLINE = Variant("online", "ace", {"online": True}, stream=True)

STUDY = Study(
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
