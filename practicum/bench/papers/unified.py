"""The unified learner of ReasoningBank and ACE. This project's copy of the paper has the article and the specification,
but no results of the learner."""

from __future__ import annotations

from typing import Any

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import ICL, NONE, PaperTable


def specified(name: str, **changed: Any) -> Variant:
    """Return the learner of the specification, with some settings changed."""
    return Variant(name, "unified", {"preset": "specification", **changed})


SPECIFIED = specified("specification")

TABLES = (
    PaperTable(
        name="unified",
        source="ReasoningBank + ACE, the unified specification",
        about="the whole loop, the loop without one of its parts, and this project's learner",
        setup="the unified specification, without numbers in this project's copy",
        data=("yours", "formula", "humaneval"),
        baseline=SPECIFIED.name,
        rows=(
            (NONE, ""),
            (ICL, ""),
            (Variant("ace", "ace"), ""),
            (Variant("reasoning_bank", "reasoning_bank"), ""),
            (SPECIFIED, ""),
            (specified("no memory", memory=False), ""),
            (specified("no scaling", scaling="none"), ""),
            # Without proposals, the loop is the loop of ReasoningBank, with memories from the chosen attempt.
            (Variant("no proposals", "reasoning_bank", {"extract": "chosen"}), ""),
            (specified("stand-alone ACE", memory=False, scaling="none"), ""),
            (Variant("ours", "unified"), ""),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
        note="Rows from 'specification' to 'stand-alone ACE' have preset=specification, without the named part. The "
        "row 'no proposals' is reasoning_bank with extract=chosen. The row 'ours' is unified with its default "
        "settings, except for retrieval by cosine, as in all rows.",
    ),
)
