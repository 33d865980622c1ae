"""Tables of ACE. This project's copy of the paper has the numbers of tables 14 to 16 only; the numbers of other tables
are from the paper's text."""

from __future__ import annotations

from functools import partial

from practicum.analysis.compare.variants import Variant
from practicum.bench.harmful import harmful
from practicum.bench.papers.table import ICL, NONE, PaperTable

ACE = Variant("ace", "ace")
UNLABELLED = {"labels": False}
GEPA = Variant("gepa", "gepa")
ONLINE = Variant("ace online", "ace", {"online": True}, stream=True)
SHEET = Variant("dynamic cheatsheet online", "dynamic_cheatsheet", {"online": True}, stream=True)

DEEPSEEK = "DeepSeek-V3.1-671B in all roles"
PAPER = {"batch": 1, "rounds": 5, "epochs": 5}
"""Settings of section 4.2: one sample per step, at most five rounds of reflection, and five epochs."""

on_finer = partial(PaperTable, setup=f"{DEEPSEEK}; FiNER", data=("finer", "formula"), settings=PAPER)
"""Makes a table that the paper measured on FiNER, with the settings of the paper."""


def unlabelled(variant: Variant) -> Variant:
    """Return the variant without access to the right answers."""
    name = f"{variant.name} without labels"
    return Variant(name, variant.method, variant.settings, variant.stream, options=UNLABELLED)


TABLES = (
    PaperTable(
        name="ace1",
        source="ACE, table 1",
        about="agents in AppWorld, offline and online, with and without labels",
        setup=f"{DEEPSEEK}, ReAct; AppWorld, mean of task and scenario goals on both test splits",
        data=("appworld",),
        columns=("average",),
        rows=(
            (NONE, "42.4"),
            (ICL, ""),
            (GEPA, ""),
            (ACE, "59.4"),
            (unlabelled(ACE), "57.2"),
            (unlabelled(SHEET), ""),
            (unlabelled(ONLINE), ""),
        ),
        settings=PAPER,
        measures=("learning_calls", "tokens", "agent_steps", "context_tokens"),
        note="The text: ACE is 12.3% above ICL, 11.9% above GEPA, and online 7.6% above Dynamic Cheatsheet.",
    ),
    PaperTable(
        name="ace2",
        source="ACE, table 2",
        about="financial analysis, offline and online, with and without labels",
        setup=f"{DEEPSEEK}; FiNER and Formula, 1,000 and 500 samples to learn from",
        data=("finer", "formula"),
        columns=("FiNER",),
        rows=(
            (NONE, "70.7"),
            (ICL, ""),
            (Variant("mipro", "mipro"), ""),
            (GEPA, ""),
            (ACE, "78.3"),
            (unlabelled(ACE), ""),
            (SHEET, ""),
            (unlabelled(SHEET), ""),
            (ONLINE, ""),
            (unlabelled(ONLINE), ""),
        ),
        settings=PAPER,
        measures=("learning_calls", "tokens", "context_tokens"),
        note="The text: with labels, ACE offline is on average 10.9% above ICL, MIPROv2 and GEPA, and ACE online is "
        "6.2% above Dynamic Cheatsheet. Without labels, both methods may fall below the base.",
    ),
    PaperTable(
        name="ace3",
        source="ACE, table 3",
        about="ablations: no reflector, one epoch, no warm-up before a stream",
        setup=f"{DEEPSEEK}, ReAct; AppWorld",
        data=("appworld", "formula", "finer"),
        columns=("average",),
        rows=(
            (NONE, "42.4"),
            (ICL, ""),
            (Variant("no reflector", "ace", {"reflector": False, "epochs": 1}), ""),
            (Variant("1 epoch", "ace", {"epochs": 1}), ""),
            (Variant("ace", "ace", {"epochs": 5}), "59.4"),
            (ONLINE, ""),
            (Variant("online after ace", "ace", {"online": True}, stream=True, after="ace"), ""),
        ),
        settings={"batch": 1, "rounds": 5},
        measures=("learning_calls", "tokens", "context_tokens"),
    ),
    PaperTable(
        name="ace4a",
        source="ACE, table 4 (a)",
        about="the cost of offline learning: ACE compared with GEPA",
        setup=f"{DEEPSEEK}; AppWorld; latency of adaptation, and rollouts (attempts)",
        data=("appworld", "formula", "finer"),
        baseline="gepa",
        columns=("latency", "attempts"),
        rows=((GEPA, "100% 100%"), (ACE, "-82.3% -75.1%")),
        settings={"batch": 1, "rounds": 1},
        measures=("learning_calls", "learning_tokens", "single_run_s", "usd"),
        note="Section A.3: one epoch, one round. Of the measures, only the time includes the test.",
    ),
    PaperTable(
        name="ace4b",
        source="ACE, table 4 (b)",
        about="the cost of online learning: ACE compared with Dynamic Cheatsheet",
        setup=f"{DEEPSEEK}; FiNER; latency of adaptation, and cost of tokens in US dollars",
        data=("finer", "formula"),
        baseline=SHEET.name,
        columns=("latency", "cost"),
        rows=((SHEET, "100% 100%"), (ONLINE, "-91.5% -83.6%")),
        settings={"batch": 1, "rounds": 1},
        measures=("learning_calls", "learning_tokens", "single_run_s", "usd"),
    ),
    PaperTable(
        name="ace10",
        source="ACE, table 10",
        about="medical reasoning, offline",
        setup=f"{DEEPSEEK}; DDXPlus, 1,000 examples to learn from",
        data=("ddxplus",),
        columns=("accuracy",),
        rows=((NONE, "75.2"), (ICL, ""), (GEPA, "76.4"), (ACE, "90.2")),
        settings=PAPER,
        measures=("learning_calls", "tokens"),
    ),
    on_finer(
        name="ace17",
        source="ACE, table 17",
        about="a reflector that is harmful at every X-th step",
        columns=("FiNER",),
        rows=(
            (NONE, "70.7"),
            (ICL, ""),
            *((Variant(f"harmful every {n}", "ace", change=partial(harmful, every=n)), "") for n in (1, 2, 5, 10, 20)),
            (ACE, "78.3"),
        ),
        settings=PAPER,
        measures=("entries", "helpful"),
        note="The text: the score degrades gradually, and stays above the base unless every step is harmful.",
    ),
    PaperTable(
        name="ace18",
        source="ACE, table 18",
        about="small edits compared with rewriting the whole playbook",
        setup=f"{DEEPSEEK}; AppWorld, task and scenario goals on test-normal",
        data=("appworld", "formula", "finer"),
        baseline="ace",
        columns=("task goals", "scenario goals"),
        rows=(
            (NONE, ""),
            (ICL, ""),
            (ACE, ""),
            (Variant("whole rewrite", "ace", {"curator": "rewrite"}), "-11.7 -27.8"),
        ),
        settings=PAPER,
        measures=("context_tokens", "entries", "tokens"),
    ),
    PaperTable(
        name="ace19",
        source="ACE, table 19",
        about="rounds of reflection on one attempt",
        setup=f"{DEEPSEEK}; AppWorld test-normal",
        data=("appworld", "formula", "finer"),
        baseline="5 rounds",
        rows=(
            (NONE, ""),
            (ICL, ""),
            *((Variant(f"{n} rounds", "ace", {"rounds": n}), "") for n in (1, 3, 5, 10)),
            (Variant("5 rounds of critique", "ace", {"rounds": 5, "refine": "critique"}), ""),
        ),
        settings={"batch": 1, "epochs": 5},
        measures=("learning_calls", "tokens", "entries"),
        note="The text: 1 round extracts too little, 5 is a good balance, 10 can harm. A round is a new attempt with "
        "the reflection, as in the reference code; in rounds of critique the reflector improves its lesson.",
    ),
    on_finer(
        name="ace20",
        source="ACE, table 20",
        about="the minimum similarity of two entries that are merged",
        baseline="threshold 0.9",
        rows=(
            *((Variant(f"threshold {x}", "ace", {"threshold": x}), "") for x in (0.5, 0.7, 0.85, 0.9)),
            (Variant("never merged", "ace", {"dedupe": "never"}), ""),
        ),
        settings=PAPER,
        measures=("entries", "context_tokens"),
        note="The text: performance changes only mildly. The last row is not in the paper.",
    ),
    on_finer(
        name="ace21",
        source="ACE, table 21",
        about="the maximum size of a playbook before it is pruned",
        baseline="pruned at 80000",
        rows=(
            *(
                (Variant(f"pruned at {n}", "ace", {"budget": n, "dedupe": "lazy"}), "")
                for n in (10_000, 40_000, 80_000, 100_000)
            ),
            (Variant("harmful entries kept", "ace", {"harmful": 0}), ""),
        ),
        settings=PAPER,
        measures=("entries", "context_tokens"),
        note="The text: the score is stable from 10,000 to 100,000 tokens. The last row is not in the paper.",
    ),
)
