"""RCL's primitives: each added to ACE alone (table 3 of the paper), and each left out of RCL (table 4).

The base is the paper's: ACE with one reflection, without de-duplication, on one failure per step (section 4.1). All
variants size their steps by the failure rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.analysis.compare.variants import ComparisonTable, Study, Variant

BASE: Mapping[str, Any] = {
    "rounds": 0, "dedupe": "never", "learn_from": "failures", "uncovered": "drop", "rollouts": "auto",
}  # fmt: skip

PRIMITIVES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "replay": ({"replay": 0.5}, {"replay": 0.0}),
    "state": ({"state": True}, {"state": False}),
    "twin": ({"twin": True}, {"twin": False}),
    "groups": ({"group": 3}, {"group": 1}),
    "batching": ({"batch": 3}, {"batch": 1}),
    "heads": ({"heads": True}, {"heads": False}),
}
"""For each primitive the settings that switch it on in ACE, and off in RCL."""

NONE, ACE, ALL = Variant("none", "none"), Variant("ace base", "ace", BASE), Variant("rcl", "rcl")
ADDED = tuple(Variant(f"ace + {name}", "ace", {**BASE, **on}) for name, (on, _) in PRIMITIVES.items())
LEFT_OUT = tuple(Variant(f"rcl - {name}", "rcl", off) for name, (_, off) in PRIMITIVES.items())

STUDY = Study(
    (
        ComparisonTable("One primitive added to ACE (RCL, table 3)", ACE.name, (NONE, ACE, *ADDED, ALL)),
        ComparisonTable("One primitive left out of RCL (RCL, table 4)", ALL.name, (ALL, *LEFT_OUT)),
    )
)
