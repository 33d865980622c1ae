"""Run: the one door to every effect, and the place each effect is journaled under.

A Run knows its place ("step 3/attempt/2.t17"); `at` and the jobs of a `gather` get a child. An effect is done once:
found in the journal it is used, else it is paid for, written, and then used. Results are taken in the order of
places, never of arrival, and chance comes from the seed and the place. From this follow resume, determinism for any
concurrency, and budgets, with no code of their own in any method.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from practicum.core.context import Context
from practicum.core.errors import AgentError, OutputError, PlaceTaken, ProviderError, WindowError
from practicum.core.types import Feedback, Prompt, Rollout, Score, Task, Trace, Usage
from practicum.core.views import View
from practicum.engine.state import House, Scorer, Seat, need_of
from practicum.models.client import JSON, CallOptions, Client, Reply
from practicum.models.prompting import (
    check_fits_window,
    describe_validation_error,
    extract_json,
    invalid_output_message,
    json_schema,
    prompt_digest,
    prompt_tokens,
    repair_prompt,
)
from practicum.retrieval.search import VISIBLE, EntryPredicate, Match
from practicum.store.journal import NOTE_ROLE, JournalRow, digest, dump_failure, load_failure, noting_refusal

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

REPAIRS = 2
"""Times a model is asked again when its output does not fit its schema."""


Act = Callable[[Task, Context, "Run"], Awaitable[Rollout]]


@dataclass
class Chain:
    """Seconds of the calls that follow one another up to some place: the longest of a run is its critical path."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Run:
    """A place in a run. `about` names the sources ("task:t1") that what happens here comes from; `teaches` is False
    where nothing is learned from it, as in evaluation; `warmth` is the agent's temperature where it is not the usual
    one, as where several attempts should differ; `member` tells such attempts apart; `actor` names
    the seat that plays the agent, where there are several."""

    house: House
    place: str = ""
    about: tuple[str, ...] = ()
    teaches: bool = True
    warmth: float | None = None
    member: int = 1
    actor: str = "agent"
    chain: Chain = field(default_factory=Chain, compare=False)

    def at(self, name: str, about: tuple[str, ...] | None = None) -> Run:
        """The place `name` below this one. Raises PlaceTaken when it is opened a second time."""
        # A name may hold a slash (ids of tasks are the user's), but must not look like a place further down.
        inner = name.replace("%", "%25").replace("/", "%2F")
        place = f"{self.place}/{inner}" if self.place else inner
        self._open(place)
        return replace(self, place=place, about=self.about if about is None else about)

    def apart(self, name: str, about: tuple[str, ...] | None = None) -> Run:
        """The same for work that goes on beside what follows here; whoever waits for it lengthens its own chain."""
        return replace(self.at(name, about), chain=Chain(self.chain.seconds))

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Held while something is in flight at this endpoint."""
        return self.house.slot(endpoint, most)

    @property
    def unread(self) -> bool:
        """Whether here, or below, an output of a model could not be read."""
        return any(f"{place}/".startswith(f"{self.place}/") for place in self.house.unread)

    def rng(self, name: str = "") -> random.Random:
        """Chance that depends on the seed and this place only."""
        return random.Random(digest(str(self.house.seed), self.place, name))

    def recall(self, name: str) -> Any:
        """What an earlier sitting noted under this name, or None."""
        known = self.house.journal.find(f"{self.place}/{name}", NOTE_ROLE)
        return None if known is None else json.loads(known.answer)

    def note(self, name: str, value: Any) -> None:
        """Keep a JSON value that a resume could not make again, such as how long something took.

        It is on the disk before any result that comes later, so nothing that rests on it can be known without it.
        """
        place = f"{self.place}/{name}"
        self._open(place)
        self.house.note(JournalRow(place, NOTE_ROLE, NOTE_ROLE, json.dumps(value), sources=self.about))

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What an action on a world outside of the run showed, as a JSON value.

        A resume does it again, since the world may live in memory, but what counts is what it showed the first time:
        so a clock or a die among the tools changes nothing that rests on it.
        """
        known = self.recall(name)
        seen = await do()
        if known is None:
            self.note(name, seen)
            return seen
        self._open(f"{self.place}/{name}")
        return known

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Run], Awaitable[T]]]]) -> list[T]:
        """Run named jobs at once, each at its own place; results in the order given.

        No job's failure cancels its siblings: they are drained, what they paid is kept, then the first failure by
        place is raised.
        """
        children = [self.apart(name) for name, _ in jobs]
        results = await asyncio.gather(
            *(job(child) for (_, job), child in zip(jobs, children, strict=True)), return_exceptions=True
        )
        self.chain.seconds = max((self.chain.seconds, *(child.chain.seconds for child in children)))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def ask(
        self, role: str, prompt: Prompt, schema: type[M], *, temperature: float | None = None, form: JSON | None = None
    ) -> M:
        """Ask a model for an object. Output that does not fit is asked for again, twice, then OutputError.

        `form` is the schema that the model is told, where it is narrower than the object's own.
        """
        wanted = json_schema(schema) if form is None else form
        for attempt in range(REPAIRS + 1):
            reply = await self._call(role, prompt, wanted, temperature, attempt)
            try:
                return schema.model_validate_json(extract_json(reply.text))
            except ValidationError as error:
                self.house.counts["repairs"] += attempt < REPAIRS
                problem = describe_validation_error(error, reply.cut)
                prompt = repair_prompt(prompt, reply.text, problem)
        self.house.counts["bad output"] += 1
        self.house.unread.append(self.place)
        self.house.trouble = invalid_output_message(role, self.house.seat(role).client.name, problem, reply.cut)
        raise OutputError(self.house.trouble)

    async def ask_fitted(self, role: str, prompt: Prompt, schema: type[M], **how: Any) -> M:
        """`ask` with a prompt of any length: what its model cannot read is cut out, and cut again where the model
        reads less than it was taken to. OutputError too where nothing helps, since a resume would get no further."""
        for n, short in enumerate(self.house.fitting(role, prompt)):
            at = self.at(f"cut {n}") if n else self
            try:
                return await noting_refusal(at, role, partial(at.ask, role, short, schema, **how))
            except WindowError as error:
                refused = str(error)
        self.house.unread.append(self.place)
        self.house.trouble = refused
        raise OutputError(refused)

    async def try_ask(
        self, role: str, prompt: Prompt, schema: type[M], lost: str, *, temperature: float | None = None
    ) -> M | None:
        """`ask_fitted` for what a run can do without; None, counted under the name `lost`, where there is no answer, or
        none that can be read."""
        try:
            return await self.ask_fitted(role, prompt, schema, temperature=temperature)
        except (OutputError, ProviderError):
            self.house.counts[lost] += 1
            return None

    async def ask_text(self, role: str, prompt: Prompt) -> str:
        """Ask a model for plain text."""
        return (await self._call(role, prompt, None, None, 0)).text

    async def agent(self, task: Task, view: View) -> Trace:
        """One attempt. A failure is data: the trace carries it."""
        trace = await self._attempt(task, view)
        whose = " of annotated runs" if view.annotated else ""
        self.house.counts[f"unknown ids{whose}"] += trace.unknown
        self.house.counts[f"{'lost' if trace.lost else 'failed'} attempts{whose}"] += trace.error is not None
        if self.house.on_attempt is not None:
            self.house.on_attempt()
        return trace

    async def _attempt(self, task: Task, view: View) -> Trace:
        try:
            return await (self._outside if self.house.agent.journaled else self._inside)(task, view)
        except AgentError as error:
            return Trace(answer="", error=str(error))
        except (OutputError, ProviderError) as error:
            # Nothing was tried that could teach: no answer came, or none that could be read.
            return Trace(answer="", error=str(error), lost=True)

    async def _inside(self, task: Task, view: View) -> Trace:
        return await self.house.agent(task, view, self)

    async def _outside(self, task: Task, view: View) -> Trace:
        agent = self.house.agent
        turns = [(t.user, t.assistant) for t in view.turns]
        question = digest(agent.identity, task.id, task.input, list(view.pages), view.note, turns)
        # As many as its model answers at once: more would push each other's turns out of its prefix cache.
        seat = self.house.seats.get("agent")
        slot = self.house.slot(agent.identity, seat.client.slots if seat is not None else None)
        return await self._effect("agent", question, _TRACE, lambda: agent(task, view, self), slot)

    async def score(self, task: Task, trace: Trace) -> Score | None:
        """How good the answer is, for reports; None where nothing can score it."""
        scorer = self.house.scorer
        if scorer is None or not self.house.scores(task):
            return None
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        try:
            if scorer.pure:
                score = await scorer(task, trace, self)
            else:
                question = digest(scorer.name, task.id, task.input, task.target or "", trace.answer)
                score = await self._effect("score", question, _SCORE, lambda: scorer(task, trace, self))
        except (ProviderError, OutputError):
            # Not a score of 0: a right answer must not be taken for a wrong one because its judge was away.
            self.house.counts["unscored"] += 1
            return None
        self.house.counts["answers whose code was stopped"] += score.stopped
        return score

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, shape (n, d); each text is embedded once in the life of the store."""
        return await self.house.vectors(texts)

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> list[Match]:
        """The k entries of a context most similar to a text, best first, ties to the older; see `retrieve`.

        What an index found is noted, since it may find other entries when it is built anew. Once a place.
        """
        known = self.recall("nearest")
        if known is None:
            search = await self.house.retriever.nearest(context, text, k, where)
            if not search.exact:
                self.note("nearest", [(near.entry.id, near.similarity) for near in search.found])
                return list(search.found)
        self._open(f"{self.place}/nearest")
        if known is None:
            return list(search.found)
        return [Match(entry, similarity) for id, similarity in known if (entry := context.get(id)) is not None]

    async def evaluate(
        self, act: Act, split: str, tasks: Sequence[Task], context: Context, repeat: int = 0
    ) -> list[Rollout]:
        """Each task once under `context`, with `act` alone. Kept by split, task and what the context shows.

        Raises ProviderError where nothing of what was missing was answered. Answers that cannot be read stop the run
        only where no evaluation ever had others: the journal holds them, so that a resume could not get past them.
        """
        top = Run(self.house, f"evaluate {split} {context.digest} {repeat}", teaches=False, chain=self.chain)
        keys = [(split, task.id, context.digest, repeat) for task in tasks]
        known = self.house.evaluated
        todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
        fresh = await top.gather([(task.id, _about(act, task, context)) for task in todo.values()])
        dead = self.house.failures or all(rollout.trace.lost for rollout in known.values())
        if fresh and dead and all(rollout.trace.lost for rollout in fresh):
            raise ProviderError(f"none of {len(fresh)} tasks could be evaluated: {fresh[0].trace.error}")
        known.update(zip(todo, fresh, strict=True))
        return [known[key] for key in keys]

    def _timed(self, record: JournalRow) -> None:
        self.chain.seconds += record.seconds
        self.house.timed(record)

    def _open(self, place: str) -> None:
        if place in self.house.opened:
            raise PlaceTaken(f"the place '{place}' was opened twice: give each effect or job a name of its own")
        self.house.opened.add(place)

    async def _effect(
        self,
        role: str,
        question: str,
        kind: TypeAdapter[T],
        do: Callable[[], Awaitable[T]],
        slot: AbstractAsyncContextManager[object] | None = None,
    ) -> T:
        """Do something that is not a model call once, and keep its result. An attempt's failure is a result too."""
        place = f"{self.place}/{role}"
        self._open(place)
        known = self.house.journal.find(place, question)
        if known is not None:
            if not known.ok:
                raise load_failure(known.answer)
            self._timed(known)
            return kind.validate_json(known.answer)
        async with slot or nullcontext():
            self.house.budget.check()
            began, before = time.monotonic(), self.chain.seconds
            record = JournalRow(place, role, question, "", sources=self.about)
            try:
                result = await do()
            except ProviderError as error:
                self.house.failures.append(replace(record, answer=dump_failure(error), ok=False))
                self.house.trouble = str(error)
                raise
            except (AgentError, OutputError) as error:
                if role == "agent":
                    await self.house.write(replace(record, answer=dump_failure(error), ok=False))
                raise
            seconds = time.monotonic() - began
            record = replace(record, answer=kind.dump_json(result).decode(), seconds=seconds)
            # The calls it made on its way are part of the time it took.
            self.chain.seconds = before
            self._timed(record)
            await self.house.write(record)
            return result

    async def _call(
        self, role: str, prompt: Prompt, schema: JSON | None, temperature: float | None, attempt: int
    ) -> Reply:
        """One model call: from the journal, or paid for and written down before anyone sees it."""
        seat = self.house.seat(self.actor if role == "agent" else role)
        place = f"{self.place}/{role}" if attempt == 0 else f"{self.place}/{role}~{attempt}"
        self._open(place)
        if temperature is None and role == "agent":
            temperature = self.warmth
        options = replace(
            seat.options,
            temperature=seat.options.temperature if temperature is None else temperature,
            seed=self.rng(role).randrange(2**31),
        )
        question = prompt_digest(role, seat.client.name, prompt, schema, options)
        known = self.house.journal.find(place, question)
        if known is not None:
            if not known.ok:
                raise ProviderError(known.answer)
            self._timed(known)
            text, cut = json.loads(known.answer)
            return Reply(text, known.usage, cut)
        return await self._pay(
            JournalRow(place, role, question, "", sources=self.about), seat.client, prompt, schema, options
        )

    async def _pay(
        self, record: JournalRow, client: Client, prompt: Prompt, schema: JSON | None, options: CallOptions
    ) -> Reply:
        house, role = self.house, record.role
        estimate = prompt_tokens(prompt)
        house.largest[role] = max(house.largest.get(role, 0), estimate)
        check_fits_window(client, role, estimate)
        need = need_of(client, estimate * house.inflation.get(client.name, 1.25), options.max_output_tokens)
        async with house.slot(client.endpoint, client.slots):
            await house.budget.reserve(need)
            began = time.monotonic()
            usage = Usage()
            try:
                reply = await client.complete(role, prompt, schema, options)
                usage = reply.usage
            except ProviderError as error:
                house.failures.append(replace(record, answer=str(error), ok=False))
                house.trouble = str(error)
                raise
            finally:
                house.budget.settle(need, usage)
            answer = json.dumps([reply.text, reply.cut], ensure_ascii=False)
            record = replace(record, answer=answer, usage=usage, seconds=time.monotonic() - began)
            self._timed(record)
            await house.write(record)
        if estimate > 200:
            seen = usage.input_tokens / estimate
            house.inflation[client.name] = max(house.inflation.get(client.name, 1.25), seen)
        return reply


_TRACE = TypeAdapter(Trace)
_SCORE = TypeAdapter(Score)


def _about(act: Act, task: Task, context: Context) -> Callable[[Run], Awaitable[Rollout]]:
    return lambda run: act(task, context, replace(run, about=(f"task:{task.id}",)))


def feedback(task: Task, trace: Trace, score: Score | None, labels: bool) -> Feedback:
    """What learning may see. Without labels only an execution error says anything."""
    if trace.error is not None:
        return Feedback(False, f"The attempt failed: {trace.error}")
    if not labels or score is None:
        return Feedback(None, "Nothing is known about whether the answer is right.")
    note = f" {score.note}" if score.note else ""
    if score.correct:
        return Feedback(True, f"The answer is right.{note}", task.target)
    right = f" The right answer is: {task.target}" if task.target is not None else ""
    return Feedback(False, f"The answer is wrong.{right}{note}", task.target)


__all__ = ["REPAIRS", "Act", "House", "Run", "Scorer", "Seat", "feedback"]
