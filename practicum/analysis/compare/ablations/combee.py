"""Combee: a fixed batch instead of the controller, its exact form, copies, accounting, levels, and the baselines of its
section 2.2 (figures 4 to 7 of the paper)."""

from __future__ import annotations

from practicum.analysis.compare.variants import ComparisonTable, Study, Variant

COMBEE = Variant("combee", "combee")
SIZES = (10, 20, 40)

STUDY = Study(
    (
        ComparisonTable(
            "A fixed batch size against the controller's (Combee, figures 4, 5 and 7)",
            COMBEE.name,
            (COMBEE, *(Variant(f"batch {size}", "combee", {"batch": size}) for size in SIZES)),
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
