"""Table 1 and figures 2 and 4 to 7 of Combee (figure 3 is a drawing). This project's copy of the paper has no figures:
the numbers of the figures are from the paper's text."""

from __future__ import annotations

from practicum.analysis.compare.variants import Variant
from practicum.bench.papers.table import ICL, NONE, PaperTable

COMBEE = Variant("combee", "combee")
DEEPSEEK = "DeepSeek-V3.1"


def naive(size: int) -> Variant:
    """Return ACE with one update for `size` reflections."""
    return Variant(f"naive batch {size}", "naive", {"batch": size})


TABLES = (
    PaperTable(
        name="combee-t1",
        source="Combee, table 1",
        about="learning from many attempts at once in AppWorld",
        setup=f"{DEEPSEEK}, ReAct; AppWorld, 90 tasks to learn from, test-normal",
        data=("appworld",),
        baseline="naive batch 1",
        columns=("playbook tokens", "minutes", "cost", "task goals", "scenario goals", "average"),
        rows=(
            (NONE, "0 - $0 63.7 42.9 53.3"),
            (ICL, ""),
            (naive(1), "1,578 86 $1.62 66.1 50.0 58.1"),
            (naive(5), "4,697 30 $1.68 70.2 57.1 63.7"),
            (naive(10), "2,329 19 $1.50 72.0 58.9 65.4"),
            (naive(20), "954 10 $1.40 67.9 48.2 58.1"),
            (naive(40), "526 5 $1.40 66.7 44.6 55.7"),
            (Variant("combee batch 40", "combee", {"batch": 40}), "6,887 7 $1.67 70.8 60.7 65.8"),
        ),
        measures=("context_tokens", "single_run_s", "usd"),
    ),
    PaperTable(
        name="combee2",
        source="Combee, figure 2",
        about="context overload: naive updates by batch size",
        setup=f"{DEEPSEEK}; Formula (500 samples) and FiNER (1,000)",
        data=("formula", "finer"),
        baseline="naive batch 1",
        columns=("Formula", "entries", "helpful", "FiNER", "entries", "helpful"),
        rows=(
            (naive(1), "87.0 264 174 76.0 246 331"),
            *((naive(n), "") for n in (10, 20, 50)),
            (naive(100), "72.5 21 5 - - -"),
            (naive(125), "- - - 70.6 11 4"),
        ),
        measures=("entries", "helpful", "context_tokens", "learning_calls"),
        note="A batch larger than the training set contains the whole set. To measure how many facts remain after one "
        "update, without attempts, use practicum bench overload.",
    ),
    PaperTable(
        name="combee4",
        source="Combee, figure 4",
        about="quality and delay on top of GEPA",
        setup=f"{DEEPSEEK}; FiNER and Formula",
        data=("finer", "formula"),
        baseline="gepa batch 10",
        rows=(
            (NONE, ""),
            (ICL, ""),
            *((Variant(f"gepa batch {n}", "gepa", {"minibatch": n}), "") for n in (10, 20, 40, 100)),
            (Variant("combee on gepa batch 40", "gepa", {"minibatch": 40, "groups": 6}), ""),
        ),
        measures=("single_run_s", "learning_calls", "context_tokens"),
        note="The text: Combee matches the best fixed batch on FiNER, and nearly matches the best fixed batch on "
        "Formula in less than half of the time; batch 100 is below the base on FiNER.",
    ),
    PaperTable(
        name="combee5",
        source="Combee, figure 5",
        about="quality and delay on top of ACE, compared with top-K retrieval and summaries",
        setup=f"{DEEPSEEK}; FiNER and Formula; top-K and summaries with batch 50",
        data=("finer", "formula"),
        baseline="naive batch 1",
        rows=(
            (NONE, ""),
            (ICL, ""),
            *((naive(n), "") for n in (1, 10, 20, 50, 100)),
            (COMBEE, ""),
            (Variant("top-K batch 50", "top_k", {"batch": 50}), ""),
            (Variant("summarized batch 50", "summarized", {"batch": 50}), ""),
        ),
        measures=("single_run_s", "learning_calls", "entries", "context_tokens"),
        note="The text: Combee has the highest accuracy on both data sets, and is over 2.4 times faster than "
        "methods of similar accuracy. With alpha 0.76 and 0.88 from the paper's times, the sizes 40, 30 and about "
        "50 were chosen.",
        delays=True,
    ),
    PaperTable(
        name="combee6",
        source="Combee, figure 6",
        about="the controller of the batch size compared with fixed sizes",
        setup=f"{DEEPSEEK}; Formula",
        data=("formula",),
        baseline="combee",
        rows=(
            (COMBEE, ""),
            *((Variant(f"batch {n}", "combee", {"batch": n}), "") for n in (10, 20, 40)),
        ),
        measures=("single_run_s", "learning_calls", "entries"),
        note="The text: a size that is needlessly small costs time and hardly changes the quality.",
        delays=True,
    ),
    PaperTable(
        name="combee7",
        source="Combee, figure 7",
        about="augmented shuffling, by the number of groups",
        setup=f"{DEEPSEEK}; Formula, batch 50",
        data=("formula",),
        baseline="shuffled 7 groups",
        rows=(
            *(
                (Variant(f"{name} {n} groups", "combee", {"batch": 50, "exact": True, "copies": p, "groups": n}), "")
                for name, p in (("plain", 1), ("shuffled", 2))
                for n in (2, 5, 7, 10, 25)
            ),
            (Variant("ours", "combee", {"batch": 50}), ""),
            (Variant("ours not accounted", "combee", {"batch": 50, "accounting": False}), ""),
            (Variant("ours blind shuffle", "combee", {"batch": 50, "shuffle": "random"}), ""),
            (Variant("ours joined by model", "combee", {"batch": 50, "join": "model"}), ""),
        ),
        measures=("entries", "context_tokens", "learning_calls"),
        note="The text: without shuffling, quality fluctuates and is lower; about 7 groups (the square root) are best. "
        "The first ten rows have the paper's form.",
    ),
)
