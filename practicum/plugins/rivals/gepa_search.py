"""The `gepa` package's search over our seams (GEPA, Agrawal et al., 2025, section 3).

The package chooses parents from the Pareto front, draws minibatches, and accepts what scores higher on them; `attempt`,
`reflect` and `update` do the rest. Its loop runs behind a bridge, and each iteration is a step. Every accepted
candidate is an entry: the best one is shown, the others are hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from practicum.blocks.attempt.attempt import once
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Entry, Update, ordered_union
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, Clock, Losses, Method, Schedule, StepReport, Validation, mean_score, sources_of
from practicum.engine.run import Run
from practicum.plugins.rivals.bridge import AskModel, bridged, evaluate_candidate
from practicum.plugins.rivals.search import SECTION, only, ranked, visible_score

HIDDEN = f".{SECTION}"
"""The section of candidates that are not the best."""

Select = Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"]
"""How the package chooses the candidate to start from."""


def pareto_search(*, minibatch: int, attempts: int, select: Select) -> Schedule:
    """Iterations until `attempts` were made. Candidates are compared on the validation tasks if there are any, else on
    the tasks that are learned from."""
    options = {"candidate_selection_strategy": select, "max_metric_calls": attempts}
    return lambda method, tasks, context, run, validation: _Search(
        method, tasks, context, run, validation, {**options, "reflection_minibatch_size": min(minibatch, len(tasks))}
    ).steps()


@dataclass(eq=False)
class _Search:
    """The adapter that the package calls, and the steps that its iterations become. The package calls the public
    methods in its own thread. They ask for coroutines, which run in the event loop."""

    method: Method
    tasks: Sequence[Task]
    context: Context
    run: Run
    validation: Validation | None
    options: Mapping[str, Any]
    ids: list[str | None] = field(default_factory=list)
    vals: dict[str, float] = field(default_factory=dict)
    step: int = 0

    propose_new_texts = None

    async def steps(self) -> AsyncIterator[StepReport]:
        """Run to the end; a step is an iteration, whether its candidate was accepted or not."""
        self.losses = Losses(self.run)
        known = ranked(self.context)
        self.ids.append(known[0].id if known else None)
        self._next()
        async with bridged(partial(self._optimize, known[0].text if known else "")) as results:
            async for result in results:
                if isinstance(result, StepReport):
                    yield result
                    self._next()
        self.losses.close()

    def _next(self) -> None:
        self.step += 1
        self.at = self.run.at(f"step {self.step}")
        self.clock = Clock(self.at)
        self.tries = 0
        self.parent: list[Rollout] = []
        self.lessons: list[Lesson] = []
        self.proposal: Add | None = None

    # ---- in the thread of the package

    def _optimize(self, first: str, ask: AskModel) -> None:
        from gepa.api import optimize

        self.ask = ask
        compared = self.tasks if self.validation is None else self.validation.tasks
        # The package's protocols name methods that it does not need.
        adapter: Any = self
        optimize(
            {SECTION: first}, list(self.tasks), list(compared), adapter=adapter, reflection_strategy=adapter,
            callbacks=[adapter], logger=adapter, seed=self.run.seed, track_best_outputs=False, **self.options,
        )  # fmt: skip

    def evaluate(self, batch: list[Task], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores: list[float] = self.ask(partial(self._scores, candidate[SECTION], tuple(batch)))
        # The package does not look at the attempts.
        return EvaluationBatch(outputs=[None] * len(batch), scores=scores, trajectories=list(batch))

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {SECTION: [{"task": task.id} for task in eval_batch.trajectories]}

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Any, components_to_update: list[str]
    ) -> tuple[Any, _Search]:
        from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal

        text = self.ask(partial(self._rewritten, candidate[SECTION]))
        return ReflectionProposal({SECTION: text} if text else {}), self

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        self.ask(partial(self._report, event["state"]))

    def log(self, message: str) -> None:
        """The package's log is not needed: steps report the same."""

    # ---- in the event loop

    async def _scores(self, text: str, tasks: tuple[Task, ...]) -> list[float]:
        """The score of each task: under the parent, then under its child, then, if the child was better, under the
        child on all tasks to compare on. The very first instruction is compared before the first iteration."""
        context = only(text)
        if not self.vals or self.tries == 2:
            split, name = "compared" if self.validation is None else "val", f"compared {len(self.vals)}"
            rollouts = await evaluate_candidate(self.method.act, split, tasks, context, self.at, name)
            self.vals[text] = mean_score(rollouts)
        elif self.tries == 0:
            rollouts = self.parent = await self.method.attempt(Batch(tasks), context, self.at.at("attempt"))
            self.tries = 1
        else:
            rollouts = await once(self.method.act)(Batch(tasks), context, self.at.at("trial"))
            self.tries = 2
        return [visible_score(rollout, self.run) or 0.0 for rollout in rollouts]

    async def _rewritten(self, text: str) -> str:
        """A better instruction, learned from the parent's attempts; "" if there is none."""
        context = only(text)
        self.run.require_own(sources_of(self.parent))
        self.lessons = await self.method.reflect(self.parent, context, self.at.at("reflect"))
        if not self.lessons:
            return ""
        update = self.at.at("update", sources_of(self.lessons))
        delta = await self.method.update(self.lessons, context, update)
        self.proposal = next((edit for edit in delta.edits if isinstance(edit, Add)), None)
        return self.proposal.text if self.proposal is not None else ""

    async def _report(self, state: Any) -> StepReport:
        """The step that an iteration was. `state` holds all candidates by number, the first one as 0."""
        self.losses.count(self.parent, self.lessons)
        arm, before = self.ids[state.full_program_trace[-1]["selected_program_candidate"]], len(self.ids)
        scores = list(state.program_full_scores_val_set)
        # The best candidate, the oldest on ties.
        best = scores.index(max(scores))
        outcome = self.context.apply(self._delta(state, best))
        self.context = outcome.context
        data = {
            "parent": arm, "accepted": len(self.ids) > before, "attempts": state.total_num_evals,
            "candidates": len(self.ids), "best": self.ids[best], "best_score": round(scores[best], 6),
        }  # fmt: skip
        val = self.vals[state.program_candidates[best][SECTION]] if self.validation is not None else None
        batch = Batch(tuple(r.task for r in self.parent), arm=arm, data=data)
        return StepReport(
            self.step, batch, tuple(self.parent), tuple(self.lessons), self.context, outcome.applied, outcome.refused,
            (), self.clock.stop(), val,
        )  # fmt: skip

    def _delta(self, state: Any, best: int) -> Delta:
        """The entry of a new candidate, and what changed about the others: score, front, and which is shown."""
        updates: list[Edit] = []
        adds: list[Edit] = []
        for n, candidate in enumerate(state.program_candidates):
            first = state.parent_program_for_candidate[n][0]
            parent = None if first is None else self._entry(first)
            # `front` is the number of tasks on which no other candidate is better.
            fronts = state.program_at_pareto_front_valset.values()
            data = {"score": round(state.program_full_scores_val_set[n], 6), "front": sum(n in f for f in fronts)}
            data |= {} if parent is None else {"parent": parent.id}
            section = SECTION if n == best else HIDDEN
            if n == len(self.ids):
                made = self.proposal or Add(SECTION, candidate[SECTION])
                # It was written from its parent, so it also rests on what the parent was learned from.
                sources = ordered_union([made.sources, parent.sources]) if parent is not None else made.sources
                adds.append(replace(made, section=section, data=data, sources=sources))
                self.ids.append(f"e{self.context.next_number}")
            elif (entry := self._entry(n)) is not None:
                data = {**entry.data, **data}
                if (section, data) != (entry.section, dict(entry.data)):
                    updates.append(Update(entry.id, section=section, data=data))
        # What an earlier run left beside its best.
        updates += [Update(e.id, section=HIDDEN) for e in self.context.in_section(SECTION) if e.id not in self.ids]
        return Delta((*updates, *adds))

    def _entry(self, n: int) -> Entry | None:
        id = self.ids[n]
        return None if id is None else self.context.get(id)
