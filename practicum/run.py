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
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from practicum.context import Context
from practicum.embed import Vectors
from practicum.errors import AgentError, ModelError, OutputError, PlaceTaken, ProviderError
from practicum.journal import Journal, Record, digest
from practicum.models.budget import Budget, Need
from practicum.models.client import JSON, Client, Options, Reply
from practicum.types import Feedback, Prompt, Rollout, Score, Task, Trace, Turn, Usage
from practicum.views import View, count_tokens

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

REPAIRS = 2
"""Times a model is asked again when its output does not fit its schema."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A model in a role, and how it is asked there."""

    client: Client
    options: Options = field(default_factory=Options)


class Agent(Protocol):
    """An agent under training, as a Run drives it. `journaled` says that the Run must write its results down itself;
    an agent that acts through `run.ask` has them written there."""

    @property
    def journaled(self) -> bool: ...

    @property
    def identity(self) -> str: ...

    async def __call__(self, task: Task, view: View, run: Run) -> Trace: ...


class Scorer(Protocol):
    """Scores a trace. One that is not `pure` (a user's function, say) has its results journaled."""

    @property
    def name(self) -> str: ...

    @property
    def pure(self) -> bool: ...

    async def __call__(self, task: Task, trace: Trace, run: Run) -> Score: ...


Act = Callable[[Task, Context, "Run"], Awaitable[Rollout]]


@dataclass
class House:
    """What all Runs of one run share. `labels` False keeps targets and scores from everything that learns."""

    journal: Journal
    seats: dict[str, Seat]
    agent: Agent
    scorer: Scorer | None
    vectors: Vectors
    instructions: str = ""
    labels: bool = True
    judged: bool = False
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    counts: Counter[str] = field(default_factory=Counter)
    opened: set[str] = field(default_factory=set)
    evaluated: dict[tuple[str, str, str, int], Rollout] = field(default_factory=dict)
    failures: list[Record] = field(default_factory=list)
    inflation: dict[str, float] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    on_attempt: Callable[[], None] | None = None

    def seat(self, role: str) -> Seat:
        """The model in this role; the agent's where none was named for it."""
        return self.seats.get(role) or self.seats["agent"]

    async def settle_failures(self) -> None:
        """Write down the provider's failures that the run went on from. Those that stop it are never written."""
        waiting, self.failures = self.failures, []
        for record in waiting:
            await self.journal.write(record)


@dataclass(frozen=True)
class Run:
    """A place in a run. `about` names the sources ("task:t1") that what happens here comes from."""

    house: House
    place: str = ""
    about: tuple[str, ...] = ()

    def at(self, name: str, about: tuple[str, ...] | None = None) -> Run:
        """The place `name` below this one. Raises PlaceTaken when it is opened a second time."""
        place = f"{self.place}/{name}" if self.place else name
        self._open(place)
        return Run(self.house, place, self.about if about is None else about)

    def rng(self, name: str = "") -> random.Random:
        """Chance that depends on the seed and this place only."""
        return random.Random(digest(str(self.house.seed), self.place, name))

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Run], Awaitable[T]]]]) -> list[T]:
        """Run named jobs at once, each at its own place; results in the order given.

        No job's failure cancels its siblings: they are drained, what they paid is kept, then the first failure by
        place is raised.
        """
        children = [self.at(name) for name, _ in jobs]
        results = await asyncio.gather(
            *(job(child) for (_, job), child in zip(jobs, children, strict=True)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def ask(self, role: str, prompt: Prompt, schema: type[M], *, temperature: float | None = None) -> M:
        """Ask a model for an object. Output that does not fit is asked for again, twice, then OutputError."""
        wanted = _json_schema(schema)
        for attempt in range(REPAIRS + 1):
            reply = await self._call(role, prompt, wanted, temperature, attempt)
            try:
                return schema.model_validate_json(_json_part(reply.text))
            except ValidationError as error:
                self.house.counts["repairs"] += attempt < REPAIRS
                problem = _problem(error, reply.cut)
                prompt = _repair(prompt, reply.text, problem)
        self.house.counts["bad output"] += 1
        raise OutputError(f"the {role} ({self.house.seat(role).client.name}) gave no valid output: {problem}")

    async def ask_text(self, role: str, prompt: Prompt, *, temperature: float | None = None) -> str:
        """Ask a model for plain text."""
        return (await self._call(role, prompt, None, temperature, 0)).text

    async def agent(self, task: Task, view: View) -> Trace:
        """One attempt. A failure is data: the trace carries it."""
        trace = await self._attempt(task, view)
        self.house.counts["unknown ids"] += trace.unknown
        if self.house.on_attempt is not None:
            self.house.on_attempt()
        return trace

    async def _attempt(self, task: Task, view: View) -> Trace:
        agent = self.house.agent
        try:
            if not agent.journaled:
                return await agent(task, view, self)
            asked = digest(
                agent.identity,
                task.id,
                task.input,
                list(view.pages),
                view.note,
                [(t.user, t.assistant) for t in view.turns],
            )
            return await self._effect("agent", asked, _TRACE, lambda: agent(task, view, self), keep_failure=True)
        except (AgentError, OutputError) as error:
            self.house.counts["failed attempts"] += 1
            return Trace(answer="", error=str(error))
        except ProviderError as error:
            self.house.counts["lost attempts"] += 1
            return Trace(answer="", error=str(error), lost=True)

    async def score(self, task: Task, trace: Trace) -> Score | None:
        """How good the answer is, for reports; None where nothing scores."""
        scorer = self.house.scorer
        if scorer is None:
            return None
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        try:
            if scorer.pure:
                return await scorer(task, trace, self)
            asked = digest(scorer.name, task.id, task.input, task.target or "", trace.answer)
            return await self._effect("score", asked, _SCORE, lambda: scorer(task, trace, self))
        except (ProviderError, OutputError) as error:
            self.house.counts["unscored"] += 1
            return Score(0.0, False, f"not scored: {error}")

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, shape (n, d); each text is embedded once in the life of the store."""
        return await self.house.vectors(texts)

    async def evaluate(
        self, act: Act, split: str, tasks: Sequence[Task], context: Context, repeat: int = 0
    ) -> list[Rollout]:
        """Each task once under `context`, with `act` alone. Kept by split, task and what the context shows."""
        top = replace(self, place="", about=())
        keys = [(split, task.id, context.digest, repeat) for task in tasks]
        known = self.house.evaluated
        jobs = [
            (f"evaluate {split} {context.digest} {repeat}/{task.id}", _about(act, task, context))
            for key, task in zip(keys, tasks, strict=True)
            if key not in known
        ]
        fresh = iter(await top.gather(jobs))
        for key in keys:
            if key not in known:
                known[key] = next(fresh)
        await self.house.settle_failures()
        return [known[key] for key in keys]

    def _open(self, place: str) -> None:
        if place in self.house.opened:
            raise PlaceTaken(f"the place '{place}' was opened twice: give each effect or job a name of its own")
        self.house.opened.add(place)

    async def _effect(
        self, role: str, asked: str, kind: TypeAdapter[T], do: Callable[[], Awaitable[T]], keep_failure: bool = False
    ) -> T:
        """Do something that is not a model call once, and keep its result; its failure only where the run goes on."""
        place = f"{self.place}/{role}"
        self._open(place)
        known = self.house.journal.find(place, asked)
        if known is not None:
            if not known.ok:
                raise AgentError(known.answer)
            return kind.validate_json(known.answer)
        self.house.budget.check()
        began = time.monotonic()
        try:
            result = await do()
            answer, ok = kind.dump_json(result).decode(), True
        except AgentError as error:
            if not keep_failure:
                raise
            answer, ok = str(error), False
        record = Record(place, role, asked, answer, Usage(), time.monotonic() - began, ok, self.about)
        await self.house.journal.write(record)
        if not ok:
            raise AgentError(answer)
        return result

    async def _call(
        self, role: str, prompt: Prompt, schema: JSON | None, temperature: float | None, attempt: int
    ) -> Reply:
        """One model call: from the journal, or paid for and written down before anyone sees it."""
        seat = self.house.seat(role)
        place = f"{self.place}/{role}" if attempt == 0 else f"{self.place}/{role}~{attempt}"
        self._open(place)
        options = replace(
            seat.options,
            temperature=seat.options.temperature if temperature is None else temperature,
            seed=self.rng(role).randrange(2**31),
        )
        asked = _asked(role, seat.client.name, prompt, schema, options)
        known = self.house.journal.find(place, asked)
        if known is not None:
            if not known.ok:
                raise ProviderError(known.answer)
            text, cut = json.loads(known.answer)
            return Reply(text, known.usage, cut)
        return await self._pay(role, place, asked, seat.client, prompt, schema, options)

    async def _pay(
        self, role: str, place: str, asked: str, client: Client, prompt: Prompt, schema: JSON | None, options: Options
    ) -> Reply:
        house = self.house
        estimate = prompt_tokens(prompt)
        house.largest[role] = max(house.largest.get(role, 0), estimate)
        _must_fit(client, role, estimate, options.max_output_tokens)
        need = need_of(client, estimate * house.inflation.get(client.name, 1.25), options.max_output_tokens)
        await house.budget.reserve(need)
        began = time.monotonic()
        usage = Usage()
        try:
            reply = await client.complete(role, prompt, schema, options)
            usage = reply.usage
        except ProviderError as error:
            house.failures.append(Record(place, role, asked, str(error), ok=False, sources=self.about))
            raise
        finally:
            house.budget.settle(need, usage)
        if estimate > 200:
            seen = usage.input_tokens / estimate
            house.inflation[client.name] = max(house.inflation.get(client.name, 1.25), seen)
        answer = json.dumps([reply.text, reply.cut], ensure_ascii=False)
        await house.journal.write(Record(place, role, asked, answer, usage, time.monotonic() - began, True, self.about))
        house.counts["calls"] += 1
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


def prompt_tokens(prompt: Prompt) -> int:
    """Estimated tokens of a prompt, with a few for each message's frame."""
    turns = sum(count_tokens(t.user) + count_tokens(t.assistant) + 8 for t in prompt.turns)
    pages = sum(len(page) + 1 for page in prompt.pages)
    return count_tokens(prompt.system) + pages // 4 + 1 + turns + count_tokens(prompt.user) + 16


def need_of(client: Client, input_tokens: float, output_tokens: int) -> Need:
    """The most a call can cost."""
    most = Usage(1, int(input_tokens) + 1, 0, output_tokens)
    return Need(1, most.tokens, client.cost(most) or 0.0)


def _must_fit(client: Client, role: str, estimate: int, output: int) -> None:
    if client.window is not None and estimate > client.window:
        raise ModelError(
            f"the {role}'s prompt of about {estimate} tokens is larger than the window of {client.name} "
            f"({client.window} tokens): lower the context's budget (--set budget=N) "
            "or take a model with a larger window"
        )


def _asked(role: str, model: str, prompt: Prompt, schema: JSON | None, options: Options) -> str:
    turns = [part for turn in prompt.turns for part in (turn.user, turn.assistant)]
    settings = f"{options.temperature} {options.max_output_tokens} {options.seed}"
    return digest(role, model, prompt.system, *prompt.pages, "turns", *turns, prompt.user, _dumped(schema), settings)


_DUMPED: dict[int, tuple[JSON, str]] = {}


def _dumped(schema: JSON | None) -> str:
    """A schema as text, once for each schema object (which is kept, so that its id stays its own)."""
    if schema is None:
        return ""
    known = _DUMPED.get(id(schema))
    if known is None:
        known = _DUMPED[id(schema)] = (schema, json.dumps(schema, sort_keys=True))
    return known[1]


@cache
def _json_schema(schema: type[BaseModel]) -> JSON:
    return schema.model_json_schema()


def _json_part(text: str) -> str:
    """The JSON object in an answer: models without enforced schemas wrap it in words or fences."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return stripped
    start, end = stripped.find("{"), stripped.rfind("}")
    return stripped[start : end + 1] if 0 <= start < end else stripped


def _problem(error: ValidationError, cut: bool) -> str:
    if cut:
        return "it was cut off at the output limit; answer more briefly"
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _repair(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """The same conversation, with the bad answer and what is wrong with it."""
    return replace(
        prompt,
        turns=(*prompt.turns, Turn(prompt.user, answer or "(nothing)")),
        user=f"That does not fit the asked-for JSON: {problem}. Give the whole answer again, as JSON only.",
    )
