"""The `dspy` package's MIPROv2, with our seams as its program and its models (Opsahl-Ong et al., 2024, section 4).

The package draws sets of demonstrations from attempts that went well, has a model propose instructions, and searches
their combinations by Bayesian optimization; `attempt`, `act` and the curator's model do the rest. It runs behind a
bridge, and each comparison it makes ends a step. Instructions and demonstrations are entries: those of the best
combination are shown, the others hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from practicum.blocks.act.show import Answer, answer
from practicum.blocks.search.candidates import SECTION, compare, instruction_view, ranked, visible_score
from practicum.blocks.search.dspy_adapter import START, Attempt, Candidate, Compare, MiproSettings, Say, Tried, work
from practicum.blocks.search.thread_bridge import Bridge
from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, Update
from practicum.core.errors import OutputError, ProviderError, UsageError
from practicum.core.types import Rollout, Task
from practicum.core.views import View, render_turns
from practicum.engine.loop import Batch, Clock, Losses, Method, Schedule, StepReport, Validation
from practicum.engine.run import Run

DEMOS = "demonstrations"
"""The section of the demonstrations that are shown."""

HIDDEN = {SECTION: f".{SECTION}", DEMOS: f".{DEMOS}"}
"""Where instructions and demonstrations stand that are not part of the best combination."""

COMPARED = 0.8
"""The share of the tasks that compares candidates where there are no validation tasks (the package's)."""


def answer_with_combination() -> Answer:
    """An attempt under the instruction and the demonstrations that are shown, the latter as earlier turns."""

    async def show(context: Context, task: Task, run: Run) -> View:
        view = instruction_view(best[0].text) if (best := ranked(context)) else View()
        turns = render_turns(demonstrations(context))
        return replace(view, turns=turns.turns, tokens=view.tokens + turns.tokens)

    return answer(show)


def demonstrations(context: Context) -> list[Entry]:
    """Those that are shown, in their order; one written by hand may have no answer."""
    found = (e for e in context.in_section(DEMOS) if "answer" in e.data)
    return sorted(found, key=lambda e: int(e.data.get("turn", 0)))


def bayesian_search(how: MiproSettings) -> Schedule:
    """A schedule of trials of combinations. Candidates are compared on the validation tasks; without those, on most of
    the tasks, and the agent learns from the rest."""

    def schedule(
        method: Method, tasks: Sequence[Task], context: Context, run: Run, validation: Validation | None = None
    ) -> AsyncIterator[StepReport]:
        return _Searching(how, method, tasks, context, run, validation).steps()

    return schedule


@dataclass
class _Searching:
    """Fulfils the package's wishes, and makes a step of each comparison."""

    how: MiproSettings
    method: Method
    tasks: Sequence[Task]
    context: Context
    run: Run
    validation: Validation | None
    start: Context = field(init=False)
    learned: dict[str, Task] = field(init=False)
    about: tuple[str, ...] = field(init=False)
    step: int = 0
    at: Run = field(init=False)
    clock: Clock = field(init=False)
    rollouts: list[Rollout] = field(default_factory=list)
    tried: dict[tuple[Candidate, str], Rollout] = field(default_factory=dict)
    scored: dict[tuple[Candidate, str], Rollout] = field(default_factory=dict)
    parts: dict[Candidate, list[float]] = field(default_factory=dict)
    wholes: dict[Candidate, float] = field(default_factory=dict)
    ids: dict[str | tuple[str, str], str] = field(default_factory=dict)
    asked: int = 0

    async def steps(self) -> AsyncIterator[StepReport]:
        """Run to the end."""
        losses = Losses(self.run)
        learned, others = self._split()
        self.learned = {task.id: task for task in learned}
        self.about = tuple(dict.fromkeys(source for task in learned for source in task.sources))
        self.start, known = self.context, ranked(self.context)
        told = "\n\n".join(part for part in (self.run.instructions, known[0].text if known else "") if part)
        if known:
            self.ids[START.text] = known[0].id
        self._next()
        async with Bridge(work(self.how, told, learned, others, self.run.seed, self.run.labels)) as bridge:
            async for wish in bridge:
                match wish.what:
                    case Attempt(candidate, task):
                        wish.answer.set_result(await self._attempted(candidate, task, losses))
                    case Say() as say:
                        wish.answer.set_result(await self._said(say))
                    case Compare(candidate, tasks):
                        rollouts = await self._compared(candidate, tasks)
                        yield self._report(candidate, rollouts, whole=len(tasks) == len(others))
                        self._next()
                        wish.answer.set_result([self._told(rollout) for rollout in rollouts])
        losses.close()

    def _split(self) -> tuple[list[Task], list[Task]]:
        """Tasks to learn from, and tasks to compare on."""
        order = list(self.tasks)
        if self.validation is not None:
            return order, list(self.validation.tasks)
        if len(order) < 2:
            raise UsageError("method mipro compares on tasks it does not learn from: give --val, or at least 2 tasks")
        self.run.at("split").rng().shuffle(order)
        cut = len(order) - max(1, int(COMPARED * len(order)))
        return order[:cut], order[cut:]

    def _next(self) -> None:
        self.step += 1
        self.at = self.run.at(f"step {self.step}")
        self.clock = Clock(self.at)
        self.rollouts = []

    async def _attempted(self, candidate: Candidate, task: Task, losses: Losses) -> Tried:
        """An attempt under the same candidate is made once: the package asks again for each of its sets."""
        key = candidate, task.id
        if key not in self.tried:
            place = self.at.at(f"attempt {len(self.rollouts) + 1}")
            (self.tried[key],) = made = await self.method.attempt(Batch((task,)), self._shown(candidate), place)
            losses.count(made, ())
            self.rollouts += made
        return self._told(self.tried[key])

    async def _said(self, say: Say) -> dict[str, str]:
        """The texts asked for; each empty where the call failed, which is counted."""
        self.asked += 1
        at = self.at.at(f"ask {self.asked}", self.about)
        try:
            said = await at.ask_fitted("curator", say.prompt, _form(say.name, say.texts), temperature=say.warmth)
        except (OutputError, ProviderError):
            at.count(Count.LOST_UPDATES)
            return {name: "" for name, _ in say.texts}
        return {name: str(text).strip() for name, text in said.model_dump().items()}

    async def _compared(self, candidate: Candidate, tasks: tuple[Task, ...]) -> list[Rollout]:
        """What comes of these tasks; what is known of this candidate already is not attempted again."""
        todo = [task for task in tasks if (candidate, task.id) not in self.scored]
        if todo:
            split = "compared" if self.validation is None else "val"
            made = await compare(self.method.act, split, todo, self._shown(candidate), self.at)
            self.scored.update(((candidate, r.task.id), r) for r in made)
        return [self.scored[candidate, task.id] for task in tasks]

    def _told(self, rollout: Rollout) -> Tried:
        good = rollout.feedback.success is True and bool(rollout.trace.answer)
        return Tried(rollout.trace.answer, visible_score(rollout, self.run) or 0.0, good)

    def _shown(self, candidate: Candidate) -> Context:
        """A context of this candidate alone."""
        if candidate == START:
            return self.start
        known = ranked(self.start)
        text = candidate.text or (known[0].text if known else "")
        adds = [Add(SECTION, text)] if text else []
        adds += [self._demo(demo, turn) for turn, demo in enumerate(candidate.demos)]
        return Context().apply(Delta(tuple(adds))).context

    def _demo(self, demo: tuple[str, str], turn: int) -> Add:
        """A demonstration's entry; what it comes from is its task, and the attempts that gave this answer."""
        id, text = demo
        task = self.learned[id]
        made = (r for (_, of), r in self.tried.items() if of == id and r.trace.answer == text)
        sources = dict.fromkeys((*task.sources, *(source for rollout in made for source in rollout.sources)))
        return Add(DEMOS, task.input, data={"answer": text, "turn": turn}, sources=tuple(sources))

    def _report(self, candidate: Candidate, rollouts: Sequence[Rollout], whole: bool) -> StepReport:
        score = fmean(visible_score(rollout, self.run) or 0.0 for rollout in rollouts)
        if whole:
            self.wholes.setdefault(candidate, score)
        self.parts.setdefault(candidate, []).append(score)
        # As the package has it: only what was compared on all tasks can be the best, and the older one on ties.
        best = max(self.wholes, key=lambda one: self.wholes[one])
        outcome = self.context.apply(self._delta(candidate, best))
        self.context = outcome.context
        instruction, demos = self._entries(candidate)
        data = {
            "instruction": instruction, "demonstrations": demos,
            "score": round(score, 6), "compared": len(rollouts), "best_score": round(self.wholes[best], 6),
        }  # fmt: skip
        batch = Batch(tuple(r.task for r in self.rollouts), arm=instruction, data=data)
        return StepReport(
            self.step, batch, tuple(self.rollouts), (), self.context, outcome.applied, outcome.refused, (),
            self.clock.stop(), self.wholes[best] if self.validation is not None else None,
        )  # fmt: skip

    def _delta(self, candidate: Candidate, best: Candidate) -> Delta:
        """What this candidate brings that is new; of the rest, what is shown now and what is not, and the scores."""
        adds: list[Add] = []
        if candidate.text and candidate.text not in self.ids:
            self._number(candidate.text, adds, Add(SECTION, candidate.text, sources=self.about))
        for demo in candidate.demos:
            if demo not in self.ids:
                self._number(demo, adds, self._demo(demo, 0))
        made = self.context.apply(Delta(tuple(adds))).context
        instruction, demos = self._entries(best)
        edits: list[Update] = []
        for entry in made:
            section, data = entry.section.removeprefix("."), dict(entry.data)
            if section not in HIDDEN:
                continue
            if section == SECTION:
                data |= self._worth_of(entry.id)
            elif entry.id in demos:
                data["turn"] = demos.index(entry.id)
            section = section if entry.id in (instruction, *demos) else HIDDEN[section]
            if (section, data) != (entry.section, dict(entry.data)):
                edits.append(Update(entry.id, section=section, data=data))
        return Delta((*adds, *edits))

    def _number(self, what: str | tuple[str, str], adds: list[Add], add: Add) -> None:
        self.ids[what] = f"e{self.context.next_number + len(adds)}"
        adds.append(add)

    def _entries(self, candidate: Candidate) -> tuple[str | None, list[str]]:
        """The entries of an instruction and of its demonstrations, these in order."""
        if candidate == START:
            demos = [e.id for e in demonstrations(self.start)]
        else:
            demos = [self.ids[demo] for demo in candidate.demos]
        return self.ids.get(candidate.text), demos

    def _worth_of(self, id: str) -> dict[str, Any]:
        """An instruction's score with the demonstrations it did best with; one on all tasks counts before others."""
        ways = [one for one in self.parts if self.ids.get(one.text) == id]
        if not ways:
            return {}
        best = max(ways, key=lambda one: (one in self.wholes, self.wholes.get(one, fmean(self.parts[one]))))
        score = self.wholes.get(best, fmean(self.parts[best]))
        return {"score": round(score, 6), "with": [self.ids[demo] for demo in best.demos]}


@cache
def _form(name: str, texts: tuple[tuple[str, str], ...]) -> type[BaseModel]:
    """What the model is asked for: these texts, each with what it is."""
    fields: dict[str, Any] = {text: (Annotated[str, MaxChars(4000)], Field(description=what)) for text, what in texts}
    return create_model(name, __base__=Output, **fields)
