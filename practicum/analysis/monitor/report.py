"""Report of the metrics of a run of any method, read from its store, also while the run is running.

The metrics follow the unified learner (METHODS, section 5): memory growth and retrieval relevance, context size and
drift, success, steps and latency, quality signals, tokens and cost, and learning curves by domain. Only `judge_again`
calls a model. Metrics that a method does not have are left out, not reported as 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.analysis.monitor import attempts, contexts, costs
from practicum.analysis.monitor.judging import judge_again as ask_judge_again
from practicum.analysis.monitor.series import MetricGroup
from practicum.core.errors import UsageError
from practicum.methods.memory import MemorySettings
from practicum.session.components import Parts
from practicum.session.foreign import Origin
from practicum.session.records import read_config, step_records
from practicum.store.database import Store
from practicum.store.versions import read_versions
from practicum.view.read import Story


@dataclass(frozen=True)
class MonitorReport:
    """Metrics of a run at one moment.

    `groups`: name → group of metrics, for the groups that the method has. A series has one value for each of the
    `steps`. `ended`: step → Unix time at which the step ended. `notes`: explanations of metrics that were left out."""

    run: Path
    method: str
    model: str
    state: str
    steps: tuple[int, ...]
    groups: Mapping[str, MetricGroup]
    ended: Mapping[int, float]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, as printed by `--json`, rounded to six significant digits."""
        run = {"run": str(self.run), "method": self.method, "model": self.model, "state": self.state}
        groups = json.dumps({name: group.as_json() for name, group in self.groups.items()})
        rounded = json.loads(groups, parse_float=lambda digits: float(f"{float(digits):.6g}"))
        return {**run, "steps": list(self.steps), **rounded, "notes": list(self.notes)}


async def monitor(
    run: Path | str, *, judge_again: int | None = None, seed: int = 0, parts: Parts | None = None,
    limits: Mapping[str, Any] | None = None, trust_run: bool = False,
) -> MonitorReport:  # fmt: skip
    """Report the metrics of a run, which may still be running.

    `judge_again`: number of attempts, drawn at random with `seed`, that the run's judge judges again, within `limits`
    (max_calls, max_tokens, max_usd, max_minutes). Only these calls have a cost. `parts`: the Python objects that the
    run was created with. `trust_run`: use the judge named in a run from another machine. Raises StoreError if `run` is
    not a run folder, and UsageError if the run has no steps yet, or (with `judge_again`) no verdicts to compare with.
    """
    if judge_again is not None and judge_again < 1:
        raise UsageError("settings.invalid", f"judge_again={judge_again}: pass at least 1")
    folder, parts, notes = Path(run), parts or Parts(), list[str]()
    with Store.read(folder) as store:
        config, state = read_config(store)
        origin = Origin.of(store, {}, parts, trust_run, ())
        if judge_again is not None:
            origin.require((), ("judge",))
        records = Story(store).steps()
        if not records:
            raise UsageError(
                "run.no_data", f"{folder} has no steps yet: wait for the first step, or see practicum show {folder}"
            )
        by_number = {step: own for step, own, _ in step_records(store)}
        steps = [(record.step, by_number.get(record.step, [])) for record in records]
        # Exclude attempts that reuse an earlier attempt.
        attempted = [(step, [r for r in own if not r.of]) for step, own in steps]
        by = "score" if any(r.score is not None for _, own in steps for r in own) else "verdict"
        calls = costs.read_calls(store)
        remembers = issubclass(methods.settings_of(origin.method), MemorySettings)
        changes = list(contexts.context_changes(read_versions(store)))
        # The texts that retrieval compares, of all entries that were ever visible to the agent.
        texts = list(dict.fromkeys(e.embedded_text for change in changes for e in change.added if not e.hidden))
        vectors = await contexts.read_vectors(store, texts, parts.embedder)
        if missing := len(texts) - len(vectors):
            notes.append(
                f"{missing:,} of {len(texts):,} entries have no stored vector and are left out of drift and coherence, "
                "because computing vectors has a cost"
            )
        memory, context = contexts.context_metrics(changes, records, vectors)
        judged = list(attempts.judged_attempts(attempted, costs.verdict_places(calls)))
        judge = {"against_scorer": against} if (against := attempts.against_scorer(judged)) is not None else {}
        # If the judge is the scorer, the scores are the judge's verdicts, and the judge's prompts contained the right
        # answers.
        scores = not judged and config.scorer == "judge"
        judged = attempts.scored_attempts(attempted) if scores else judged
        if judge_again is not None:
            judge["again"] = await ask_judge_again(
                judged, judge_again, config, with_target=scores, seed=seed, parts=parts, limits=limits or {}
            )
        elif judged:
            notes.append(
                f"consistency of the judge: not measured; pass `judge_again=N` to judge N of {len(judged):,} attempts "
                "again"
            )
        groups: dict[str, MetricGroup | None] = {
            "success": attempts.success(steps, by),
            "learning": attempts.learning_curves(steps, by),
            "memory": memory,
            "retrieval": attempts.retrieval(attempted, cites=config.asks and remembers),
            "context": context,
            "contrast": attempts.agreement(attempted),
            "judge": MetricGroup(judge) if judge else None,
            "agent": attempts.actions(attempted),
            "latency": costs.latency(calls, remembers, steps, records),
            "tokens": costs.tokens(calls, steps, records),
        }
        present = {name: group for name, group in groups.items() if group is not None}
        ended = costs.read_step_ends(store)
    numbers = tuple(step for step, _ in steps)
    return MonitorReport(folder, config.method, config.models, state, numbers, present, ended, tuple(notes))
