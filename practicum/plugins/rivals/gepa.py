"""GEPA: evolves instructions by reflection on traces, with parents drawn from a Pareto front (Agrawal et al., 2025,
section 3).

The `gepa` package runs the loop: it selects parents, draws minibatches, and accepts a candidate that scores higher than
its parent. Each iteration is a step. Each accepted candidate is an entry: the best is shown, the others are hidden. If
`groups` > 1, Combee's parallel scan reflects on a minibatch. docs/learn/methods/reproductions.md lists the differences
from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from practicum.core.clashes import Clash
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Entry, Update, ordered_union
from practicum.core.types import Instructions, Lesson, Task
from practicum.engine.loop import Batch, Method, Schedule, StepReport, UpdateSeam, mean_score, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import per_trace, without_reflector
from practicum.methods.blocks.sample import shuffled_epochs
from practicum.methods.blocks.scan import FEW, Dealing, Join, scan
from practicum.methods.blocks.show import answer
from practicum.methods.settings import CandidateSettings
from practicum.methods.worked_examples import CALENDAR, HINGE, SHOP, WORKSHOP
from practicum.plugins.rivals.bridge import AskModel, PackageSearch
from practicum.plugins.rivals.examples import COAT_RIGHT, CUPS_WRONG, PRICES, example
from practicum.plugins.rivals.search import (
    SECTION,
    InstructionRequest,
    best_instruction,
    cases,
    only,
    ranked,
    visible_score,
    written,
)

HIDDEN = f".{SECTION}"
"""Section of the candidates that are not the best."""


class Settings(CandidateSettings):
    NO_GATE: ClassVar[str] = "judges its candidates itself"
    REQUIRES: ClassVar[tuple[str, ...]] = ("gepa",)

    attempts: int = Field(default=400, ge=1)
    """Number of attempts after which no new iteration starts."""
    minibatch: int = Field(default=3, ge=1)
    """Number of tasks per iteration. On these tasks, a new instruction must score higher than its parent, the
    instruction from which it was rewritten."""
    select: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"] = "pareto"
    """Strategy by which an iteration selects the instruction to rewrite."""
    groups: int = Field(default=1, ge=1)
    """Number of groups of attempts in a minibatch. One call per group rewrites the instruction, and another call joins
    the rewritten instructions. 1: a single call rewrites the instruction from all attempts."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(lambda s: s.groups > s.minibatch, "groups={s.groups} exceeds minibatch={s.minibatch}: lower groups"),
        Clash(lambda s: s.groups > 1 and s.minibatch < FEW, f"groups need minibatch={FEW} or more: raise minibatch"),
    )


def method(s: Settings) -> Method:
    """Attempt a minibatch, write a new instruction from the attempts, keep the new instruction if it scores higher than
    its parent, compare all candidates on the same tasks."""
    act = answer(best_instruction)
    update = rewritten(s.warmth)
    if s.groups > 1:
        update = scan(update, Dealing(groups=s.groups, copies=min(2, s.groups), fan_in=None), joined(s.warmth))
    return Method(
        name="gepa",
        show=best_instruction,
        sample=shuffled_epochs(1, s.minibatch),
        act=act,
        attempt=once(act),
        reflect=per_trace(without_reflector),
        update=update,
        accept=always,
        schedule=pareto_search(s.minibatch, s.attempts, s.select),
        roles=("reflector",),
        costs="attempts with each candidate on a minibatch, one reflection per step",
    )


def rewritten(warmth: float) -> UpdateSeam:
    """Return an update seam that rewrites the instruction from attempts with this instruction. A failed call is counted
    and changes nothing."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        text = next((e.text for e in ranked(context)), "(none yet)")
        parts = (f"# The instruction now\n{text}", cases(lessons))
        request = InstructionRequest(REFLECTOR, parts, lessons=tuple(lessons))
        add = await written(request, warmth, "reflector", run)
        return Delta(() if add is None else (add,))

    return update


def joined(warmth: float) -> Join:
    """Return a join function that combines the instructions of the groups into one instruction."""

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        adds = [edit for delta in deltas for edit in delta.edits if isinstance(edit, Add)]
        if len(adds) < 2:
            return Delta(tuple(adds))
        parts = tuple(f"# Instruction {n}\n{add.text}" for n, add in enumerate(adds, 1))
        sources, lessons = ordered_union(a.sources for a in adds), ordered_union(a.lessons for a in adds)
        combined = await written(InstructionRequest(JOINER, parts), warmth, "reflector", replace(run, about=sources))
        return Delta(() if combined is None else (replace(combined, sources=sources, lessons=lessons),))

    return join


def pareto_search(minibatch: int, attempts: int, select: str) -> Schedule:
    """Return a schedule that starts no further iteration after `attempts` attempts. Candidates are compared on the
    validation tasks, or on the training tasks if the run has no validation tasks."""
    options = {"candidate_selection_strategy": select, "max_metric_calls": attempts}
    return lambda method, tasks, context, run, validation: ParetoSearch(
        method, tasks, context, run, validation, {**options, "reflection_minibatch_size": min(minibatch, len(tasks))}
    ).steps()


@dataclass(eq=False)
class ParetoSearch(PackageSearch):
    """Adapter, reflection strategy, callback and logger for `gepa`. `ids` has the entry id of each candidate, in the
    order of `gepa`. The first candidate is the initial instruction of the run; the first id is None if the run has no
    initial instruction."""

    options: Mapping[str, Any]
    ids: list[str | None] = field(default_factory=list)
    vals: dict[str, float] = field(default_factory=dict)

    propose_new_texts = None

    def begin(self) -> None:
        super().begin()
        self.tries = 0
        self.proposal: Add | None = None

    # ---- in the thread of `gepa`

    def optimize(self, ask: AskModel) -> None:
        from gepa.api import optimize

        self.ask, candidates = ask, ranked(self.context)
        self.ids.append(candidates[0].id if candidates else None)
        compared = self.tasks if self.validation is None else self.validation.tasks
        # Of type Any, because the protocols of `gepa` have methods that this class does not need.
        adapter: Any = self
        optimize(
            {SECTION: candidates[0].text if candidates else ""}, list(self.tasks), list(compared), adapter=adapter,
            reflection_strategy=adapter, callbacks=[adapter], logger=adapter, seed=self.run.seed,
            track_best_outputs=False, **self.options,
        )  # fmt: skip

    def evaluate(self, batch: list[Task], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores: list[float] = self.ask(partial(self._scores, candidate[SECTION], tuple(batch)))
        # `gepa` does not use the outputs, so they are None.
        return EvaluationBatch(outputs=[None] * len(batch), scores=scores, trajectories=list(batch))

    def make_reflective_dataset(self, candidate: object, eval_batch: Any, components: object) -> Mapping[str, Any]:
        return {SECTION: [{"task": task.id} for task in eval_batch.trajectories]}

    def reflect(self, candidate: dict[str, str], reflective_dataset: Any, components: object) -> tuple[Any, Any]:
        from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal

        text = self.ask(partial(self._rewritten, candidate[SECTION]))
        return ReflectionProposal({SECTION: text} if text else {}), self

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        self.ask(partial(self._ended, event["state"]))

    def log(self, message: str) -> None:
        """Drop the log of `gepa`: the steps report the same information."""

    # ---- in the event loop

    async def _scores(self, text: str, tasks: tuple[Task, ...]) -> list[float]:
        """Return the score of an attempt at each task with the instruction `text`. In an iteration, `gepa` requests the
        scores of the parent on the minibatch, then the scores of the child on the minibatch, and, if the child scored
        higher than the parent, the scores of the child on all comparison tasks. Before the first iteration, `gepa`
        requests the scores of the initial instruction on all comparison tasks."""
        context = only(text)
        if not self.vals or self.tries == 2:
            attempts = await self.compared(tasks, context, f"compared {len(self.vals)}")
            self.vals[text] = mean_score(attempts)
        elif self.tries == 0:
            attempts = self.attempts = await self.method.attempt(Batch(tasks), context, self.at.at("attempt"))
            self.tries = 1
        else:
            attempts = await once(self.method.act)(Batch(tasks), context, self.at.at("trial"))
            self.tries = 2
        return [visible_score(attempt, self.run) or 0.0 for attempt in attempts]

    async def _rewritten(self, text: str) -> str:
        """Return an improved version of the instruction `text`, learned from attempts with `text`; "" if the calls
        failed."""
        context = only(text)
        self.run.require_own(sources_of(self.attempts))
        self.lessons = await self.method.reflect(self.attempts, context, self.at.at("reflect"))
        if not self.lessons:
            return ""
        delta = await self.method.update(self.lessons, context, self.at.at("update", sources_of(self.lessons)))
        self.proposal = next((edit for edit in delta.edits if isinstance(edit, Add)), None)
        return self.proposal.text if self.proposal is not None else ""

    async def _ended(self, state: Any) -> StepReport:
        """Return the report of an iteration. `state` has all candidates by index."""
        self.losses.count(self.attempts, self.lessons)
        arm, count = self.ids[state.full_program_trace[-1]["selected_program_candidate"]], len(self.ids)
        scores = list(state.program_full_scores_val_set)
        best = scores.index(max(scores))  # if scores are equal, the oldest candidate is the best
        delta = self._delta(state, best)
        data = {
            "parent": arm, "accepted": len(self.ids) > count, "attempts": state.total_num_evals,
            "candidates": len(self.ids), "best": self.ids[best], "best_score": round(scores[best], 6),
        }  # fmt: skip
        val = self.vals[state.program_candidates[best][SECTION]] if self.validation is not None else None
        return self.report(delta, arm, data, val)

    def _delta(self, state: Any, best: int) -> Delta:
        """Return the edits of an iteration: add the new candidate, if `gepa` accepted it, and update the data and the
        sections of the other candidates."""
        updates, adds = list[Edit](), list[Edit]()
        for n, candidate in enumerate(state.program_candidates):
            first = state.parent_program_for_candidate[n][0]
            parent = None if first is None else self._entry(first)
            # `front` is the number of tasks on which no other candidate is better.
            fronts = state.program_at_pareto_front_valset.values()
            data = {"score": round(state.program_full_scores_val_set[n], 6), "front": sum(n in f for f in fronts)}
            data |= {} if parent is None else {"parent": parent.id}
            section = SECTION if n == best else HIDDEN
            if n == len(self.ids):
                add = self.proposal or Add(SECTION, candidate[SECTION])
                # The new candidate was written from its parent, so it also has the parent's sources.
                sources = ordered_union([add.sources, parent.sources]) if parent is not None else add.sources
                adds.append(replace(add, section=section, data=data, sources=sources))
                self.ids.append(f"e{self.context.next_number}")
            elif (entry := self._entry(n)) is not None:
                data = {**entry.data, **data}
                if (section, data) != (entry.section, dict(entry.data)):
                    updates.append(Update(entry.id, section=section, data=data))
        # Hide the candidates of an earlier run that are not in this search.
        updates += [Update(e.id, section=HIDDEN) for e in self.context.in_section(SECTION) if e.id not in self.ids]
        return Delta((*updates, *adds))

    def _entry(self, n: int) -> Entry | None:
        id = self.ids[n]
        return None if id is None else self.context.get(id)


REFLECTOR = Instructions(
    full="""\
You improve the instruction that an agent works under. You see the instruction, and attempts that were made with it, \
each with what came of it.

Read every attempt closely. Find out what the tasks ask for and in which form; which steps, facts and ways of working \
led to success, and whether they will serve other tasks too; and for each failure, what the instruction said wrongly \
or left unsaid. The feedback may hold facts about the field that the agent cannot find out by itself and will need \
again: put in all of them.

Then write the whole instruction anew. Keep what worked, correct what failed, and add what was missing: the task and \
its form, the way to go about it step by step, the facts, rules and formulas that it takes, and the mistakes to \
avoid. It may be long and have several sections. Write for tasks like these, not about these alone.""",
    small="""\
You improve the instruction an agent works under. You see the instruction and attempts made with it, each with what \
came of it. Find out what the tasks are, what facts and steps solve them, and where the instruction misled or was \
silent. Write the whole instruction anew: keep what worked, mend what failed, and put in every fact and rule the \
agent will need for tasks like these and cannot know by itself. Do not write about single tasks.""",
    examples=(
        example(PRICES, SHOP, "# The instruction now\n(none yet)", "# Attempts", COAT_RIGHT, CUPS_WRONG),
        example(
            "Take steel where a part must be hard and stays dry. Near the sea take bronze, since steel rusts there.",
            WORKSHOP, "# The instruction now\nTake steel where a part must be hard.", "# Attempts", HINGE,
        ),
    ),
)  # fmt: skip

JOINER = Instructions(
    full="""\
Several people have each written an instruction for the same agent, from different attempts. Write one instruction \
that holds all that is useful in them, each thing once and in full: every fact, rule, step, formula and form. Where \
they contradict each other, keep what more of them say. Put what belongs together in one place. It may be long and \
have several sections.""",
    small="""\
Several people have each written an instruction for the same agent, from different attempts. Write one instruction \
that holds all that is useful in them, each thing once. Where they contradict each other, keep what more of them \
say.""",
    examples=(
        example(
            "Write the start of an event as 2026-05-09T14:30. After an error, correct the arguments and call again.",
            CALENDAR,
            "# Instruction 1\nWrite the start of an event as 2026-05-09T14:30.",
            "# Instruction 2\nAfter an error, correct the arguments and call again. Write dates as 2026-05-09T14:30.",
        ),
    ),
)
