"""ReasoningBank with memory-aware test-time scaling (MaTTS). Our copy has no tables of it: numbers are of its text."""

from __future__ import annotations

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import NONE, PaperTable

BANK = Variant("reasoning_bank", "reasoning_bank")
ONCE = Variant("once", "reasoning_bank", {"scaling": "none"})
PARALLEL = {3: "2x 3x", 5: "2.5x 5x"}


def scaled(scaling: str, k: int) -> Variant:
    """Several attempts at each task, or several passes."""
    return Variant(f"{scaling} {k}", "reasoning_bank", {"scaling": scaling, "k": k})


TABLES = (
    PaperTable(
        name="matts",
        source="MaTTS, k = 1 to 5",
        about="several attempts at a task at once, or one attempt refined again and again",
        theirs="WebArena, 34.2% relative improvement by scaling; ReasoningBank alone +8.3% there",
        data=("yours", "formula", "humaneval"),
        baseline=ONCE.name,
        columns=("improvement", "compute"),
        rows=(
            (NONE, "0 1x"),
            (ONCE, "1x 1x"),
            *((scaled("parallel", k), PARALLEL.get(k, "")) for k in (2, 3, 4, 5)),
            *((scaled("sequential", k), "") for k in (1, 2, 3, 4, 5)),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
        note="Ours is the score of first attempts, best of k that of those which a judge chose. Sequential: k passes "
        "after the first attempt.",
    ),
    PaperTable(
        name="bank",
        source="ReasoningBank",
        about="one part changed",
        theirs="the ablations of Ouyang et al. (2025), without numbers in our copy",
        data=("yours", "formula", "humaneval"),
        baseline=BANK.name,
        rows=(
            (NONE, ""),
            (BANK, ""),
            (Variant("successes alone", "reasoning_bank", {"extract": "successes"}), ""),
            (Variant("no contrast", "reasoning_bank", {"contrast": False}), ""),
            *((Variant(f"{n} memories", "reasoning_bank", {"memories": n}), "") for n in (1, 10)),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
    ),
)
