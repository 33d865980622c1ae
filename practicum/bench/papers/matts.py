"""ReasoningBank with memory-aware test-time scaling (MaTTS). Our copy has no tables of it: numbers are of its text."""

from __future__ import annotations

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import NONE, PaperTable

BANK = Variant("reasoning_bank", "reasoning_bank")
ONCE = Variant("once", "reasoning_bank", {"scaling": "parallel", "k": 1})
"""One attempt at the temperature of the others, which `scaling=none` would not have."""
PARALLEL = {3: "2x 3x", 5: "2.5x 5x"}


def scaled(scaling: str, k: int) -> Variant:
    """Several attempts at each task, or exactly k passes after the first attempt."""
    until = {"until": "k"} if scaling == "sequential" else {}
    return Variant(f"{scaling} {k}", "reasoning_bank", {"scaling": scaling, "k": k, **until})


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
        note="Ours is the score of first attempts, best of k that of the chosen ones. Parallel: a judge chooses. "
        "Sequential: exactly k passes after the first attempt, whatever they answer (until=k), and the last answer is "
        "chosen. All attempts have the same temperature, that of k = 1 too.",
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
