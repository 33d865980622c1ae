"""Model calls: each is reserved in the budget, sent, received, and journaled before its result is used."""

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
    WindowError,
)
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
from practicum.store.journal import (
    NOTE_ROLE,
    JournalRow,
    noting_refusal,
    request_error,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

CODE = "code"
"""Ends the place of a note on why the provider refused a request."""

REFUSED: Mapping[str, Count] = {
    "provider.filtered": Count.FILTERED_REQUESTS, "provider.refused": Count.REFUSED_REQUESTS,
    "output.invalid": Count.INVALID_SAMPLES,
}  # fmt: skip
"""Counters of refused requests, by the code of the error."""


@dataclass
class _Sent:
    """A call in flight: when it was sent (s), its slot in the file of calls in flight, and the reply once it came."""

    began: float
    slot: int
    reply: Reply | None = None


class Calls(Place):
    """A place at which models are asked."""

    @property
    def last_error(self) -> str:
        """The last failure of a model."""
        return self._state.last_error

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """The semaphore that is held while something is in flight at this endpoint."""
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

    async def try_ask(self, role: str, prompt: Prompt, schema: type[M], lost: Count, **how: Any) -> M | None:
        """`ask_fitted` for what a run can do without. Returns None, and raises the counter `lost`, if there
        is no answer or none that can be parsed."""
        try:
            return await self.ask_fitted(role, prompt, schema, **how)
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

    def silent(self, why: Count, who: str) -> OutputError:
        """The error for an answer without text, which says what to change. `who` gave it: a model or an agent."""
        self._state.last_error = f"the answer of {who} {SILENCES[why]}"
        return OutputError("output.empty", self.last_error)

    def _framed(self, role: str, prompt: Prompt) -> Prompt:
        """The prompt with its material between marks. That of the agent has its pages framed, and its task as it is."""
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
            async with self._in_flight(record, client, prompt, options, most) as sent:
                with state.budget.repeatable():
                    raw = await client.complete(role, prompt, schema, options)
                if state.redactor is not None:
                    raw = replace(raw, text=state.redactor.reply(raw.text))
                reply = sent.reply = received(raw, estimate, limit, client.cost)
                state.flight.received(sent.slot, reply.usage)
            state.in_row.pop((client.name, role), None)
            self._changed(reply.changed)
            changed = [reply.changed] if reply.changed else []
            answer = json.dumps([reply.text, reply.cut, *changed], ensure_ascii=False)
            record = replace(
                record, answer=answer, usage=reply.usage, seconds=time.monotonic() - sent.began,
                ok=reply.silence is None,
            )  # fmt: skip
            self._timed(record)
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
        """A block that sends a call: what it needs is reserved before, and settled after, whatever becomes of it. A
        failure is kept."""
        state, need = self._state, Need.of(most)
        await state.budget.reserve(need)
        state.budget.timeout = max(state.budget.timeout, options.timeout)
        sent = _Sent(time.monotonic(), state.flight.start(record.place, record.digest, most))
        said: str | None = None
        try:
            yield sent
        except BaseException as error:
            if isinstance(error, ProviderError):
                error.args = self._redacted(error.args)
                await self._lose_call(record, error)
            said = self._redacted(str(error)) or type(error).__name__
            if isinstance(error, Exception):
                # Not where it was cancelled: nobody knows what becomes of it, so it stays in flight.
                state.flight.end(sent.slot)
            if isinstance(error, RequestError):
                state.refused_request(client.name, record, error)
            raise
        finally:
            text, usage = (sent.reply.text, sent.reply.usage) if sent.reply is not None else ("", Usage())
            state.budget.settle(need, usage)
            seconds = time.monotonic() - sent.began
            state.observer.called(
                ModelCall(record.place, record.role, client.name, prompt, options, text, usage, seconds, error=said)
            )

    def _timed(self, record: JournalRow) -> None:
        """Add a result's seconds to the chain and, for an attempt's only call or a journaled attempt, to the pace."""
        self.chain.seconds += record.seconds
        self.chain.calls += record.usage.calls
        if record.role == "agent" and self._state.agent.journaled == (record.usage.calls == 0):
            attempts, seconds = self._state.pace
            self._state.pace = (attempts + 1, seconds + record.seconds)
