"""Run: the only way to every effect, and the place under which each effect is journaled.

A Run knows its place ("step 3/attempt/2.t17"); `at` and the jobs of a `gather` get places below it. An effect is done
once: if the journal has its result, that is used; else the effect is paid for, written, and then used. Results are used
in the order of places, never of arrival, and randomness comes from the seed and the place. Resume, budgets and
determinism at any concurrency follow from this, without code for them in any method.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Refused
from practicum.core.errors import (
    AgentError,
    MethodError,
    OutputError,
    PlaceTaken,
    ProviderError,
    RequestError,
    Stopped,
    UsageError,
    WindowError,
)
from practicum.core.thoughts import SILENCES, silence, split_thoughts
from practicum.core.trust import least, trust_of
from practicum.core.types import Feedback, Profile, Prompt, Rollout, Score, Task, Trace, Usage
from practicum.core.views import View
from practicum.engine.asking import ask_for
from practicum.engine.door import Admitted, named_entries, said
from practicum.engine.framing import framed_prompt, framed_view
from practicum.engine.specifics import tell_apart
from practicum.engine.state import TOKEN_RATIO, ModelCall, RunState
from practicum.models.budget import Need
from practicum.models.client import JSON, CallOptions, Client, Reply, Wait
from practicum.models.prompting import (
    check_fits_window,
    prompt_digest,
    prompt_tokens,
)
from practicum.models.receiving import received
from practicum.retrieval.scripts import alike
from practicum.retrieval.search import VISIBLE, EntryPredicate, Match
from practicum.retrieval.vectors import same_from
from practicum.store.journal import (
    NOTE_ROLE,
    JournalRow,
    digest,
    dump_failure,
    load_failure,
    noting_refusal,
    request_error,
)
from practicum.store.reviews import PENDING, REJECTED, WHY
from practicum.tasks.scoring.registry import meta_fault
from practicum.tasks.scoring.rules import named_choices

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

CODE = "code"
"""Ends the place of a note on why the provider refused a request."""

REFUSED: Mapping[str, Count] = {
    "provider.filtered": Count.FILTERED_REQUESTS, "provider.refused": Count.REFUSED_REQUESTS,
    "output.invalid": Count.INVALID_SAMPLES,
}  # fmt: skip
"""Counters of refused requests, by the code of the error."""

KEPT = ". What was paid for is kept: correct the method and resume the run"
"""Ends every error about a mistake in a method."""

ActSeam = Callable[[Task, Context, "Run"], Awaitable[Rollout]]


@dataclass
class Chain:
    """What one line of work has behind it, up to some place: the seconds of calls that waited for each other (a run's
    longest chain is its critical path), the number of calls since its job began, the places of the provider's failures
    that it may rest on, and whether a model that learns read the playbook.

    Jobs of one `gather` have a chain each, so none of them makes the failure of another one permanent.
    """

    seconds: float = 0.0
    calls: int = 0
    losses: set[str] = field(default_factory=set)
    playbook: bool = False

    def apart(self) -> Chain:
        """The chain of a job that begins here."""
        return Chain(self.seconds, losses={*self.losses}, playbook=self.playbook)

    def join(self, others: Iterable[Chain]) -> None:
        """Go on after these chains."""
        for other in others:
            self.seconds = max(self.seconds, other.seconds)
            self.losses |= other.losses
            self.playbook |= other.playbook


@dataclass(frozen=True)
class Run:
    """A place in a run, and the only way to every effect: model calls, attempts, scores, embeddings, chance.

    `about` names the sources ("task:t1") of what happens here. `teaches` is False in evaluation. `warmth` is the
    agent's temperature if several attempts should differ, and `member` numbers such attempts. `actor` names the seat
    that plays the agent, where there are several. `job` is the place of the concurrent job that this belongs to.
    `opened` are the places opened right below this one, which are forgotten with it; None where nothing is above it, so
    that others may open them, too.
    """

    _state: RunState
    place: str = ""
    about: tuple[str, ...] = ()
    teaches: bool = True
    warmth: float | None = None
    member: int = 1
    actor: str = "agent"
    job: str = ""
    chain: Chain = field(default_factory=Chain, compare=False)
    opened: set[str] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Run at {self.place!r}>"

    @property
    def labels(self) -> bool:
        """Whether learning may see targets and scores."""
        return self._state.labels

    @property
    def profile(self) -> Profile:
        """What the models of the run can do."""
        return self._state.profile

    def room(self, role: str) -> int:
        """The tokens that a prompt of this role may have, by estimate."""
        return self._state.room(role)

    @property
    def sections(self) -> Mapping[str, str]:
        """The sections of a playbook, in order, each with what belongs there."""
        return self._state.sections

    @property
    def same_from(self) -> float:
        """The cosine similarity from which two entries count as the same, by the embedder."""
        return same_from(self._state.vectors.embedder.name, self.profile)

    @property
    def judged(self) -> bool:
        """Whether a judge gives feedback where there are no labels."""
        return self._state.judged

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible answers, where they are few; else empty."""
        return self._state.choices

    @property
    def only_answers(self) -> bool:
        """Whether the agent only answers: it uses no tools, so that its answer is all there is to show."""
        return not self._state.agent.journaled

    @property
    def seed(self) -> int:
        return self._state.seed

    @property
    def instructions(self) -> str:
        """What the user instructs the agent to do, beside the task."""
        return self._state.instructions

    @property
    def agent_instructions(self) -> list[str]:
        """The part of a prompt that quotes the agent's instructions; empty if it has none."""
        return [f"# What the agent is told\n{self.instructions}"] if self.instructions else []

    @property
    def scorer_name(self) -> str | None:
        """The scorer's name; None if nothing is scored."""
        return None if self._state.scorer is None else self._state.scorer.name

    @property
    def answers_known(self) -> bool:
        """Whether learning sees the targets and these could be answers: `regex` has patterns."""
        return self.labels and self.scorer_name != "regex"

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted in this run so far."""
        return self._state.counts

    @property
    def hits(self) -> int:
        """How many effects the journal has saved so far."""
        return self._state.journal.hits

    @property
    def provider_failed(self) -> bool:
        """Whether the provider failed before this place, and no result rests on that yet."""
        return not self.chain.losses.isdisjoint(self._state.lost)

    @property
    def last_error(self) -> str:
        """The last failure of a model."""
        return self._state.last_error

    @property
    def unparsed(self) -> bool:
        """Whether an output of a model could not be parsed at this place or below it."""
        return any(f"{place}/".startswith(f"{self.place}/") for place in self._state.unparsed)

    def count(self, counter: Count, by: int = 1) -> None:
        self._state.counts[counter] += by

    def at(self, name: str, about: tuple[str, ...] | None = None) -> Run:
        """The place `name` below this one. Raises PlaceTaken if it was opened before."""
        # A name may hold a slash (task ids are the user's), but must not look like a place further down.
        inner = name.replace("%", "%25").replace("/", "%2F")
        place = f"{self.place}/{inner}" if self.place else inner
        self._open(place)
        return replace(self, place=place, about=self.about if about is None else about, opened=set())

    def apart(self, name: str, about: tuple[str, ...] | None = None) -> Run:
        """The same for work that runs beside what follows here: it is a job with a chain of its own."""
        at = self.at(name, about)
        return replace(at, job=at.place, chain=self.chain.apart())

    def begins(self) -> None:
        """The job at this place, which `apart` made, is about to begin."""
        self._state.proof.begins(self.job)

    async def do(self, job: Callable[[Run], Awaitable[T]]) -> T:
        """The result of a job at this place, which `apart` made."""
        try:
            return await job(self)
        finally:
            self._state.proof.ended(self.job)

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """The semaphore that is held while something is in flight at this endpoint."""
        return self._state.slot(endpoint, most)

    @property
    def reusable(self) -> dict[str, dict[tuple[object, str, int], Rollout]]:
        """Attempts that may be reused for another task, by the digest of their context."""
        return self._state.reusable

    def rng(self, name: str = "") -> random.Random:
        """Randomness that depends on nothing but the seed and this place."""
        return random.Random(digest(str(self.seed), self.place, name))

    def recall(self, name: str) -> Any:
        """What was noted here under this name before a resume, or None."""
        known = self._state.journal.find(f"{self.place}/{name}", NOTE_ROLE)
        return None if known is None else json.loads(known.answer)

    def note(self, name: str, value: Any) -> None:
        """Store a JSON value that a resume could not compute again, such as a duration, before any later result."""
        place = f"{self.place}/{name}"
        self._open(place)
        row = JournalRow(place, NOTE_ROLE, NOTE_ROLE, json.dumps(value), sources=self.about)
        if self.provider_failed:
            # A resume tries a lost call again, and must not find what followed from the loss.
            self._lose(row)
        else:
            self._state.journal.post(row)

    def _lose(self, row: JournalRow) -> None:
        self._state.lost[row.place] = row
        self.chain.losses.add(row.place)

    async def _lose_call(self, record: JournalRow, error: ProviderError) -> None:
        """Keep the failure of a call. A request that the provider refused would be refused again: that is a result,
        which a resume does not ask for again."""
        self._state.last_error = str(error)
        failure = replace(record, answer=str(error), ok=False)
        if isinstance(error, RequestError):
            code = JournalRow(f"{record.place} {CODE}", NOTE_ROLE, NOTE_ROLE, error.code, sources=self.about)
            self._count_refused(error)
            await self._write(code, failure)
        else:
            self._lose(failure)

    async def _write(self, *rows: JournalRow) -> None:
        """Write results to disk, together with the failures that they may rest on: a resume never forgets a failure
        that the run went on from, and tries again what was lost besides."""
        settled = self._state.settle(self.chain.losses)
        self.chain.losses.clear()
        await self._state.journal.write(*settled, *rows)

    def try_again(self, places: Sequence[str]) -> None:
        """Have a resume try again what the provider failed at or below these places. Other results there count as long
        as the same is asked."""
        self._state.journal.note_outage(again=places)

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What an action on the outside world returned, as a JSON value. A resume repeats the action, because the world
        may live in memory, but returns the first result."""
        known = self.recall(name)
        result = self._redacted(await do())
        if known is None:
            self.note(name, result)
            return result
        self._open(f"{self.place}/{name}")
        return known

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What a decision returned, as a JSON value. A resume does not ask for it again."""
        known = self.recall(name)
        if known is None:
            self.note(name, known := await do())
        else:
            self._open(f"{self.place}/{name}")
        return known

    def _redacted(self, value: T) -> T:
        """The value without what must not be stored or sent."""
        return value if self._state.redactor is None else self._state.redactor(value)

    def restored(self, value: T) -> T:
        """The value with what its placeholders stand for, if the run's user keeps that: for code of the user alone."""
        return value if self._state.redactor is None else self._state.redactor.restored(value)

    def kept_of(self, value: object) -> dict[str, str]:
        """What `restored` puts in place of the placeholders in this value."""
        return {} if self._state.redactor is None else self._state.redactor.kept_of(value)

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Run], Awaitable[T]]]]) -> list[T]:
        """Run named jobs concurrently, each at its own place. Returns the results in the order of the jobs.

        A failure cancels no sibling, so what they pay for is kept; then the first in the order of the jobs is raised.
        """
        children = [self.apart(name) for name, _ in jobs]
        self._state.proof.ended(self.job)
        for child in children:
            child.begins()
        if len(jobs) == 1:
            # Nobody runs beside it, so it needs no task of its own.
            results: list[T | BaseException] = [await children[0].do(jobs[0][1])]
        else:
            results = await asyncio.gather(
                *(child.do(job) for (_, job), child in zip(jobs, children, strict=True)), return_exceptions=True
            )
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        if isinstance(failure, Stopped):
            # Nothing goes on from here, and what was lost is tried again.
            raise failure
        self.chain.join(child.chain for child in children)
        if failure is not None:
            raise failure
        return [result for result in results if not isinstance(result, BaseException)]

    async def ask(
        self,
        role: str,
        prompt: Prompt,
        schema: type[M],
        *,
        temperature: float | None = None,
        form: JSON | None = None,
        output_tokens: int = 0,
    ) -> M:
        """Ask a model for an object of this schema.

        The model is asked again, twice, if its output does not fit. `form` is the JSON schema that the model is given,
        if it is not that of the object. `output_tokens` raises the limit of an answer. Raises OutputError if no output
        fits, ProviderError if the provider fails, and WindowError if the prompt is too large for the model.
        """
        prompt = self._framed(role, prompt)
        return await ask_for(self, role, prompt, schema, form, temperature=temperature, output_tokens=output_tokens)

    async def reply(
        self,
        role: str,
        prompt: Prompt,
        form: JSON,
        *,
        again: int = 0,
        temperature: float | None = None,
        output_tokens: int = 0,
    ) -> Reply:
        """What a model replied when it was asked for JSON of this form, for the `again`th time at this place."""
        if again:
            self.count(Count.REPAIRED_OUTPUTS)
        return await self._call(role, prompt, form, temperature, again, output_tokens)

    async def mended(self, role: str) -> None:
        """Count an answer of a role whose JSON had to be mended."""
        self.count(Count.MENDED_JSON)

    async def give_up(self, role: str, problem: str, advice: str) -> OutputError:
        """The error of a role whose last output did not fit either. `advice` says what to change."""
        self.count(Count.UNPARSED_OUTPUTS)
        self._state.unparsed.append(self.place)
        model = self._state.seat(role).client.name
        self._state.last_error = (
            f"the {role} ({model}) gave no valid output, asked three times: {problem}{advice}"
        )  # fmt: skip
        return OutputError("output.invalid", self.last_error)

    async def ask_fitted(self, role: str, prompt: Prompt, schema: type[M], **how: Any) -> M:
        """`ask` with a prompt of any length: it is shortened until the model accepts it. Raises OutputError if it never
        does, because a resume would fail in the same way."""
        for n, short in enumerate(self._state.fitting(role, prompt)):
            at = self.at(f"cut {n}") if n else self
            try:
                return await noting_refusal(at, role, partial(at.ask, role, short, schema, **how))
            except WindowError as error:
                refused = str(error)
        self._state.unparsed.append(self.place)
        self._state.last_error = refused
        raise OutputError("window.exceeded", refused)

    async def try_ask(
        self, role: str, prompt: Prompt, schema: type[M], lost: Count, *, temperature: float | None = None
    ) -> M | None:
        """`ask_fitted` for what a run can do without. Returns None, and raises the counter `lost`, if there
        is no answer or none that can be parsed."""
        try:
            return await self.ask_fitted(role, prompt, schema, temperature=temperature)
        except (OutputError, ProviderError):
            self.count(lost)
            return None

    async def ask_text(self, role: str, prompt: Prompt, choices: Sequence[str] = ()) -> str:
        """Ask a model for plain text, which is one of the `choices` if its server can hold it to them. A text that
        ended at the limit of output tokens is taken as it is, and counted. Raises OutputError if there is no text."""
        prompt = self._framed(role, prompt)
        held = choices and self._state.seat(self.actor if role == "agent" else role).client.holds_to_choices
        reply = await self._call(role, prompt, {"enum": [*choices]} if held else None, None, 0)
        if reply.silence is not None:
            raise self.silent(reply.silence, self._state.seat(self.actor if role == "agent" else role).client.name)
        self.count(Count.CUT_TEXTS, reply.cut)
        return reply.text

    def silent(self, why: Count, who: str) -> OutputError:
        """The error for an answer without text, which says what to change. `who` gave it: a model or an agent."""
        self._state.last_error = f"the answer of {who} {SILENCES[why]}"
        return OutputError("output.empty", self.last_error)

    def _framed(self, role: str, prompt: Prompt) -> Prompt:
        """The prompt with its material between marks. That of the agent has its pages framed, and its task as it is."""
        return prompt if role == "agent" else framed_prompt(prompt, self._state.nonce)

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        """Tell who watches the run that a step begins."""
        self._state.observer.stepping(step, tasks, steps)

    async def agent(self, task: Task, view: View, *, must_fit: bool = False) -> Trace:
        """One attempt of the agent. A failure is data: the trace carries it as `error`. Raises BrokenAgentError if all
        of the first attempts failed, and with `must_fit` WindowError if the prompt is larger than the model's window.
        """
        proof, broken, before = self._state.proof, False, self.chain.calls
        view = framed_view(view, self._state.nonce)
        proof.begins(self.job)
        try:
            trace = self._said(await self._attempt(task, view))
        except AgentError as error:
            trace, broken = Trace(answer="", error=str(error)), True
        except (OutputError, ProviderError) as error:
            if must_fit and isinstance(error, WindowError):
                raise
            # There is nothing to learn from: no answer came, or none that could be parsed.
            trace = Trace(answer="", error=str(error), lost=True, refused=isinstance(error, RequestError))
            self.count(Count.OVERLONG_REQUESTS, isinstance(error, WindowError))
            if isinstance(error, RequestError) and not self._state.agent.max_turns:
                self._count_refused(error)  # an agent of the user's own asked its model by itself
        finally:
            proof.ended(self.job)
            self._needed(self.chain.calls - before)
        if not self._state.trust_tools and any(step.kind == "observation" for step in trace.steps):
            trace = replace(trace, trust=least(trace.trust, "tool"))
        if view.annotated:
            self.count(Count.ANNOTATED_UNKNOWN_IDS, trace.unknown)
            failure = Count.ANNOTATED_LOST_ATTEMPTS if trace.lost else Count.ANNOTATED_FAILED_ATTEMPTS
        else:
            self.count(Count.UNKNOWN_IDS, trace.unknown)
            if self.choices and trace.error is None:
                self.count(Count.UNCLEAR_CHOICES, len(named_choices(self.choices, trace.answer)) != 1)
            failure = Count.LOST_ATTEMPTS if trace.lost else Count.FAILED_ATTEMPTS
        self.count(failure, trace.error is not None)
        self.count(Count.REFUSED_CALLS, len(trace.data.get("refused", ())))
        self._state.observer.attempted(task, trace)
        if broken:
            proof.told(self.job, task.id, str(trace.error))
        return trace

    def _said(self, trace: Trace) -> Trace:
        """The trace of an attempt with its answer apart from its thoughts. Raises OutputError if an agent that reports
        no steps says nothing: its attempt is not a wrong answer."""
        if trace.error is not None:
            return trace
        answer = split_thoughts(trace.answer)
        if (why := silence(answer)) is not None and not trace.steps:
            self.count(why)
            raise self.silent(why, "the agent")
        return replace(trace, answer=answer.text, reasoning=trace.reasoning or answer.thoughts)

    def _needed(self, calls: int) -> None:
        """An attempt made so many calls."""
        state = self._state
        if calls > state.most_calls:
            state.most_calls = calls
            if state.longer_attempt is not None:
                state.longer_attempt()

    async def require_working_agent(self) -> None:
        """Wait until an attempt has ended otherwise than by an error of the agent, or no attempt has failed so. Raises
        BrokenAgentError if no job is left that could make one."""
        proof = self._state.proof
        proof.ended(self.job)
        while proof.failures and not proof.given:
            self._state.budget.check()
            if not proof.coming:
                raise proof.error()
            await proof.change()

    async def _attempt(self, task: Task, view: View) -> Trace:
        agent = self._state.agent
        if not agent.journaled:
            return await agent(task, view, self)
        turns = [(t.user, t.assistant) for t in view.turns]
        question = digest(agent.identity, task.id, task.input, list(view.pages), view.note, turns)
        shown = Prompt("", "\n\n".join(filter(None, (task.input, view.note))), view.pages, view.turns)
        # More attempts than the model has slots would evict each other's turns from its prefix cache.
        seat = self._state.seats.get("agent")
        slot = self._state.slot(agent.identity, seat.client.slots if seat is not None else None)
        # An agent that asks models sees what is in the journal, and gives its tools the values themselves.
        given = (task, view) if agent.max_turns else (self.restored(task), self.restored(view))
        return await self._effect("agent", question, TRACE, lambda: agent(*given, self), slot, shown)

    async def score(self, task: Task, trace: Trace) -> Score | None:
        """The score of an answer, for reports; None if nothing can score it."""
        score = self._redacted(await self._score(task, trace))
        self._state.observer.scored(task, None if trace.lost else score)
        return score

    async def _score(self, task: Task, trace: Trace) -> Score | None:
        scorer = self._state.scorer
        if scorer is None or (task.target is None and scorer.needs_target) or meta_fault(scorer.name, task.meta):
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
            # Not a score of 0: a right answer must not count as wrong because the judge failed.
            self.count(Count.UNSCORED_ATTEMPTS)
            return None
        self.count(Count.STOPPED_PROGRAMS, score.stopped)
        self.count(Count.UNTESTABLE_ANSWERS, score.untestable)
        self.count(Count.UNFENCED_PROGRAMS, score.unfenced)
        return score

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, shape (n, d). Each text is embedded once in the life of a store."""
        return await self._state.vectors(texts)

    def require_own(self, sources: Iterable[str]) -> None:
        """For a method that tries what it writes at once. Raises UsageError if something that would have to wait for
        review is among what it learns from."""
        if self._state.door.review != "none" and (level := trust_of(sources)) != "own":
            raise UsageError(
                "review.impossible",
                f"the attempts of this method brought what is no longer the operator's own ({level}), and what it "
                "writes of that is tried at once: give `review=none`, or `trust_tools` if it is all your own, or learn "
                "with another method",
            )

    def ready(self, delta: Delta) -> tuple[Delta, Delta]:
        """The part of a delta that may enter the context now, and the part that waits for review."""
        ready, held = self._state.door.split(delta.edits)
        return replace(delta, edits=tuple(ready)), Delta(tuple(edit for group in held for edit in group.edits))

    async def admit(self, delta: Delta) -> Admitted:
        """The delta at the door. Refused is what a review rejected before, in other words too, what waits for one in
        the same words, and what builds on either."""
        door, refused = self._state.door, list[Refused]()
        if door.known:
            new = [edit for edit in delta.edits if said(edit)]
            rejected = await self._rejected([said(edit) for edit in new])
            states = (
                REJECTED if before else PENDING if door.repeats(edit) else ""
                for edit, before in zip(new, rejected, strict=True)
            )
            refused = [Refused(edit, WHY[state]) for edit, state in zip(new, states, strict=True) if state]
            self.count(Count.KNOWN_TO_REVIEW, len(refused))
            gone = {one.edit.ref: one.reason for one in refused if isinstance(one.edit, Add) and one.edit.ref}
            builds = ((edit, gone.keys() & named_entries(edit)) for edit in delta.edits)
            refused += [Refused(edit, gone[min(refs)]) for edit, refs in builds if refs]
        out = {id(refusal.edit) for refusal in refused}
        ready, held = door.split(edit for edit in delta.edits if id(edit) not in out)
        door.known |= {text: PENDING for group in held for edit in group.edits if (text := said(edit))}
        self.count(Count.HELD_EDITS, len(held))
        return Admitted(replace(delta, edits=tuple(ready)), tuple(held), (*delta.refused, *refused))

    async def _rejected(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether a review rejected one that says the same, in other words too."""
        known = [text for text, state in self._state.door.known.items() if state == REJECTED]
        if not texts or not known:
            return [False] * len(texts)
        both = [*texts, *known]
        similar = alike(both, await self.embed(both), len(texts), self.same_from)
        # Similar texts with another number, name or answer say something else.
        return [
            any(not tell_apart(text, known[int(n)], self.choices) for n in np.flatnonzero(row))
            for text, row in zip(texts, similar, strict=True)
        ]

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> list[Match]:
        """The `k` entries of a context that are most similar to a text, best first, once at each place. Ties go to the
        older entry. What an index finds is noted, because a rebuilt index may find other entries."""
        known = self.recall("nearest")
        if known is not None:
            self._open(f"{self.place}/nearest")
            return [Match(entry, similarity) for id, similarity in known if (entry := context.get(id)) is not None]
        search = await self._state.retriever.nearest(context, text, k, where)
        if search.exact:
            self._open(f"{self.place}/nearest")
        else:
            self.note("nearest", [(near.entry.id, near.similarity) for near in search.found])
        return list(search.found)

    async def evaluate(
        self, act: ActSeam, split: str, tasks: Sequence[Task], context: Context, repeat: int = 0
    ) -> list[Rollout]:
        """One attempt at each task under `context`, with `act` alone. Results are kept by split, task and what the
        context shows, so a second evaluation of the same costs nothing.

        Raises ProviderError if no new attempt was answered. Unparsed answers stop the run only if no evaluation ever
        had others: the journal holds them, so a resume could not get past them.
        """
        # What is asked there follows from the place, so it rests on no failure.
        chain = Chain(self.chain.seconds)
        top = Run(self._state, f"evaluate {split} {context.digest} {repeat}", teaches=False, chain=chain)
        keys = [(split, task.id, context.digest, repeat) for task in tasks]
        known = self._state.evaluated
        todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
        fresh = await top.gather([(task.id, partial(_attempt, act, task, context)) for task in todo.values()])
        await self.require_working_agent()
        self.chain.join([chain])
        self._state.rests_on.update(dict.fromkeys(todo, frozenset(chain.losses)))
        self.chain.losses.update(*(self._state.rests_on.get(key, ()) for key in keys))
        dead = self.provider_failed or all(rollout.trace.lost for rollout in known.values())
        if fresh and dead and all(rollout.trace.lost for rollout in fresh):
            # A resume, or the same command, asks again for answers without text: the model's server may have changed.
            self.try_again([top.place])
            raise ProviderError(
                "attempts.all_failed", f"none of {len(fresh)} tasks could be evaluated: {fresh[0].trace.error}"
            )
        known.update(zip(todo, fresh, strict=True))
        if self._state.keep_evaluated is not None:
            self._state.keep_evaluated(fresh)
        return [known[key] for key in keys]

    def _timed(self, record: JournalRow) -> None:
        """Add a result's seconds to the chain and, for an attempt's only call or a journaled attempt, to the pace."""
        self.chain.seconds += record.seconds
        self.chain.calls += record.usage.calls
        if record.role == "agent" and self._state.agent.journaled == (record.usage.calls == 0):
            attempts, seconds = self._state.pace
            self._state.pace = (attempts + 1, seconds + record.seconds)

    def _open(self, place: str) -> None:
        opened = self._state.opened if self.opened is None else self.opened
        if place in opened:
            raise PlaceTaken(
                "journal.place_taken",
                f"the place '{place}' was opened twice: give each effect or job a name of its own",
            )
        opened.add(place)

    async def _effect(
        self,
        role: str,
        question: str,
        kind: TypeAdapter[T],
        do: Callable[[], Awaitable[T]],
        slot: AbstractAsyncContextManager[object] | None = None,
        shown: Prompt | None = None,
    ) -> T:
        """Do something that is not a model call, once, and journal its result. A failed attempt is a result too.
        `shown` is what it is shown, for those who look at the run."""
        place = f"{self.place}/{role}"
        self._open(place)
        known = self._state.journal.find(place, question)
        proof = self._state.proof
        if known is not None:
            if role == "agent" and (failed := proof.give()):
                await self._write(*failed)
            if not known.ok:
                raise load_failure(known.answer)
            self._timed(known)
            result = kind.validate_json(known.answer)
            if isinstance(result, Trace) and self._state.agent.max_turns:
                # The calls that the attempt made are not read again.
                self._needed(int(result.data.get("turns", 0)))
            return result
        async with slot or nullcontext():
            self._state.budget.check()
            if role == "agent":
                proof.check()
            began, before = time.monotonic(), self.chain.seconds
            record = JournalRow(place, role, question, "", sources=self.about, prompt=shown)
            own = role == "agent" and not self._state.agent.max_turns
            self._state.budget.attempts += own
            try:
                result = await self._done(do)
            except (AgentError, OutputError, ProviderError) as error:
                if isinstance(error, ProviderError) and not isinstance(error, RequestError):
                    self._lose(replace(record, answer=dump_failure(error), ok=False))
                    self._state.last_error = str(error)
                    raise
                failure = replace(record, answer=dump_failure(error), ok=False)
                if role == "agent" and isinstance(error, AgentError) and not proof.given:
                    proof.failed(failure)
                elif role == "agent":
                    await self._write(*proof.give(), failure)
                raise
            finally:
                self._state.budget.attempts -= own
            seconds = time.monotonic() - began
            record = replace(record, answer=kind.dump_json(result).decode(), seconds=seconds)
            # The calls that it made are part of its own time.
            self.chain.seconds = before
            self._timed(record)
            await self._write(*(proof.give() if role == "agent" else ()), record)
            return result

    async def _done(self, do: Callable[[], Awaitable[T]]) -> T:
        """What came of it, without what must not be stored, be it a result or a failure."""
        try:
            return self._redacted(await do())
        except (AgentError, OutputError, ProviderError) as error:
            error.args = self._redacted(error.args)
            raise

    async def _call(
        self,
        role: str,
        prompt: Prompt,
        schema: JSON | None,
        temperature: float | None,
        attempt: int,
        output_tokens: int = 0,
    ) -> Reply:
        """One model call: read from the journal, or paid for and journaled before its result is used."""
        prompt = self._redacted(prompt)
        seat = self._state.seat(self.actor if role == "agent" else role)
        self.chain.playbook |= role != "agent" and bool(prompt.pages)
        place = f"{self.place}/{role}" if attempt == 0 else f"{self.place}/{role}~{attempt}"
        self._open(place)
        if temperature is None and role == "agent":
            temperature = self.warmth
        options = replace(
            seat.options,
            temperature=seat.options.temperature if temperature is None else temperature,
            max_output_tokens=max(seat.options.max_output_tokens, output_tokens),
            seed=self.rng(role).randrange(2**31),
        )
        question = prompt_digest(role, seat.client.name, prompt, schema, options)
        known = self._state.journal.find(place, question)
        if known is not None:
            if not known.ok and not known.silent:
                raise self._failed(known)
            self._timed(known)
            text, cut, *changed = json.loads(known.answer)
            changed = [Count[key.upper()] for keys in changed for key in keys]
            self._changed(changed)
            self._state.learn_output(seat.client, options.max_output_tokens, known.usage)
            return Reply(text, known.usage, cut, tuple(changed))
        return await self._pay(
            JournalRow(place, role, question, "", sources=self.about, prompt=prompt),
            seat.client, prompt, schema,
            replace(options, wait=self._wait, refused=self._state.refused_by(seat.client.name)),
        )  # fmt: skip

    def _failed(self, known: JournalRow) -> ProviderError:
        """The error of a call that failed before a resume."""
        code = self._state.journal.find(f"{known.place} {CODE}", NOTE_ROLE)
        if code is None:
            return ProviderError("provider.failed", known.answer)
        error = request_error(code.answer, known.answer)
        self._count_refused(error)
        return error

    def _count_refused(self, error: RequestError) -> None:
        """Count a request that the provider refused. A prompt above the window may be shortened yet."""
        if (count := REFUSED.get(error.code)) is not None:
            self.count(count)

    def _changed(self, keys: Sequence[str] = ()) -> None:
        """Count what had to be changed about a reply."""
        for key in keys:
            self._state.counts[key] += 1

    async def _wait(self, wait: Wait) -> None:
        self._state.budget.repeats()
        self._state.observer.waiting(wait)
        await self._state.budget.pause(wait.seconds)

    async def _pay(
        self, record: JournalRow, client: Client, prompt: Prompt, schema: JSON | None, options: CallOptions
    ) -> Reply:
        state, role = self._state, record.role
        if role != "agent":
            await self.require_working_agent()
        estimate = prompt_tokens(prompt)
        state.largest[role] = max(state.largest.get(role, 0), estimate)
        try:
            check_fits_window(client, role, estimate)
        except WindowError as error:
            await self._lose_call(record, error)
            raise
        if client.window is not None:
            # Some servers refuse a limit that exceeds the window together with the prompt. It is lowered for sending
            # alone: a resume may have a model with another window.
            left = max(client.window - int(1.25 * estimate), client.window // 2)
            options = replace(options, max_output_tokens=min(options.max_output_tokens, left))
        limit = options.max_output_tokens
        async with state.slot(client.endpoint, client.slots):
            # What it needs is known best when it is its turn.
            most = state.most(client, estimate, limit)
            need = Need.of(most)
            await state.budget.reserve(need)
            state.budget.timeout = max(state.budget.timeout, options.timeout)
            began = time.monotonic()
            call = ModelCall(record.place, role, client.name, prompt, options, "", Usage(), 0.0)
            sent = state.flight.start(record.place, record.digest, most)
            try:
                with state.budget.repeatable():
                    raw = await client.complete(role, prompt, schema, options)
                if state.redactor is not None:
                    raw = replace(raw, text=state.redactor.reply(raw.text))
                reply = received(raw, estimate, limit, client.cost)
                call = replace(call, text=reply.text, usage=reply.usage)
                state.flight.received(sent, reply.usage)
            except BaseException as error:
                if isinstance(error, ProviderError):
                    error.args = self._redacted(error.args)
                    await self._lose_call(record, error)
                call = replace(call, error=self._redacted(str(error)) or type(error).__name__)
                if isinstance(error, Exception):
                    # Not where it was cancelled: nobody knows what becomes of it, so it stays in flight.
                    state.flight.end(sent)
                if isinstance(error, RequestError):
                    state.refused_request(client.name, record, error)
                raise
            finally:
                state.budget.settle(need, call.usage)
                state.observer.called(replace(call, seconds=time.monotonic() - began))
            state.in_row.pop((client.name, role), None)
            usage = reply.usage
            self._changed(reply.changed)
            changed = [reply.changed] if reply.changed else []
            answer = json.dumps([reply.text, reply.cut, *changed], ensure_ascii=False)
            record = replace(
                record, answer=answer, usage=usage, seconds=time.monotonic() - began, ok=reply.silence is None
            )  # fmt: skip
            self._timed(record)
            await self._write(record)
            state.flight.end(sent)
        if estimate > 200:
            seen = usage.input_tokens / estimate
            state.token_ratio[client.name] = max(state.token_ratio.get(client.name, TOKEN_RATIO), seen)
        state.learn_output(client, limit, usage)
        return reply


TRACE = TypeAdapter(Trace)
_SCORE = TypeAdapter(Score)


async def _attempt(act: ActSeam, task: Task, context: Context, run: Run) -> Rollout:
    rollout = await act(task, context, replace(run, about=(f"task:{task.id}",)))
    if not isinstance(rollout, Rollout):
        found = "None" if rollout is None else type(rollout).__name__
        raise MethodError(
            "method.wrong_result",
            f"`act` of the method returned {found} for task {task.id!r}; it must return a Rollout{KEPT}",
        )
    return rollout


def feedback(task: Task, trace: Trace, score: Score | None, labels: bool) -> Feedback:
    """What learning may see of an attempt. Without labels, that is an execution error or nothing."""
    if trace.error is not None:
        return Feedback(False, f"The attempt failed: {trace.error}")
    if not labels or score is None:
        return Feedback(None, "Nothing is known about whether the answer is right.")
    note = f" {score.note}" if score.note else ""
    if score.correct:
        return Feedback(True, f"The answer is right.{note}", task.target)
    right = f" The right answer is: {task.target}" if task.target is not None else ""
    return Feedback(False, f"The answer is wrong.{right}{note}", task.target)
