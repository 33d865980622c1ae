"""Combee's parts: a fixed batch against the controller's, the paper's exact way, copies, accounting, levels, and the
baselines of its section 2.2 (its figures 4 to 7)."""

from __future__ import annotations

from practicum.analysis.compare.variants import Study, Table, Variant

COMBEE = Variant("combee", "combee")
SIZES = (10, 20, 40)

STUDY = Study(
    (
        Table(
            "A fixed batch against the controller's (Combee, figures 4, 5 and 7)",
            COMBEE.name,
            (COMBEE, *(Variant(f"batch {size}", "combee", {"batch": size}) for size in SIZES)),
        ),
        Table(
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
        Table(
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
