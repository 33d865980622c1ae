"""The `gepa` package's search, with our seams as its adapter (GEPA, Agrawal et al., 2025, section 3).

The package chooses parents from the Pareto front, draws minibatches, and accepts what scores higher on them; `attempt`,
`reflect` and `update` do the rest. Its loop runs behind a bridge, each iteration a step. Every accepted candidate is an
entry: the best one is shown, the others are hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from practicum.blocks.attempt.attempt import once
from practicum.blocks.search.candidates import SECTION, compare, ranked, visible_score
from practicum.blocks.search.thread_bridge import Bridge
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Entry, Update, ordered_union
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, Clock, Losses, Method, Schedule, StepReport, Validation, mean_score, sources_of
from practicum.engine.run import Run

HIDDEN = f".{SECTION}"
"""The section of candidates that are not the best."""

Select = Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"]
"""How the package chooses the candidate to start from."""


@dataclass(frozen=True, slots=True)
class Try:
    """Attempt tasks under an instruction."""

    text: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Write a better instruction from what was just attempted."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An iteration is over: all candidates by number, 0 the first, with the number of attempts so far.

    `scores` are means over the tasks they are compared on, `front` the number of those on which nothing is better;
    `parents` holds None for the first. `parent` is the one of this iteration.
    """

    texts: Sequence[str]
    scores: Sequence[float]
    front: Sequence[int]
    parents: Sequence[int | None]
    parent: int
    attempts: int


def pareto_search(*, minibatch: int, attempts: int, select: Select) -> Schedule:
    """Iterations until `attempts` were made. Candidates are compared on the validation tasks, where there are any, else
    on the tasks that are learned from."""

    def schedule(
        method: Method, tasks: Sequence[Task], context: Context, run: Run, validation: Validation | None = None
    ) -> AsyncIterator[StepReport]:
        drive = _driver(minibatch=min(minibatch, len(tasks)), attempts=attempts, select=select, seed=run.seed)
        return _Search(method, tasks, context, run, validation, drive).steps()

    return schedule


Drive = Callable[[Callable[[Any], Any], str, Sequence[Task], Sequence[Task]], object]


def _driver(*, minibatch: int, attempts: int, select: Select, seed: int) -> Drive:
    """The package's loop, from the first instruction on, over tasks to learn from and tasks to compare on."""
    from gepa.api import optimize

    def drive(ask: Callable[[Any], Any], first: str, tasks: Sequence[Task], compared: Sequence[Task]) -> object:
        # Its protocols name methods that it does without.
        ours: Any = _Adapter(ask)
        return optimize(
            {SECTION: first}, list(tasks), list(compared), adapter=ours, reflection_strategy=ours, callbacks=[ours],
            logger=ours, candidate_selection_strategy=select, reflection_minibatch_size=minibatch,
            max_metric_calls=attempts, seed=seed, track_best_outputs=False,
        )  # fmt: skip

    return drive


class _Adapter:
    """What the package calls, in its own thread; everything is passed on as a wish."""

    propose_new_texts = None

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self.ask = ask

    def evaluate(self, batch: list[Task], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores: list[float] = self.ask(Try(candidate[SECTION], tuple(batch)))
        # The attempts themselves stay on our side: the package takes no look at them.
        return EvaluationBatch(outputs=[None] * len(batch), scores=scores, trajectories=list(batch))

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {SECTION: [{"task": task.id} for task in eval_batch.trajectories]}

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Any, components_to_update: list[str]
    ) -> tuple[Any, _Adapter]:
        from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal

        text = self.ask(Rewrite(candidate[SECTION]))
        return ReflectionProposal({SECTION: text} if text else {}), self

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        state = event["state"]
        fronts = state.program_at_pareto_front_valset.values()
        numbers = range(len(state.program_candidates))
        self.ask(
            Ended(
                texts=[candidate[SECTION] for candidate in state.program_candidates],
                scores=list(state.program_full_scores_val_set),
                front=[sum(n in front for front in fronts) for n in numbers],
                parents=[parents[0] for parents in state.parent_program_for_candidate],
                parent=state.full_program_trace[-1]["selected_program_candidate"],
                attempts=state.total_num_evals,
            )
        )

    def log(self, message: str) -> None:
        """The package's log is not needed: steps tell the same."""


@dataclass
class _Search:
    """Fulfils the package's wishes, and makes a step of each iteration."""

    method: Method
    tasks: Sequence[Task]
    context: Context
    run: Run
    validation: Validation | None
    drive: Drive
    ids: list[str | None] = field(default_factory=list)
    step: int = 0
    at: Run = field(init=False)
    clock: Clock = field(init=False)
    parent: list[Rollout] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)
    proposal: Add | None = None
    tries: int = 0
    vals: dict[str, float] = field(default_factory=dict)

    async def steps(self) -> AsyncIterator[StepReport]:
        """Run to the end; a step is an iteration, whether its candidate was accepted or not."""
        losses = Losses(self.run)
        known = ranked(self.context)
        first = known[0].text if known else ""
        self.ids.append(known[0].id if known else None)
        compared = self.tasks if self.validation is None else self.validation.tasks
        self._next()
        async with Bridge(lambda ask: self.drive(ask, first, self.tasks, compared)) as bridge:
            async for wish in bridge:
                match wish.what:
                    case Try(text, tasks):
                        wish.answer.set_result(await self._tried(text, tasks))
                    case Rewrite(text):
                        wish.answer.set_result(await self._rewritten(text))
                    case Ended() as ended:
                        losses.count(self.parent, self.lessons)
                        yield self._report(ended)
                        self._next()
                        wish.answer.set_result(None)
        losses.close()

    def _next(self) -> None:
        self.step += 1
        self.at = self.run.at(f"step {self.step}")
        self.clock = Clock(self.at)
        self.parent, self.lessons, self.proposal, self.tries = [], [], None, 0

    async def _tried(self, text: str, tasks: tuple[Task, ...]) -> list[float]:
        """What each task scored: under the parent, then under its child, then, compared with all, under a child that
        was better. The very first instruction is compared before there is an iteration."""
        context = _only(text)
        if not self.vals or self.tries == 2:
            split, name = "compared" if self.validation is None else "val", f"compared {len(self.vals)}"
            rollouts = await compare(self.method.act, split, tasks, context, self.at, name)
            self.vals[text] = mean_score(rollouts)
            return [visible_score(rollout, self.run) or 0.0 for rollout in rollouts]
        self.tries += 1
        if self.tries == 1:
            rollouts = self.parent = await self.method.attempt(Batch(tasks), context, self.at.at("attempt"))
        else:
            rollouts = await once(self.method.act)(Batch(tasks), context, self.at.at("trial"))
        return [visible_score(rollout, self.run) or 0.0 for rollout in rollouts]

    async def _rewritten(self, text: str) -> str:
        """A new instruction; "" where there is none."""
        context = _only(text)
        self.lessons = await self.method.reflect(self.parent, context, self.at.at("reflect"))
        if not self.lessons:
            return ""
        update = self.at.at("update", sources_of(self.lessons))
        delta = await self.method.update(self.lessons, context, update)
        self.proposal = next((edit for edit in delta.edits if isinstance(edit, Add)), None)
        return self.proposal.text if self.proposal is not None else ""

    def _report(self, ended: Ended) -> StepReport:
        arm = self.ids[ended.parent]
        before = len(self.ids)
        outcome = self.context.apply(self._delta(ended))
        self.context = outcome.context
        best = _best(ended.scores)
        data = {
            "parent": arm, "accepted": len(self.ids) > before, "attempts": ended.attempts, "candidates": len(self.ids),
            "best": self.ids[best], "best_score": round(ended.scores[best], 6),
        }  # fmt: skip
        return StepReport(
            self.step, Batch(tuple(r.task for r in self.parent), arm=arm, data=data), tuple(self.parent),
            tuple(self.lessons), self.context, outcome.applied, outcome.refused, (), self.clock.stop(),
            self.vals[ended.texts[best]] if self.validation is not None else None,
        )  # fmt: skip

    def _delta(self, ended: Ended) -> Delta:
        """A new candidate's entry; of the others, what changed: their place in the front, and which is shown."""
        best, edits = _best(ended.scores), list[Add | Update]()
        for n, id in enumerate(self.ids):
            entry = self.context.get(id) if id is not None else None
            if entry is None:
                continue
            section, data = SECTION if n == best else HIDDEN, {**entry.data, **self._data(n, ended)}
            if (section, data) != (entry.section, dict(entry.data)):
                edits.append(Update(entry.id, section=section, data=data))
        # What an earlier run left besides its best.
        edits += [Update(e.id, section=HIDDEN) for e in self.context.in_section(SECTION) if e.id not in self.ids]
        for n in range(len(self.ids), len(ended.texts)):
            made, parent = self.proposal or Add(SECTION, ended.texts[n]), self._parent(n, ended)
            section = SECTION if n == best else HIDDEN
            # It was written from its parent, so that what the parent was learned from is in it too.
            sources = ordered_union([made.sources, parent.sources]) if parent is not None else made.sources
            edits.append(replace(made, section=section, data=self._data(n, ended), sources=sources))
            self.ids.append(f"e{self.context.next_number}")
        return Delta(tuple(edits))

    def _data(self, n: int, ended: Ended) -> dict[str, Any]:
        parent = self._parent(n, ended)
        of = {"parent": parent.id} if parent is not None else {}
        return {"score": round(ended.scores[n], 6), "front": ended.front[n], **of}

    def _parent(self, n: int, ended: Ended) -> Entry | None:
        parent = ended.parents[n]
        id = self.ids[parent] if parent is not None else None
        return self.context.get(id) if id is not None else None


def _best(scores: Sequence[float]) -> int:
    """The best candidate, the oldest on ties."""
    return max(range(len(scores)), key=lambda n: (scores[n], -n))


def _only(text: str) -> Context:
    """A context of one instruction, or of none."""
    return Context().apply(Delta((Add(SECTION, text),) if text else ())).context
