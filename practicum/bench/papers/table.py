"""A table of a paper, as data, and how it is shown beside what was measured."""

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

NONE = Variant("none", "none")
"""The agent without learning."""

_ACE_DATA = "github.com/ace-agent/ace, finance/data"
DATA: Mapping[str, str] = {
    "formula": f"XBRL Formula, formula_train_subset_500.jsonl and formula_test.jsonl ({_ACE_DATA})",
    "finer": f"FiNER-139, finer_train_batched_1000_samples.jsonl and finer_test_subset_006_seed42.jsonl ({_ACE_DATA})",
    "ddxplus": "DDXPlus in StreamBench's layout (huggingface.co/datasets/appier-ai-research/StreamBench)",
    "appworld": "AppWorld: its own server, --agent appworld:URL, and tasks by `practicum bench tasks IDS --server URL "
    "--out FILE` (docs/agents.md)",
    "rewardbench2": "RewardBench 2 as JSON lines (huggingface.co/datasets/allenai/reward-bench-2)",
    "mmlu": "MMLU's CSV files, as published (github.com/hendrycks/test)",
    "gsm8k": "GSM8K's test.jsonl (github.com/openai/grade-school-math)",
    "humaneval": "HumanEval.jsonl (github.com/openai/human-eval)",
    "commongen": "CommonGen-Hard's commongen_hard.jsonl (github.com/madaan/self-refine)",
    "srdd": "SRDD's descriptions of software, its CSV file (github.com/OpenBMB/ChatDev)",
    "yours": 'a stream of tasks of yours, as lines {"id", "input", "target"}',
}
"""The data sets of the tables: what they are and where they can be had. `practicum bench tasks` knows their layouts."""

SCORED: Mapping[str, str] = {"commongen": "commongen", "coverage": "commongen", "software": "srdd"}
"""The data sets of scorers that no other set of the tables has."""

RETRIEVAL: Mapping[str, Any] = {"retrieval": "cosine"}
"""The setting of every table: the papers compare embeddings."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table or a figure of a paper.

    `rows` are variants, each with the paper's numbers, which stand in the order of `columns` with blanks between; "-"
    is a number that the paper, or our copy of its text, does not give. `measures` are metrics of a comparison
    that are shown with the score, and `scored` are measures of the scorer. `settings` are the paper's, for every method
    that has them, in addition to `RETRIEVAL`, and `on_data` those that it has on a data set alone, by the names of
    `DATA`. `note` says what its text adds, and what is not as in the paper. With `delays`, the times of the steps
    are fitted as Combee's controller does it (section 3.3).
    """

    name: str
    source: str
    about: str
    theirs: str
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
        """The table with these rows alone, with its baseline and with those that they start from. Raises UsageError
        for a name that no row has."""
        by_name = {variant.name: variant for variant in self.variants}
        if unknown := [name for name in names if name not in by_name]:
            raise UsageError(
                "settings.invalid", f"table {self.name} has no row {unknown[0]!r}: it has {'; '.join(by_name)}"
            )
        kept, todo = {self.baseline}, [self.baseline, *names]
        while todo:
            kept.add(name := todo.pop())
            todo += filter(None, [by_name[name].after])
        return replace(self, rows=tuple(row for row in self.rows if row[0].name in kept))

    def installed(self) -> tuple[PaperTable, list[str]]:
        """The table without the rows whose packages are not installed, and a line about each of these."""
        missing = {v.name: extra for v in self.variants if (extra := methods.missing_extra(v.method))}
        lines = [f"{name} is left out: {pip_install(extra)}" for name, extra in missing.items()]
        return replace(self, rows=tuple(row for row in self.rows if row[0].name not in missing)), lines

    def on(self, data: str) -> PaperTable:
        """The table with the settings that the paper has on this data set."""
        return replace(self, settings={**self.settings, **self.on_data.get(data, {})})

    def paper_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The paper's settings that hold, unless the user has `given` others."""
        return {
            name: value
            for name, value in {**RETRIEVAL, **self.settings}.items()
            # Epochs and steps both say when learning ends.
            if name not in given and not (name in LENGTH and given.keys() & LENGTH) and self.takes(name, given)
        }

    def study(self, given: Mapping[str, Any]) -> Study:
        """What is compared, with the paper's settings, unless the user has `given` others."""
        table = ComparisonTable(f"{self.source}: {self.about}", self.baseline, self.variants)
        return Study((table,)).with_settings({**self.paper_settings(given), **given})

    def takes(self, name: str, given: Collection[str] = ()) -> bool:
        """Whether some row has a setting of this name, and neither a value of its own nor one `given` to it alone."""

        def free(v: Variant) -> bool:
            named = {key.rpartition(".")[2]: None for key in given if key.startswith(f"{v.name}.")}
            own = {**v.settings, **named}
            return name not in own and name in reachable(replace(v, settings=own))

        return any(map(free, self.variants))

    def calls(self, train: int, test: int, given: Mapping[str, Any]) -> int:
        """About how many calls one seed makes: one for an attempt, one for a reflection on it, one for an update.
        Retries, several attempts at a task and judges come on top."""
        return sum(_calls(variant, train, test) for variant in self.study(given).variants)

    def shown(self, report: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
        """The paper's numbers beside those of a comparison's report: titles and rows."""
        ours = {row["name"]: row for row in report["variants"]}
        compared = {row["name"]: row for row in report["tables"][0]["rows"]}
        heads = [f"paper: {column}" for column in self.columns]
        titles = ["row", *heads, "ours (95%)", f"less {self.baseline} (95%)", "claim"]
        titles += [*(METRICS[f"comparison.{name}"].title for name in self.measures), *self.scored]
        lines = []
        for variant, said in self.rows:
            theirs = said.split() or ["-"] * len(self.columns)
            row, change = ours[variant.name], compared[variant.name]
            cells = [METRICS[f"comparison.{name}"].write(row[name]) for name in self.measures]
            cells += [decimal(row["measures"].get(name)) for name in self.scored]
            lines.append((variant.name, *theirs, scored(row), effect(change), verdict_label(change["verdict"]), *cells))
        return titles, lines

    def delay(self, folder: Path, seeds: int, tasks: int) -> DelayFit | None:
        """How the time of an epoch falls with the batch size, by the steps of the runs with a fixed one in `folder`.
        None where there are too few sizes to fit."""
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
