"""Model calls. The maximum cost of a call is reserved in the budget before the call is sent, and the reply is journaled
before the reply is used."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from practicum.core.counts import Count
from practicum.core.errors import (
    OutputError,
    ProviderError,
    RequestError,
    Stopped,
    WindowError,
)
from practicum.core.images import images_in
from practicum.core.thoughts import SILENCES
from practicum.core.types import Prompt, Usage
from practicum.engine.asking import ask_for
from practicum.engine.framing import framed_prompt
from practicum.engine.place import Place
from practicum.engine.state import TOKEN_RATIO, ModelCall
from practicum.models.budget import Need
from practicum.models.client import JSON, CallOptions, Client, Reply, Wait
from practicum.models.prompting import (
    check_fits_window,
    prompt_digest,
    prompt_tokens,
)
from practicum.models.receiving import received
from practicum.store.flight import key_of
from practicum.store.journal import (
    NOTE_ROLE,
    JournalRow,
    noting_refusal,
    request_error,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

CODE = "code"
"""Suffix that is added to the place of a refused request. The note at the resulting place stores the error code of the
refusal."""

REFUSED: Mapping[str, Count] = {
    "provider.filtered": Count.FILTERED_REQUESTS, "provider.refused": Count.REFUSED_REQUESTS,
    "output.invalid": Count.INVALID_SAMPLES,
}  # fmt: skip
"""Error code of a refused request → counter of such requests."""


@dataclass
class _Sent:
    """Call in flight: the time at which it was sent (s, monotonic), its slot in the file of calls in flight, and the
    reply."""

    began: float
    slot: int
    reply: Reply | None = None


class Calls(Place):
    """Place at which models are asked."""

    @property
    def last_error(self) -> str:
        """Message of the last failed model call."""
        return self._state.last_error

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Return the semaphore that limits the requests in flight at this endpoint."""
        return self._state.slot(endpoint, most)

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

        The model is asked again, up to twice, if its output does not fit the schema. `form` is the JSON schema to send
        to the model; None: the JSON schema of `schema`. The limit of output tokens is at least `output_tokens`. Raises
        OutputError if no output fits the schema, ProviderError if the provider fails, and WindowError if the prompt is
        too large for the model.
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
        """Ask a model for JSON of this form and return its reply. `again` is the number of earlier requests for the
        same output whose answers could not be parsed: 0 for the first request."""
        if again:
            self.count(Count.REPAIRED_OUTPUTS)
        return await self._call(role, prompt, form, temperature, again, output_tokens)

    async def mended(self, role: str) -> None:
        """Count an answer of this role whose JSON was repaired by code."""
        self.count(Count.MENDED_JSON)

    async def give_up(self, role: str, problem: str, advice: str) -> OutputError:
        """Record that no output of a role fits the schema, and return the error to raise. `advice` is the end of the
        error's message: a change that may help."""
        self.count(Count.UNPARSED_OUTPUTS)
        self._state.unparsed.append(self.place)
        model = self._state.seat(role).client.name
        self._state.last_error = (
            f"the {role} ({model}) gave no valid output in three tries: {problem}{advice}"
        )  # fmt: skip
        return OutputError("output.invalid", self.last_error)

    async def ask_fitted(self, role: str, prompt: Prompt, schema: type[M], **how: Any) -> M:
        """Call `ask` with a prompt of any length. A prompt that is too large for the model is shortened, several times
        if necessary. If even the shortest prompt is too large for the model, raises OutputError in place of
        WindowError, because a resume would fail in the same way."""
        for n, short in enumerate(self._state.fitting(role, prompt)):
            at = self.at(f"cut {n}") if n else self
            try:
                return await noting_refusal(at, role, partial(at.ask, role, short, schema, **how))
            except WindowError as error:
                refused = str(error)
        self._state.unparsed.append(self.place)
        self._state.last_error = refused
        raise OutputError("window.exceeded", refused)

    async def try_ask(self, role: str, prompt: Prompt, schema: type[M], lost: Count, **how: Any) -> M | None:
        """Call `ask_fitted` for an optional answer. If the model gives no answer, or no answer that can be parsed,
        increments the counter `lost` and returns None."""
        try:
            return await self.ask_fitted(role, prompt, schema, **how)
        except (OutputError, ProviderError):
            self.count(lost)
            return None

    async def ask_text(self, role: str, prompt: Prompt, grammar: str = "") -> str:
        """Ask a model for plain text. The grammar, in llama.cpp's notation, holds if the server can enforce it. A text
        that was cut at the limit of output tokens is returned unchanged, and counted. Raises OutputError if the text is
        empty."""
        prompt = self._framed(role, prompt)
        client = self._state.seat(self.actor if role == "agent" else role).client
        held = grammar and client.enforces_grammars
        reply = await self._call(role, prompt, {"grammar": grammar} if held else None, None, 0)
        if reply.silence is not None:
            raise self.silent(reply.silence, client.name)
        self.count(Count.CUT_TEXTS, reply.cut)
        return reply.text

    async def require_working_agent(self) -> None:
        """Wait until an attempt of the run has ended without an error of the agent. Return at once if no attempt has
        ended with an error of the agent. Raises BrokenAgentError if all attempts failed and no job is left that could
        make another attempt."""
        proof = self._state.proof
        proof.ended(self.job)
        while proof.failures and not proof.proven:
            self._state.budget.check()
            if not proof.coming:
                raise proof.error()
            await proof.change()

    def silent(self, why: Count, speaker: str) -> OutputError:
        """Return the error for an empty answer, with advice on settings. `speaker` names the model or agent in the
        message."""
        self._state.last_error = f"the answer of {speaker} {SILENCES[why]}"
        return OutputError("output.empty", self.last_error)

    def _framed(self, role: str, prompt: Prompt) -> Prompt:
        """Put the material of a prompt between marks. The agent's prompt is returned unchanged: the pages of the
        agent's prompt are already framed, and the task needs no marks."""
        return prompt if role == "agent" else framed_prompt(prompt, self._state.nonce)

    async def _call(
        self,
        role: str,
        prompt: Prompt,
        schema: JSON | None,
        temperature: float | None,
        attempt: int,
        output_tokens: int = 0,
    ) -> Reply:
        """Return the reply from the journal, or call the model and journal the reply before it is used."""
        prompt = self._redacted(prompt)
        if self._state.images:
            texts = (*(turn.user for turn in prompt.turns), prompt.user)
            prompt = replace(prompt, images=images_in(texts, self._state.images))
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
        stored = self._state.journal.find(place, question)
        if stored is not None:
            if not stored.ok and not stored.silent:
                raise self._stored_error(stored)
            self._add_seconds(stored)
            text, cut, *changed = json.loads(stored.answer)
            changed = [Count[key.upper()] for keys in changed for key in keys]
            self._count_changes(changed)
            self._state.learn_output(seat.client, options.max_output_tokens, stored.usage)
            return Reply(text, stored.usage, cut, tuple(changed))
        return await self._pay(
            JournalRow(place, role, question, "", sources=self.about, prompt=prompt),
            seat.client, prompt, schema,
            replace(
                options, wait=self._wait, refused=self._state.refused_by(seat.client.name),
                key=key_of(place, question).hex(), record=self._state.journal,
            ),
        )  # fmt: skip

    def _stored_error(self, stored: JournalRow) -> ProviderError:
        """Return the error of a call whose failure is stored in the journal."""
        code = self._state.journal.find(f"{stored.place} {CODE}", NOTE_ROLE)
        if code is None:
            return ProviderError("provider.failed", stored.answer)
        error = request_error(code.answer, stored.answer)
        self._count_refused(error)
        return error

    async def _lose_call(self, record: JournalRow, error: ProviderError) -> None:
        """Record the failure of a call. A refused request would be refused again, so its refusal is written as a result
        and a resume does not send the request again."""
        self._state.last_error = str(error)
        failure = replace(record, answer=str(error), ok=False)
        if isinstance(error, RequestError):
            code = JournalRow(f"{record.place} {CODE}", NOTE_ROLE, NOTE_ROLE, error.code, sources=self.about)
            self._count_refused(error)
            await self._write(code, failure)
        else:
            self._lose(failure)

    def _count_refused(self, error: RequestError) -> None:
        """Count a request that the provider refused. A request that is too large for the model's window is not counted,
        because its prompt may still be shortened."""
        if (count := REFUSED.get(error.code)) is not None:
            self.count(count)

    def _count_changes(self, keys: Sequence[str] = ()) -> None:
        """Increment the counters of the changes that were made to a reply."""
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
            # Some servers refuse a request if its prompt and its limit of output tokens together exceed the window. The
            # limit is lowered only in the request, not in the digest of the call: a resume may know another window of
            # the model.
            left = max(client.window - int(1.25 * estimate), client.window // 2)
            options = replace(options, max_output_tokens=min(options.max_output_tokens, left))
        limit = options.max_output_tokens
        async with state.slot(client.endpoint, client.slots):
            # Estimate the cost only now: other calls may have updated the model's ratios during the wait for the slot.
            most = state.most(client, estimate, limit)
            async with self._in_flight(record, client, prompt, options, most) as sent:
                with state.budget.repeatable():
                    raw = await client.complete(role, prompt, schema, options)
                if state.redactor is not None:
                    raw = replace(raw, text=state.redactor.reply(raw.text))
                reply = sent.reply = received(raw, estimate, limit, client.cost)
                state.flight.received(sent.slot, reply.usage)
            state.in_row.pop((client.name, role), None)
            self._count_changes(reply.changed)
            changed = [reply.changed] if reply.changed else []
            answer = json.dumps([reply.text, reply.cut, *changed], ensure_ascii=False)
            record = replace(
                record, answer=answer, usage=reply.usage, seconds=time.monotonic() - sent.began,
                ok=reply.silence is None,
            )  # fmt: skip
            self._add_seconds(record)
            await self._write(record)
            state.flight.end(sent.slot)
        if estimate > 200:
            seen = reply.usage.input_tokens / estimate
            state.token_ratio[client.name] = max(state.token_ratio.get(client.name, TOKEN_RATIO), seen)
        state.learn_output(client, limit, reply.usage)
        return reply

    @asynccontextmanager
    async def _in_flight(
        self, record: JournalRow, client: Client, prompt: Prompt, options: CallOptions, most: Usage
    ) -> AsyncIterator[_Sent]:
        """Reserve the maximum cost of a call, run the `with` block that sends the call, and settle the reservation,
        also after an error. If the call fails, the failure is recorded."""
        state, need = self._state, Need.of(most)
        await state.budget.reserve(need)
        state.budget.timeout = max(state.budget.timeout, options.timeout)
        sent = _Sent(time.monotonic(), state.flight.start(record.place, record.digest, most))
        failure: str | None = None
        try:
            yield sent
        except BaseException as error:
            if isinstance(error, ProviderError):
                error.args = self._redacted(error.args)
                await self._lose_call(record, error)
            failure = self._redacted(str(error)) or type(error).__name__
            if isinstance(error, Exception):
                # A cancelled call stays in the file of calls in flight, because its cost is unknown.
                state.flight.end(sent.slot)
            if isinstance(error, RequestError):
                state.refused_request(client.name, record, error)
            if isinstance(error, Stopped | asyncio.CancelledError):
                self.count(Count.LEFT_IN_BATCHES, options.key in state.journal.batched)
            raise
        finally:
            text, usage = (sent.reply.text, sent.reply.usage) if sent.reply is not None else ("", Usage())
            state.budget.settle(need, usage)
            seconds = time.monotonic() - sent.began
            state.observer.called(
                ModelCall(record.place, record.role, client.name, prompt, options, text, usage, seconds, error=failure)
            )

    def _add_seconds(self, record: JournalRow) -> None:
        """Add the seconds and the model calls of a result to the chain of this place. If the result is a whole attempt
        (the journal row of the attempt itself, or the only model call of an attempt without such a row), add the
        seconds to `RunState.pace`, too."""
        self.chain.seconds += record.seconds
        self.chain.calls += record.usage.calls
        agent = self._state.agent
        own = agent.journaled and not agent.max_turns  # such an agent calls its model without the run
        if record.role == "agent" and (own or agent.journaled == (record.usage.calls == 0)):
            attempts, seconds = self._state.pace
            self._state.pace = (attempts + 1, seconds + record.seconds)
