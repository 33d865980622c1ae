"""State that all places of one run share. Only `Run` and the session that opened the run use this state."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Protocol

from practicum.agents.base import Agent
from practicum.core.counts import Count
from practicum.core.errors import ModelError, ProviderError, RequestError
from practicum.core.redact import Redactor
from practicum.core.types import Attempt, Profile, Prompt, Score, Task, Trace, Usage
from practicum.core.views import View, count_tokens
from practicum.engine.admission import Admission
from practicum.engine.proof import Proof
from practicum.models.budget import Budget
from practicum.models.client import CallOptions, Client, Wait
from practicum.models.prompting import prompt_tokens, shorten_prompt
from practicum.models.refused import RefusedParameters, in_words
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors
from practicum.store.flight import Flight
from practicum.store.journal import Journal, JournalRow


@dataclass(frozen=True, slots=True)
class Seat:
    """Model in a role, and the options of the model's calls in this role."""

    client: Client
    options: CallOptions = field(default_factory=CallOptions)


class Scorer(Protocol):
    """Scorer of traces. The results of a scorer that is not `pure`, such as a user's function, are journaled."""

    @property
    def name(self) -> str: ...

    @property
    def pure(self) -> bool: ...

    @property
    def needs_target(self) -> bool: ...

    async def __call__(self, task: Task, trace: Trace, run: Any) -> Score: ...


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Model call that ended, with the place, role, model, prompt and answer (`text`) of the call.

    `error` is the reason why the call has no answer; None: the call has an answer. `seconds` includes waits and retries
    of the call.
    """

    place: str
    role: str
    model: str
    prompt: Prompt
    options: CallOptions
    text: str
    usage: Usage
    seconds: float
    error: str | None = None


class Observer:
    """Receiver of the events of a run, as the events happen. Model calls that were made before a resume are not
    reported.

    Every method may be called often and must return at once.
    """

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        """Receive the start of a learning step on `tasks` tasks. `steps` is the number of all steps; None: not known. A
        schedule whose steps overlap does not report the starts of its steps."""

    def called(self, call: ModelCall) -> None:
        """Receive a model call that ended."""

    def waiting(self, wait: Wait) -> None:
        """Receive a call that waits before a retry, because the provider limited the rate of calls, or failed."""

    def attempted(self, task: Task, trace: Trace) -> None:
        """Receive an attempt that ended, in learning or evaluation, including attempts from the journal."""

    def scored(self, task: Task, score: Score | None) -> None:
        """Receive the score of an attempt. None: the attempt has no score, because it could not be scored or because
        the provider failed."""

    def warned(self, text: str) -> None:
        """Receive a warning that a user should see now, such as a very large task."""

    def spread(self, nodes: Mapping[str, int]) -> None:
        """Receive the number of attempts in flight on each node of a cluster, by node id."""


Slots = dict[str, asyncio.Semaphore]
"""Endpoint → semaphore that limits the requests and attempts in flight at this endpoint."""

ASSUMED_WINDOW = 100_000
"""Window (tokens) assumed for a model whose window is not known."""

SHORTENINGS = 5
"""Maximum number of shortened versions of a prompt that is too large for the model's window. Each version is half as
long as the previous version."""

TOKEN_RATIO = 1.25
"""Assumed ratio of the tokens that a model's server counts in a prompt to the tokens that practicum estimates."""

UNKNOWN_IN_ROW, KNOWN_IN_ROW = 5, 20
"""Number of equal refusals in a row after which a run stops. `UNKNOWN_IN_ROW` is for refusals for an unknown reason,
`KNOWN_IN_ROW` for refusals because of a content filter, the window or an invalid answer."""

WARNED_REFUSALS = 5
"""Maximum number of refused requests for which a warning is shown."""

MIN_KEPT = 64
"""Minimum number of tokens to which a message is shortened."""


@dataclass
class RunState:
    """State that places share: the journal, the models in their roles, agent, scorer, budget and counters.

    `labels`: whether learning may see scores. `targets`: whether it may then see targets, too. `judged`: whether a
    judge gives the feedback on attempts without a score, and on all attempts if learning may not see scores. `lost`
    maps places to journal rows that are not written yet: rows of provider failures, and of notes that depend on such
    failures. A failure is written together with the first result that may depend on this failure; a resume repeats
    effects whose failures were not written.
    `rests_on` maps each evaluated task to the places of failures that the evaluation of this task may depend on.
    `in_row` maps each pair of model and role to the last refusal of a request, and to the places at which this refusal
    was repeated without an answer in between. `refused` maps each model to the parameters that the server of this model
    refused.

    `unparsed` lists the places of requests for which no output of the model could be parsed. `last_error` is the
    message of the last failed model call. `admission` decides which edits wait for review. `trust_tools`: results of
    tools count as the operator's own. `nonce` is part of the marks around material; empty: no marks. `redactor`
    replaces sensitive values in all texts that are read or sent. `pace` is the number of timed attempts, and the total
    seconds of these attempts. `most_calls` is the largest number of model calls of one attempt so far; `longer_attempt`
    is called when this number rises. `largest` maps each role to the estimated tokens of the largest prompt of this
    role.

    `token_ratio` maps each model to the largest ratio so far of counted to estimated prompt tokens, at least
    `TOKEN_RATIO`. `output_ratio` maps each model to the largest ratio so far of written tokens to the output limit, at
    least 1. `keep_evaluated` is called with the new attempts of each evaluation, to store them. `complete` adds to a
    view the texts that the agent sees in addition to the context, such as corrections. `images` are the images of the
    tasks so far.
    """

    journal: Journal
    seats: dict[str, Seat]
    agent: Agent
    scorer: Scorer | None
    vectors: Vectors
    instructions: str = ""
    choices: tuple[str, ...] = ()
    profile: Profile = "full"
    sections: Mapping[str, str] = field(default_factory=lambda: {"rules": ""})
    labels: bool = True
    targets: bool = True
    judged: bool = False
    admission: Admission = field(default_factory=Admission)
    trust_tools: bool = False
    redactor: Redactor | None = None
    nonce: str = ""
    seed: int = 0
    concurrency: int = 16
    budget: Budget = field(default_factory=Budget)
    counts: Counter[str] = field(default_factory=Counter)
    opened: set[str] = field(default_factory=set)
    evaluated: dict[tuple[str, str, str, int], Attempt] = field(default_factory=dict)
    reusable: dict[str, dict[tuple[object, str, int], Attempt]] = field(default_factory=dict)
    lost: dict[str, JournalRow] = field(default_factory=dict)
    rests_on: dict[tuple[str, str, str, int], frozenset[str]] = field(default_factory=dict)
    in_row: dict[tuple[str, str], tuple[str, list[str]]] = field(default_factory=dict)
    refused: dict[str, RefusedParameters] = field(default_factory=dict)
    unparsed: list[str] = field(default_factory=list)
    token_ratio: dict[str, float] = field(default_factory=dict)
    output_ratio: dict[str, float] = field(default_factory=dict)
    warned_refusals: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    pace: tuple[int, float] = (0, 0.0)
    most_calls: int = 0
    longer_attempt: Callable[[], None] | None = None
    last_error: str = ""
    observer: Observer = field(default_factory=Observer)
    keep_evaluated: Callable[[Sequence[Attempt]], None] | None = None
    complete: Callable[[View], View] | None = None
    retriever: Retriever = field(init=False)
    proof: Proof = field(init=False)
    flight: Flight = field(default_factory=Flight)
    images: dict[str, str] = field(default_factory=dict)
    slots: Slots = field(default_factory=dict)
    retriever_override: InitVar[Retriever | None] = None

    def __post_init__(self, retriever_override: Retriever | None) -> None:
        self.retriever = retriever_override or Retriever(self.vectors)
        # practicum's own agents need no proof: they fail only if their model fails.
        self.proof = Proof(proven=not self.agent.journaled)

    @property
    def nonzero_counts(self) -> dict[str, int]:
        """Counters above zero, by key."""
        return {str(key): count for key, count in sorted(self.counts.items()) if count}

    def seat(self, role: str) -> Seat:
        """Return the seat of this role, or the seat of the agent if the role has no seat. Raises ProviderError if
        neither seat exists, for example when a context is shown without a budget."""
        seat = self.seats.get(role) or self.seats.get("agent")
        if seat is None:
            raise ProviderError("model.not_open", f"no model is open for the role {role}")
        return seat

    def refused_by(self, model: str) -> RefusedParameters:
        """Return the parameters that the server of a model refused. Each newly refused parameter is counted, noted and
        reported once."""

        def report(name: str, instead: str | None, sentence: str) -> None:
            self.counts[Count.REFUSED_PARAMETERS] += 1
            self.journal.note_refused(model, name, instead)
            self.observer.warned(in_words(model, name, instead, sentence))

        if model not in self.refused:
            self.refused[model] = RefusedParameters(on_refusal=report)
        return self.refused[model]

    def restore_refused(self) -> None:
        """Restore the refused parameters that were noted before the run was resumed."""
        for model, name, instead in self.journal.refused():
            self.refused_by(model).replaced[name] = instead
            self.counts[Count.REFUSED_PARAMETERS] += 1

    def refused_request(self, model: str, call: JournalRow, error: RequestError) -> None:
        """Warn about a refused request, if it is one of the first `WARNED_REFUSALS`. Raises ModelError if too many
        requests of the call's role in a row got the same refusal and none was answered in between, because the cause of
        such refusals is not in the single requests. A resume sends the refused requests again.
        """
        task = {source.removeprefix("task:") for source in call.sources if source.startswith("task:")}
        if error.code == "window.exceeded" and call.role != "agent":
            return  # not reported, because `ask_fitted` shortens the prompt and asks again
        # Ids and numbers of tokens in an error message may differ between requests.
        same = f"{error.code} {re.sub(r'[0-9a-f-]*[0-9][0-9a-f-]*', '', str(error))}"
        before, places = self.in_row.get((model, call.role), ("", []))
        places = [*(places if same == before else ()), call.place]
        self.in_row[model, call.role] = (same, places)
        if len(places) >= (UNKNOWN_IN_ROW if error.code == "provider.refused" else KNOWN_IN_ROW):
            self.journal.note_outage(again=places)
            raise ModelError(
                "model.always_refused",
                f"{len(places)} requests of the {call.role} in a row were refused, and none was answered in between: "
                f"{error}",
            ) from error
        self.warned_refusals += 1
        if self.warned_refusals <= WARNED_REFUSALS:
            subject = "the attempt" if call.role == "agent" else f"a request of the {call.role}"
            self.observer.warned(f"{f'task {task.pop()}: ' if len(task) == 1 else ''}{subject} is lost: {error}")

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Return the semaphore of an endpoint. `most` is the maximum number of requests in flight at the endpoint;
        None: the run's concurrency. A call that waits for the semaphore has reserved no budget and sent no request, so
        a stop can end the call."""
        if endpoint not in self.slots:
            self.slots[endpoint] = asyncio.Semaphore(most or self.concurrency)
        return self.slots[endpoint]

    def room(self, role: str) -> int:
        """Return the number of tokens that a prompt of this role may have: the window minus the output limit. An output
        limit above half of the window counts as half of the window. A fifth of the difference stays free, because the
        estimate of tokens is rough."""
        # A user's own agent has no seat, so its window is assumed.
        seat = self.seats.get(role) or self.seats.get("agent")
        if seat is None:
            return int(ASSUMED_WINDOW / 1.25)
        window = seat.client.window or ASSUMED_WINDOW
        return int((window - min(seat.options.max_output_tokens, window // 2)) / 1.25)

    def fitting(self, role: str, prompt: Prompt) -> Iterator[Prompt]:
        """Yield versions of a prompt, to try in turn: the whole prompt if its estimated size fits the role's window,
        and after that shorter and shorter versions, because the true window may be smaller than assumed. Cuts are
        marked in the text. A prompt that is shortened several times counts as one shortened prompt. Each shortened part
        of the prompt keeps the beginning and the end of the part, because the beginning and the end of a trace hold
        most of the information."""
        over = prompt_tokens(prompt) - self.room(role)
        size = count_tokens(prompt.user)
        if over <= 0:
            yield prompt
        keep = size - over if over > 0 else size // 2
        self.counts[Count.SHORTENED_PROMPTS] += 1
        for n in range(SHORTENINGS):
            yield shorten_prompt(prompt, max(keep >> n, MIN_KEPT))

    def most(self, client: Client, prompt_tokens: float, output_tokens: int) -> Usage:
        """Return the expected maximum cost of a call, computed from the estimated `prompt_tokens`, the limit
        `output_tokens`, and the model's ratios so far."""
        read = int(prompt_tokens * self.token_ratio.get(client.name, TOKEN_RATIO)) + 1
        most = Usage(1, read, 0, int(output_tokens * self.output_ratio.get(client.name, 1.0)))
        return replace(most, usd=client.cost(most))

    def learn_output(self, client: Client, output_tokens: int, usage: Usage) -> None:
        """Update a model's output ratio from a call. A resume repeats this update for the calls in the journal."""
        written = usage.output_tokens / output_tokens
        self.output_ratio[client.name] = max(self.output_ratio.get(client.name, 1.0), written)

    def settle(self, places: Iterable[str]) -> list[JournalRow]:
        """Remove the failures and notes of these places from `lost`, and return them for writing to the journal."""
        settled = {*places}
        return [self.lost.pop(place) for place in [*self.lost] if place in settled]
