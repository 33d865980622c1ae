"""A table of a paper as data, and its numbers shown next to measured results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.analysis.compare.variants import LENGTH, ComparisonTable, Study, Variant, reachable
from practicum.core.errors import UsageError
from practicum.core.formats import decimal, effect, scored, verdict_label
from practicum.core.metrics import METRICS
from practicum.core.requirements import pip_install
from practicum.methods.blocks.sample import DelayFit, Point, fit_delay
from practicum.store.database import Store
from practicum.view.names import run_folder
from practicum.view.read import Story

NONE, ICL = Variant("none", "none"), Variant("icl", "icl")
"""The agent without learning, and the whole history of solved tasks in the prompt. A table with one has the other."""

_ACE_DATA = "github.com/ace-agent/ace, finance/data"
DATA: Mapping[str, str] = {
    "formula": f"XBRL Formula, formula_train_subset_500.jsonl and formula_test.jsonl ({_ACE_DATA})",
    "finer": f"FiNER-139, finer_train_batched_1000_samples.jsonl and finer_test_subset_006_seed42.jsonl ({_ACE_DATA})",
    "ddxplus": "DDXPlus in StreamBench's layout (huggingface.co/datasets/appier-ai-research/StreamBench)",
    "appworld": "AppWorld: its own server, --agent appworld:URL, and tasks by `practicum bench tasks IDS --server URL "
    "--out FILE` (docs/learn/agents.md)",
    "rewardbench2": "RewardBench 2 as JSON lines (huggingface.co/datasets/allenai/reward-bench-2)",
    "mmlu": "MMLU's CSV files, as published (github.com/hendrycks/test)",
    "gsm8k": "GSM8K's test.jsonl (github.com/openai/grade-school-math)",
    "humaneval": "HumanEval.jsonl (github.com/openai/human-eval)",
    "commongen": "CommonGen-Hard's commongen_hard.jsonl (github.com/madaan/self-refine)",
    "srdd": "the CSV file of SRDD's descriptions of software (github.com/OpenBMB/ChatDev)",
    "hotpotqa": "HotpotQA, distractor setting (hotpotqa.github.io, or StreamBench's hotpotqa_distract)",
    "text2sql": "Spider, CoSQL or BIRD with their databases (yale-lily.github.io/spider, bird-bench.github.io), or "
    "StreamBench's files next to the folder of the databases",
    "ttl": "a row icl_… of MemoryAgentBench's split Test_Time_Learning, as JSON lines or parquet "
    "(huggingface.co/datasets/ai-hyz/MemoryAgentBench)",
    "nursery": "nursery.data of the UCI repository (archive.ics.uci.edu/dataset/76/nursery), after a first line with "
    "the titles parents,has_nurs,form,children,housing,finance,social,health,class",
    "yours": 'your own stream of tasks, as lines {"id", "input", "target"}',
}
"""Data set of a table → the files of the data set, and where to get the files. `practicum bench tasks` converts the
files to tasks."""

SCORED: Mapping[str, str] = {"commongen": "commongen", "coverage": "commongen", "software": "srdd"}
"""Scorer → data set, for each scorer that only this data set uses."""

RETRIEVAL: Mapping[str, Any] = {"retrieval": "cosine"}
"""Setting of every table, because the papers compare embeddings."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Table or figure of a paper.

    `about`: subject of the table. `setup`: models and data of the paper. `data`: suitable data sets, from `DATA`.
    `rows`: variants with the paper's numbers, separated by blanks, in the order of `columns`; "-" is a missing number.
    `measures`: metrics of a comparison to show with the score. `scored`: further measures to show, which the scorer
    returns. `settings`: settings of the paper in addition to `RETRIEVAL`, each for all methods that have the setting.
    `on_data`: further settings by data set. `note`: statements of the paper's text, and differences from the paper.
    `delays`: whether to fit the times of the steps as Combee's controller does (section 3.3)."""

    name: str
    source: str
    about: str
    setup: str
    data: tuple[str, ...]
    rows: tuple[tuple[Variant, str], ...]
    baseline: str = NONE.name
    columns: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""
    delays: bool = False

    @property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(variant for variant, _ in self.rows)

    def only(self, names: Sequence[str]) -> PaperTable:
        """Return the table with the named rows, the row of the baseline, and the rows whose contexts these rows start
        from. Raise UsageError for an unknown name."""
        by_name = {variant.name: variant for variant in self.variants}
        if unknown := [name for name in names if name not in by_name]:
            raise UsageError(
                "settings.invalid", f"table {self.name} has no row {unknown[0]!r}: choose from {'; '.join(by_name)}"
            )
        selected, todo = {self.baseline}, [self.baseline, *names]
        while todo:
            selected.add(name := todo.pop())
            todo += filter(None, [by_name[name].after])
        return replace(self, rows=tuple(row for row in self.rows if row[0].name in selected))

    def installed(self) -> tuple[PaperTable, list[str]]:
        """Return the table without the rows whose methods need a missing package, and a line about each omitted row."""
        missing = {v.name: extra for v in self.variants if (extra := methods.missing_extra(v.method))}
        lines = [f"row {name} is omitted; to include it: {pip_install(extra)}" for name, extra in missing.items()]
        return replace(self, rows=tuple(row for row in self.rows if row[0].name not in missing)), lines

    def on(self, data: str) -> PaperTable:
        """Return the table with the settings of the paper for a data set."""
        return replace(self, settings={**self.settings, **self.on_data.get(data, {})})

    def paper_settings(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the paper, except settings that the user overrides."""
        return {
            name: value
            for name, value in {**RETRIEVAL, **self.settings}.items()
            # Epochs and steps both limit the length of learning: a user who sets one of them overrides both.
            if name not in overrides
            and not (name in LENGTH and overrides.keys() & LENGTH)
            and self.takes(name, overrides)
        }

    def study(self, overrides: Mapping[str, Any]) -> Study:
        """Return the study with the settings of the paper and the user's overrides."""
        table = ComparisonTable(f"{self.source}: {self.about}", self.baseline, self.variants)
        return Study((table,)).with_settings({**self.paper_settings(overrides), **overrides})

    def takes(self, name: str, overrides: Collection[str] = ()) -> bool:
        """Return whether this setting still applies to at least one row: the method of the row has the setting, and
        neither the row nor an override of the row sets the setting."""

        def free(v: Variant) -> bool:
            named = {key.rpartition(".")[2]: None for key in overrides if key.startswith(f"{v.name}.")}
            settings = {**v.settings, **named}
            return name not in settings and name in reachable(replace(v, settings=settings))

        return any(map(free, self.variants))

    def calls(self, train: int, test: int, overrides: Mapping[str, Any]) -> int:
        """Estimate the number of calls of one seed: one per attempt, one per reflection, one per update. Retries,
        repeated attempts at a task and judges are not included."""
        return sum(_calls(variant, train, test) for variant in self.study(overrides).variants)

    def shown(self, report: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the titles and rows of a table with the paper's numbers and the results of a comparison's report."""
        measured = {row["name"]: row for row in report["variants"]}
        compared = {row["name"]: row for row in report["tables"][0]["rows"]}
        heads = [f"paper: {column}" for column in self.columns]
        titles = ["row", *heads, "yours (95%)", f"minus {self.baseline} (95%)", "claim"]
        titles += [*(METRICS[f"comparison.{name}"].title for name in self.measures), *self.scored]
        lines = []
        for variant, text in self.rows:
            numbers = text.split() or ["-"] * len(self.columns)
            row, change = measured[variant.name], compared[variant.name]
            cells = [METRICS[f"comparison.{name}"].write(row[name]) for name in self.measures]
            cells += [decimal(row["measures"].get(name)) for name in self.scored]
            lines.append(
                (variant.name, *numbers, scored(row), effect(change), verdict_label(change["verdict"]), *cells)
            )
        return titles, lines

    def delay(self, folder: Path, seeds: int, tasks: int) -> DelayFit | None:
        """Fit epoch time as a function of batch size, from the step times of the runs in `folder` that have a fixed
        batch size. Return None if fewer than two sizes were measured."""
        points = []
        for variant in (v for v in self.variants if str(v.settings.get("batch", "auto")) != "auto"):
            for seed in range(seeds):
                with Store.read(folder / run_folder(variant.name, seed)) as store:
                    steps = Story(store).steps()
                points += [Point(len(step.tasks), step.seconds) for step in steps if step.seconds]
        sizes = {point.batch for point in points}
        return fit_delay(points, tasks, b_min=min(sizes), max_batch=max(sizes)) if len(sizes) > 1 else None


def _calls(variant: Variant, train: int, test: int) -> int:
    if variant.stream:
        train, test = test, 0
    settings = methods.read_settings(variant.method, variant.settings)
    roles = methods.build(variant.method, settings).roles
    if "attempts" in type(settings).model_fields:
        return int(settings.attempts) + test  # type: ignore[attr-defined]
    tasks = round((variant.part[1] - variant.part[0]) * train)
    if not tasks or not roles:
        return test
    batch = getattr(settings, "batch", 1)
    batch = min(batch, tasks) if isinstance(batch, int) else tasks
    steps = getattr(settings, "steps", None) or -(-tasks // batch) * getattr(settings, "epochs", 1)
    return int(steps * (batch * (1 + ("reflector" in roles)) + len({*roles} - {"reflector"})) + test)
