"""The state that all places of one run share. Only `Run` and the session that opened it use it."""

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
from practicum.engine.door import Door
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
    """A model in a role, and the options it is called with."""

    client: Client
    options: CallOptions = field(default_factory=CallOptions)


class Scorer(Protocol):
    """Scores a trace. The results of a scorer that is not `pure` (a user's function, for example) are journaled."""

    @property
    def name(self) -> str: ...

    @property
    def pure(self) -> bool: ...

    @property
    def needs_target(self) -> bool: ...

    async def __call__(self, task: Task, trace: Trace, run: Any) -> Score: ...


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call that ended: where it was made and in which role, what the model was asked, and what it answered.

    `error` says why there is no answer, if there is none. `seconds` includes waits and repetitions.
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
    """Is told what happens in a run, as it happens; results from the journal of an earlier process are not told.

    Every method may be called often and must return at once.
    """

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        """A step of learning begins, on so many tasks; `steps` is the number of all steps where it is known. A schedule
        whose steps overlap does not tell."""

    def called(self, call: ModelCall) -> None:
        """A model call ended."""

    def waiting(self, wait: Wait) -> None:
        """A call waits before it is sent again, because the provider limited or failed it."""

    def attempted(self, task: Task, trace: Trace) -> None:
        """An attempt ended, in learning or in an evaluation, also one that the journal holds."""

    def scored(self, task: Task, score: Score | None) -> None:
        """The attempt was scored; None if nothing could score it, or if it was lost to the provider."""

    def warned(self, text: str) -> None:
        """Something that a user should know now, such as a task that is very large."""

    def spread(self, nodes: Mapping[str, int]) -> None:
        """How many attempts are in flight on each node of a cluster, by its id, where they are made on one."""


Slots = dict[str, asyncio.Semaphore]
"""Semaphores that bound what is in flight, by endpoint."""

ASSUMED_WINDOW = 100_000
"""Tokens that a model is assumed to read if its window is not known."""

SHORTENINGS = 5
"""How often a prompt above the model's window is shortened, each time to half of what the last attempt kept."""

TOKEN_RATIO = 1.25
"""Tokens that a model is assumed to count for each that is estimated."""

UNKNOWN_IN_ROW, KNOWN_IN_ROW = 5, 20
"""Refusals in a row after which a run stops: of requests that were refused for an unknown reason, and of those that a
content filter, the window or an invalid sample explains."""

WARNED_REFUSALS = 5
"""Refused requests that are named one by one."""

MIN_KEPT = 64
"""Tokens that are kept of a message, however little room there is."""


@dataclass
class RunState:
    """Everything that places share: the journal, the models in their roles, agent, scorer, budget and counters.

    `labels=False` hides targets and scores from everything that learns; `judged` lets a judge give feedback instead.
    `lost` holds, by place, failures of the provider and notes that no result rests on yet: a failure is written with
    the first result that may rest on it, and else tried again by a resume. `rests_on` has those behind evaluations.
    `in_row` has the last refusal of a request for each model and role, and the places where it came in a row; `refused`
    the parameters that the server of each model refused.
    `unparsed` lists the places where no output of a model could be parsed; `last_error` is the last failure of a
    model. `door` decides which edits wait for review, and `trust_tools` says that what tools return is the
    operator's own. `nonce` marks what is shown as material, if it is not empty. `redactor` replaces
    sensitive values in all that comes in or is sent. `pace` is the number of attempts made and their seconds in
    sum. `most_calls` is the most calls of an attempt so far; `longer_attempt` is called when it rises.
    `token_ratio` is, for each model, the tokens it counted per token that was estimated, and `output_ratio` the
    tokens it wrote per token of the limit, where it wrote more. `keep_evaluated` stores the attempts of an
    evaluation. `complete` adds to every view what the agent sees besides the context, such as corrections.
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
    judged: bool = False
    door: Door = field(default_factory=Door)
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
    slots: Slots = field(default_factory=dict)
    given_retriever: InitVar[Retriever | None] = None

    def __post_init__(self, given_retriever: Retriever | None) -> None:
        self.retriever = given_retriever or Retriever(self.vectors)
        # The agents of practicum itself fail only where their model does.
        self.proof = Proof(given=not self.agent.journaled)

    @property
    def nonzero_counts(self) -> dict[str, int]:
        """The counters above zero, by key."""
        return {str(key): count for key, count in sorted(self.counts.items()) if count}

    def seat(self, role: str) -> Seat:
        """The model in this role; the agent's model if the role has none of its own. Raises ProviderError where none
        is open, as where a context is shown without a budget."""
        seat = self.seats.get(role) or self.seats.get("agent")
        if seat is None:
            raise ProviderError("model.not_open", f"no model is open here for the role {role}")
        return seat

    def refused_by(self, model: str) -> RefusedParameters:
        """The parameters that the server of a model refused; those that it refuses from now on are counted, noted and
        said once."""

        def said(name: str, instead: str | None, sentence: str) -> None:
            self.counts[Count.REFUSED_PARAMETERS] += 1
            self.journal.note_refused(model, name, instead)
            self.observer.warned(in_words(model, name, instead, sentence))

        if model not in self.refused:
            self.refused[model] = RefusedParameters(said=said)
        return self.refused[model]

    def restore_refused(self) -> None:
        """Know again what servers refused before the run was resumed."""
        for model, name, instead in self.journal.refused():
            self.refused_by(model).replaced[name] = instead
            self.counts[Count.REFUSED_PARAMETERS] += 1

    def refused_request(self, model: str, call: JournalRow, error: RequestError) -> None:
        """Say which request was refused, of the first ones. Raises ModelError if the same refusal met too many requests
        of this role in a row, with no answer in between: then it is not about the requests. A resume sends these again.
        """
        task = {source.removeprefix("task:") for source in call.sources if source.startswith("task:")}
        if error.code == "window.exceeded" and call.role != "agent":
            return  # its prompt is shortened
        # Sentences may hold ids and numbers of tokens.
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
            what = "the attempt" if call.role == "agent" else f"a request of the {call.role}"
            self.observer.warned(f"{f'task {task.pop()}: ' if len(task) == 1 else ''}{what} is lost: {error}")

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """The semaphore of an endpoint. A call that waits for it has reserved nothing and sent nothing yet, so a stop
        can end it."""
        if endpoint not in self.slots:
            self.slots[endpoint] = asyncio.Semaphore(most or self.concurrency)
        return self.slots[endpoint]

    def room(self, role: str) -> int:
        """The tokens that a prompt of this role may have: what an answer leaves, which takes half of the window or
        less. The estimate of tokens is rough, so a quarter stays free."""
        # An agent of the user's own has no model here.
        seat = self.seats.get(role) or self.seats.get("agent")
        if seat is None:
            return int(ASSUMED_WINDOW / 1.25)
        window = seat.client.window or ASSUMED_WINDOW
        return int((window - min(seat.options.max_output_tokens, window // 2)) / 1.25)

    def fitting(self, role: str, prompt: Prompt) -> Iterator[Prompt]:
        """The prompt if it should fit the role's window, then shorter and shorter versions, for a model that reads less
        than estimated. Cuts are marked in the text, and the prompt is counted once. The beginning and the end of each
        part are kept, because they say most in a trace."""
        over = prompt_tokens(prompt) - self.room(role)
        size = count_tokens(prompt.user)
        if over <= 0:
            yield prompt
        keep = size - over if over > 0 else size // 2
        self.counts[Count.SHORTENED_PROMPTS] += 1
        for n in range(SHORTENINGS):
            yield shorten_prompt(prompt, max(keep >> n, MIN_KEPT))

    def most(self, client: Client, prompt_tokens: float, output_tokens: int) -> Usage:
        """The most that a call should cost: by the estimate of its prompt, its limit of output tokens, and how its
        model counted so far and kept to its limits."""
        read = int(prompt_tokens * self.token_ratio.get(client.name, TOKEN_RATIO)) + 1
        most = Usage(1, read, 0, int(output_tokens * self.output_ratio.get(client.name, 1.0)))
        return replace(most, usd=client.cost(most))

    def learn_output(self, client: Client, output_tokens: int, usage: Usage) -> None:
        """Learn from a call, also one before a resume, how its model kept to the limit of output tokens."""
        written = usage.output_tokens / output_tokens
        self.output_ratio[client.name] = max(self.output_ratio.get(client.name, 1.0), written)

    def settle(self, places: Iterable[str]) -> list[JournalRow]:
        """The failures and notes at these places that were not written yet, to be written now."""
        settled = {*places}
        return [self.lost.pop(place) for place in [*self.lost] if place in settled]
