"""Attempts of the agent, and the scores of attempts. If the agent fails, the failed attempt is a result, too, and is
journaled."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

from pydantic import TypeAdapter

from practicum.agents.base import reported_usage
from practicum.core.counts import Count
from practicum.core.errors import (
    AgentError,
    OutputError,
    ProviderError,
    RequestError,
    WindowError,
)
from practicum.core.thoughts import silence, split_thoughts
from practicum.core.trust import least
from practicum.core.types import Feedback, Prompt, Score, Task, Trace, Usage
from practicum.core.views import View
from practicum.engine.calls import Calls
from practicum.engine.framing import framed_view, text_view
from practicum.store.journal import (
    JournalRow,
    digest,
    dump_failure,
    load_failure,
)
from practicum.tasks.scoring.registry import meta_fault
from practicum.tasks.scoring.rules import named_choices

T = TypeVar("T")

TRACE = TypeAdapter(Trace)
_SCORE = TypeAdapter(Score)


class Attempts(Calls):
    """Place at which the agent attempts tasks, and at which attempts are scored."""

    async def agent(self, task: Task, view: View, *, must_fit: bool = False) -> Trace:
        """Make one attempt at a task. If the agent fails, the trace carries the failure as `error`. Raises
        BrokenAgentError if the agent failed in all of the run's first attempts (see `engine.proof`). With `must_fit`,
        raises WindowError if the prompt is larger than the model's window."""
        self._state.images.update(task.images)
        proof, broken, before = self._state.proof, False, self.chain.calls
        # A user's agent, which calls its model without the run, takes the view as one text.
        view = (framed_view if self._state.agent.max_turns else text_view)(view, self._state.nonce)
        proof.begins(self.job)
        try:
            trace = self._with_answer(await self._attempt(task, view))
        except AgentError as error:
            trace, broken = Trace(answer="", error=str(error)), True
        except (OutputError, ProviderError) as error:
            if must_fit and isinstance(error, WindowError):
                raise
            # The attempt is lost and teaches nothing: the model gave no answer, or no answer that can be parsed.
            trace = Trace(answer="", error=str(error), lost=True, refused=isinstance(error, RequestError))
            self.count(Count.OVERLONG_REQUESTS, isinstance(error, WindowError))
            if isinstance(error, RequestError) and not self._state.agent.max_turns:
                self._count_refused(error)  # not counted yet: a user's agent calls its model without the run
        finally:
            proof.ended(self.job)
            self._record_calls(self.chain.calls - before)
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
            proof.report_failure(self.job, task.id, str(trace.error))
        return trace

    def _with_answer(self, trace: Trace) -> Trace:
        """Separate the model's thoughts from the answer of a trace. Raises OutputError if the answer is empty and the
        agent reported no steps, because such an attempt is lost, not wrong."""
        if trace.error is not None:
            return trace
        answer = split_thoughts(trace.answer)
        if (why := silence(answer)) is not None and not trace.steps:
            self.count(why)
            raise self.silent(why, "the agent")
        return replace(trace, answer=answer.text, reasoning=trace.reasoning or answer.thoughts)

    def _record_calls(self, calls: int) -> None:
        """Record the number of model calls of an attempt. If the number is above that of all earlier attempts, call
        `longer_attempt`."""
        state = self._state
        if calls > state.most_calls:
            state.most_calls = calls
            if state.longer_attempt is not None:
                state.longer_attempt()

    async def _attempt(self, task: Task, view: View) -> Trace:
        agent = self._state.agent
        if not agent.journaled:
            return await agent(task, view, self)
        turns = [(t.user, t.assistant) for t in view.turns]
        tools = [list(view.tools.items())] if view.tools else []
        question = digest(agent.identity, task.id, task.text, list(view.pages), view.note, turns, *tools)
        shown = Prompt("", "\n\n".join(filter(None, (task.text, view.note))), view.pages, view.turns)
        # If the model had fewer slots than concurrent attempts, the attempts would evict each other's turns from the
        # model's prefix cache. So each attempt takes a slot.
        seat = self._state.seats.get("agent")
        slot = self._state.slot(agent.identity, seat.client.slots if seat is not None else None)
        # An agent that asks models through the run sees redacted texts, as in the journal, and restores secrets only in
        # the calls of its tools. So does a program that sends its input to a provider. A user's own agent sees restored
        # texts.
        restores = not agent.max_turns and getattr(agent, "restores", True)
        arguments = (self.restored(task), self.restored(view)) if restores else (task, view)
        return await self._effect("agent", question, TRACE, lambda: agent(*arguments, self), slot, shown)

    async def score(self, task: Task, trace: Trace) -> Score | None:
        """Score an attempt, for reports. Returns None if the attempt cannot be scored, or if the scorer asks a model
        and the model gives no valid answer."""
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
                question = digest(scorer.name, task.id, task.text, task.target or "", trace.answer)
                score = await self._effect("score", question, _SCORE, lambda: scorer(task, trace, self))
        except (ProviderError, OutputError):
            # Return no score instead of a score of 0: a right answer must not count as wrong because the judge failed.
            self.count(Count.UNSCORED_ATTEMPTS)
            return None
        self.count(Count.STOPPED_PROGRAMS, score.stopped)
        self.count(Count.UNTESTABLE_ANSWERS, score.untestable)
        self.count(Count.UNFENCED_PROGRAMS, score.unfenced)
        return score

    async def _effect(
        self,
        role: str,
        question: str,
        kind: TypeAdapter[T],
        do: Callable[[], Awaitable[T]],
        slot: AbstractAsyncContextManager[object] | None = None,
        shown: Prompt | None = None,
    ) -> T:
        """Return the result of an effect that is not a model call. A result in the journal is returned, or raised if it
        is a failure. Otherwise run the effect, and journal the result or the failure. `slot` is held during the effect,
        and limits how many effects run concurrently. `shown` is the agent's input, which is stored for pages and
        reports."""
        place = f"{self.place}/{role}"
        self._open(place)
        stored = self._state.journal.find(place, question)
        proof = self._state.proof
        if stored is not None:
            if role == "agent" and (failed := proof.record_success()):
                await self._write(*failed)
            if not stored.ok:
                raise load_failure(stored.answer)
            self._add_seconds(stored)
            result = kind.validate_json(stored.answer)
            if isinstance(result, Trace) and self._state.agent.max_turns:
                # The journal entries of the attempt's model calls are not read again, so the trace gives the number of
                # calls.
                self._record_calls(int(result.data.get("turns", 0)))
            return result
        async with slot or nullcontext():
            self._state.budget.check()
            if role == "agent":
                proof.check()
                self._state.budget.check_spent()
            began, before = time.monotonic(), self.chain.seconds
            record = JournalRow(place, role, question, "", sources=self.about, prompt=shown)
            own = role == "agent" and not self._state.agent.max_turns
            self._state.budget.attempts += own
            try:
                result = await self._redacted_result(do)
                usage = reported_usage(result) if own and isinstance(result, Trace) else Usage()
            except (AgentError, OutputError, ProviderError) as error:
                if isinstance(error, ProviderError) and not isinstance(error, RequestError):
                    self._lose(replace(record, answer=dump_failure(error), ok=False))
                    self._state.last_error = str(error)
                    raise
                failure = replace(record, answer=dump_failure(error), ok=False)
                if role == "agent" and isinstance(error, AgentError) and not proof.proven:
                    proof.hold_back(failure)
                elif role == "agent":
                    await self._write(*proof.record_success(), failure)
                raise
            finally:
                self._state.budget.attempts -= own
            seconds = time.monotonic() - began
            self._state.budget.spent += usage
            record = replace(record, answer=kind.dump_json(result).decode(), seconds=seconds, usage=usage)
            # The attempt's seconds include the seconds of the agent's model calls, so the seconds that these calls
            # added to the chain are removed.
            self.chain.seconds = before
            self._add_seconds(record)
            await self._write(*(proof.record_success() if role == "agent" else ()), record)
            return result

    async def _redacted_result(self, do: Callable[[], Awaitable[T]]) -> T:
        """Run an effect and return the redacted result. If the effect raises an error, redact the message of the
        error."""
        try:
            return self._redacted(await do())
        except (AgentError, OutputError, ProviderError) as error:
            error.args = self._redacted(error.args)
            raise

    def restored(self, value: T) -> T:
        """Replace placeholders in a value by the secrets that they represent, if the run stores the secrets. Use the
        result only in the user's own code, never in prompts or storage."""
        return value if self._state.redactor is None else self._state.redactor.restored(value)

    def values_of(self, value: object) -> dict[str, str]:
        """Return a mapping of the placeholders in `value` to the secrets by which `restored` would replace the
        placeholders."""
        return {} if self._state.redactor is None else self._state.redactor.values_of(value)


def feedback(task: Task, trace: Trace, score: Score | None, labels: bool, targets: bool) -> Feedback:
    """Return the feedback that learning may see about an attempt. Without `labels`, the feedback holds only the error
    of a failed attempt. Without `targets`, it holds only whether the answer is right, because the note of a score may
    quote the right answer."""
    if trace.error is not None:
        return Feedback(False, f"The attempt failed: {trace.error}")
    if not labels or score is None:
        return Feedback(None, "Nothing is known about whether the answer is right.")
    target = task.target if targets else None
    note = f" {score.note}" if score.note and targets else ""
    if score.correct:
        return Feedback(True, f"The answer is right.{note}", target)
    right = f" The right answer is: {target}" if target is not None else ""
    return Feedback(False, f"The answer is wrong.{right}{note}", target)
