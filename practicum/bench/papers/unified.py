"""The unified learner of ReasoningBank and ACE. Our copy of the paper is its article and specification, without figures
of the learner."""

from __future__ import annotations

from typing import Any

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import NONE, PaperTable


def specified(name: str, **changed: Any) -> Variant:
    """The specification's learner, with one part or several changed."""
    return Variant(name, "unified", {"preset": "specification", **changed})


SPECIFIED = specified("specification")

TABLES = (
    PaperTable(
        name="unified",
        source="ReasoningBank + ACE, the unified specification",
        about="the whole loop, the same without one of its parts, and this project's learner",
        theirs="the unified specification, without numbers in our copy",
        data=("yours", "formula", "humaneval"),
        baseline=SPECIFIED.name,
        rows=(
            (NONE, ""),
            (Variant("ace", "ace"), ""),
            (Variant("reasoning_bank", "reasoning_bank"), ""),
            (SPECIFIED, ""),
            (specified("no memory", memory=False), ""),
            (specified("no scaling", scaling="none"), ""),
            # Without proposals the loop is ReasoningBank's, with memories of the chosen attempt.
            (Variant("no proposals", "reasoning_bank", {"extract": "chosen"}), ""),
            (specified("stand-alone ACE", memory=False, scaling="none"), ""),
            (Variant("ours", "unified"), ""),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
        note="Rows from specification to stand-alone ACE have preset=specification, with the named part left out; no "
        "proposals is then reasoning_bank with extract=chosen. Ours is unified at its defaults, but by cosine as all "
        "rows.",
    ),
)
