"""ReasoningBank with memory-aware test-time scaling (MaTTS). This project's copy of the paper has no tables: the
numbers are from the paper's text."""

from __future__ import annotations

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import ICL, NONE, PaperTable

BANK = Variant("reasoning_bank", "reasoning_bank")
ONCE = Variant("once", "reasoning_bank", {"scaling": "parallel", "k": 1})
"""One attempt at the temperature of the other rows. `scaling=none` would have another temperature."""
PARALLEL = {3: "2x 3x", 5: "2.5x 5x"}


def scaled(scaling: str, k: int) -> Variant:
    """Return a variant with k attempts at each task (parallel), or with k passes after the first attempt
    (sequential)."""
    until = {"until": "k"} if scaling == "sequential" else {}
    return Variant(f"{scaling} {k}", "reasoning_bank", {"scaling": scaling, "k": k, **until})


TABLES = (
    PaperTable(
        name="matts",
        source="MaTTS, k = 1 to 5",
        about="several attempts at a task in parallel, or one attempt refined repeatedly",
        setup="WebArena, 34.2% relative improvement by scaling; ReasoningBank without scaling +8.3% there",
        data=("yours", "formula", "humaneval"),
        baseline=ONCE.name,
        columns=("improvement", "compute"),
        rows=(
            (NONE, "0 1x"),
            (ICL, ""),
            (ONCE, "1x 1x"),
            *((scaled("parallel", k), PARALLEL.get(k, "")) for k in (2, 3, 4, 5)),
            *((scaled("sequential", k), "") for k in (1, 2, 3, 4, 5)),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
        note="The column 'yours' has the score of the first attempts, 'best of k' the score of the chosen attempts. "
        "Parallel: a judge chooses. Sequential: exactly k passes after the first attempt (until=k), and the last "
        "answer is chosen. All attempts have the same temperature, also with k = 1.",
    ),
    PaperTable(
        name="bank",
        source="ReasoningBank",
        about="ablations: one part changed",
        setup="the ablations of Ouyang et al. (2025), without numbers in this project's copy",
        data=("yours", "formula", "humaneval"),
        baseline=BANK.name,
        rows=(
            (NONE, ""),
            (ICL, ""),
            (BANK, ""),
            (Variant("successes alone", "reasoning_bank", {"extract": "successes"}), ""),
            (Variant("no contrast", "reasoning_bank", {"contrast": False}), ""),
            *((Variant(f"{n} memories", "reasoning_bank", {"memories": n}), "") for n in (1, 10)),
        ),
        measures=("best_of_k", "calls", "tokens", "entries"),
    ),
)
