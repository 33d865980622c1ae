"""A run in a program of one's own: what it learned is shown, what came of that is reported, and learned from.

A `Space` keeps the files, the context and the vectors open. It notices when another process, or learning in this one,
makes a new version. Showing only reads; a report is a short write beside whoever writes to the run.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from practicum.agents.chat import CHOOSING, USING, first_prompt
from practicum.agents.external import context_text
from practicum.core.context import ApplyResult, Context
from practicum.core.edits import Delta, Edit
from practicum.core.errors import StoreError, UsageError
from practicum.core.playbook import ExportFormat, export
from practicum.core.types import Task, Turn
from practicum.core.views import View
from practicum.engine.framing import framed_view, text_view
from practicum.engine.loop import Method
from practicum.methods.settings import GateSettings
from practicum.session.amend import apply_edits, roll_back, writing
from practicum.session.ask import Answered, answer_query, learn_query
from practicum.session.components import Parts
from practicum.session.config import Config, require_known
from practicum.session.correcting import HELD_OUT, Corrector
from practicum.session.corrections import read_corrections
from practicum.session.forget import ForgetReport, forget
from practicum.session.further import learn_further
from practicum.session.keywords import RunOptions
from practicum.session.opened import Opened
from practicum.session.opening import (
    check_tasks,
    open_state,
)
from practicum.session.outcomes import (
    REPORTED,
    Outcome,
    Trusted,
    find_interaction,
    new_id,
    prune,
    report_of,
    said_by,
    shown_row,
)
from practicum.session.reader import Reader
from practicum.session.result import Result, Watch
from practicum.session.review import (
    Approval,
    Review,
    approve,
    find_reviews,
    read_reviews,
    reject,
    reopen,
    required_reason,
)
from practicum.session.setup import take_objects
from practicum.session.shown_corrections import corrected_view
from practicum.session.users import Forgotten, export_user, forget_user
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.names import LIVE, delete_name, find_version, name_version, read_names
from practicum.store.reviews import APPROVED, REJECTED
from practicum.store.sums import interaction_sums
from practicum.store.versions import Version, read_versions

PRUNE_EVERY, UNREPORTED = 1_000, 100_000
"""Shown queries after which old ones without a report are deleted, and how many of the newest are kept."""


@dataclass(frozen=True)
class Shown:
    """What an agent is shown for a query. `report` takes it, or its `id`.

    `version` is the version of the run that it is from. `config` has the instructions and choices of the run.
    """

    id: str
    query: str
    version: int
    view: View = field(repr=False)
    context: Context = field(repr=False, compare=False)
    config: Config = field(repr=False, compare=False)
    user: str | None = None
    corrections: tuple[str, ...] = ()
    """The ids of the corrections and notes that are shown, such as c5."""

    @cached_property
    def text(self) -> str:
        """The context as one text: what an agent of one's own gets as `context`."""
        return context_text(text_view(self.view, self.config.nonce))

    @property
    def pages(self) -> tuple[str, ...]:
        """The parts that stand before the query."""
        return framed_view(self.view, self.config.nonce).pages

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Solved tasks, each as an earlier exchange with the fields `user` and `assistant`."""
        return self.view.turns

    @property
    def scores(self) -> dict[str, float]:
        """The entries that were looked up for the query, most similar first, with the cosine of their vectors and that
        of the query; empty where every query is shown the same."""
        return dict(self.view.retrieved)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The entries that are shown: those that were looked up, in the order of `scores`, then the others by age."""
        found = tuple(self.scores)
        ids = self.view.ids
        # The few that were looked up among many are found without reading the others.
        some = map(self.context.get, ids) if isinstance(ids, frozenset) else (e for e in self.context if e.id in ids)
        shown = sorted((e for e in some if e is not None and not e.hidden), key=lambda e: e.number)
        return (*found, *(entry.id for entry in shown if entry.id not in self.scores))

    @cached_property
    def messages(self) -> list[Any]:
        """The chat that a plain agent of practicum sends, as a client of OpenAI's API takes it: the run's instructions
        with the pages, the turns, the query. It does not ask for the ids of the entries that the answer rests on."""
        choosing = CHOOSING.format("; ".join(self.config.choices)) if self.config.choices else ""
        usage = USING if self.view.citable else ""
        task = Task(self.id, self.query)
        view = framed_view(self.view, self.config.nonce)
        prompt = first_prompt(task, view, view.turns, self.config.instructions, choosing, usage)
        turns = [(role, text) for t in prompt.turns for role, text in (("user", t.user), ("assistant", t.assistant))]
        said = [("system", prompt.head), *turns, ("user", prompt.user)]
        return [{"role": role, "content": text} for role, text in said if text]


def open(  # named for `practicum.open`
    source: Path | str | Context,
    version: int | str | None = None,
    *,
    method: str | Method | None = None,
    settings: Mapping[str, Any] | GateSettings | None = None,
    parts: Parts | None = None,
    wait: float = 0.0,
    trust_run: bool = False,
    **config: Unpack[RunOptions],
) -> Space:
    """Open a run, to use it in a program: its last version, or the one with this number or name, which may also be
    written RUN@NAME. A playbook file or a Context can be shown and asked, too.

    Other keywords are those of `learn`; those not given are the run's. `parts` holds the Python objects that it was
    made with: a method to be shown anything, an agent to ask, a scorer to learn. `wait` is how many seconds learning
    waits for another process that writes to the run. A run that was made elsewhere shows its context; its agent, models
    and whatever else it would execute are used only with `trust_run`.

    Raises UsageError or StoreError if there is no such run or version.
    """
    require_known(open, config)
    values, parts = take_objects({**config, "method": method, "settings": settings}, parts or Parts())
    return Space(source, version, parts, wait, values, trust_run)


class Space(Opened):
    """A run that is open for use; `practicum.open` makes it. It may be used by many tasks and threads at once."""

    _shown = 0
    _warned = False

    @property
    def context(self) -> Context:
        """The version that is shown now."""
        return self._reader().context()

    @property
    def corrections(self) -> Context:
        """The corrections and notes that hold, as entries; empty for a playbook."""
        return self._stored(read_corrections, Context())

    def versions(self) -> list[Version]:
        """The versions of the run, oldest first, each with its parent and the edits that made it; empty for a
        playbook."""
        return self._stored(read_versions, [])

    def export(self, format: ExportFormat = "markdown") -> str:
        """What the space shows now, with its corrections and notes, as a text: markdown, json or agents-md."""
        return export(self.context, format, self.corrections)

    @property
    def names(self) -> dict[str, int]:
        """The named versions of the run."""
        return self._stored(read_names, {})

    def name(self, name: str, version: int | str | None = None) -> int:
        """Give a version (None: the last) a name, which another one may have had before; returns its number. Who has
        opened the run by the name is shown that version from then on."""
        return name_version(self._written("a name"), name, version)

    def unname(self, name: str) -> None:
        """Take a name away; its version stays."""
        delete_name(self._written("a name"), name)

    async def show(self, query: str, *, user: str | None = None) -> Shown:
        """What the method shows its agent for this query, exactly as in training and evaluation, and with it the
        corrections and notes of the run that the query is about. `user` is the end user who asks, if the query is not
        the operator's own.

        No model is asked, except by a method that writes the context for each query (dynamic_cheatsheet with
        form=synthesis), which asks for it. Raises UsageError for a method with a network of agents (mael), each of
        which is shown something else: `ask` it.
        """
        reader = self._reader()
        text = reader.redacted(_checked(query))
        try:
            context, view, corrections = await self._view(reader, text)
        except StoreError:
            # What was to be read has been replaced, such as by `forget`.
            reader.reopen()
            context, view, corrections = await self._view(reader, text)
        shown = Shown(new_id(), text, context.version, view, context, reader.config, user, tuple(corrections))
        if self._is_kept:
            self._remember(shown)
        return shown

    async def _view(self, reader: Reader, text: str) -> tuple[Context, View, list[str]]:
        context = reader.context()
        corrections, complete = await self._complete(reader, text)
        view = await reader.view(text, context, self._log_folder)
        return context, complete(view) if complete else view, corrections

    async def report(
        self,
        shown: Shown | str,
        *,
        answer: Any = None,
        score: Any = None,
        target: str | None = None,
        comment: str | None = None,
        label: str | None = None,
        user: str | None = None,
    ) -> Outcome:
        """Keep what was reported about what was shown; it is on the disk when this returns.

        `answer` is all that an agent of one's own may return: a text, a Trace, or a mapping with "answer" and, for
        example, "used" and "steps". `score` is a number in [0, 1], a bool or a Score, `target` what would have been
        right, `comment` what was wrong in words, and `label` a word such as thumbs_up. A later report on the same adds
        to it, and replaces what it gives anew; one that changes what was learned from is learned from again. Raises
        UsageError for an id that is unknown.

        `user` is the end user who reports. What users said (and asked, see `show`) may teach nothing before
        somebody has looked at it (`practicum review RUN`), and never replaces what the operator reported.

        A right answer or a comment also makes a correction, which holds from the next query on; a later score of 1
        withdraws it. Of a space that is served, some outcomes with a right answer are held out from learning.
        """
        id = shown if isinstance(shown, str) else shown.id
        report, beside = report_of(id, answer, score, target, comment, label)
        reader, store = self._reader(), self._written("a report")
        report = report.model_copy(update=reader.redacted(report.model_dump(include={*REPORTED}, exclude_none=True)))
        beside = reader.redacted(beside)
        if isinstance(shown, Shown):
            self._remember(shown)
        known = await asyncio.wrap_future(store.do(lambda at: find_interaction(at, report)))
        await reader.near(known.query)
        question = reader.questions.of(known.query).text if known.query else ""
        return await self._corrector(reader, store).report(known, question, report, said_by(user), beside=beside)

    def pending(self) -> list[Review]:
        """The edits that wait for review, the oldest first; empty for a playbook."""
        return self._stored(read_reviews, [])

    async def approve(self, ids: Iterable[str]) -> Approval:
        """Apply edits that wait for review as one more version, and let corrections and notes hold; what cannot be
        applied any more waits still, and is named in `refused`. Raises UsageError for an id that does not wait."""
        with Store.read(self._run_to_learn()) as stored:
            found = find_reviews(stored, ids)
        edits = [one.id for one in found if one.correction is None]
        done = Approval(self.context)
        if edits:
            async with writing(self._run_to_learn(), self._wait) as store:
                done = approve(store, find_reviews(store, edits))
        corrections = await self._decide([one for one in found if one.id not in edits], APPROVED)
        return replace(done, approved=(*corrections, *done.approved))

    async def reject(self, ids: Iterable[str], reason: str) -> list[Review]:
        """Reject edits that wait for review; from then on one that says the same is refused. A correction or a note
        (such as c5) may also hold, and holds no longer. Raises UsageError for an id that does not wait."""
        reason = required_reason(reason)
        with Store.read(self._run_to_learn()) as stored:
            found = find_reviews(stored, ids, held=True)
        edits = [one.id for one in found if one.correction is None]
        done = list[Review]()
        if edits:
            async with writing(self._run_to_learn(), self._wait) as store:
                done = reject(store, find_reviews(store, edits), reason)
        return [*await self._decide([one for one in found if one.id not in edits], REJECTED, reason), *done]

    async def reopen(self, ids: Iterable[str]) -> list[Review]:
        """Let rejected edits, corrections and notes wait for review again. Raises UsageError for an id that is not
        rejected."""
        store = self._written("a decision")
        return reopen(store, find_reviews(store, ids, (REJECTED,)))

    async def _decide(self, reviews: Sequence[Review], state: str, reason: str = "") -> list[Review]:
        """Decide about corrections and notes."""
        reader, store = self._reader(), self._written("a decision")
        if reviews:
            await reader.corrections.follow(store)
            corrector = self._corrector(reader, store)
            for number in (one.correction.number for one in reviews if one.correction is not None):
                await corrector.decide(number, state == APPROVED, reason)
        return [replace(one, state=state, reason=reason) for one in reviews]

    @staticmethod
    def _corrector(reader: Reader, store: Store) -> Corrector:
        held_out = HELD_OUT if LIVE in read_names(store) else 0.0
        return Corrector(store, reader.corrections, Trusted(), reader.config.review != "none", held_out)

    async def learn(
        self,
        tasks: Iterable[Task] | None = None,
        *,
        watch: Watch | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_usd: float | None = None,
        max_minutes: float | None = None,
    ) -> Result:
        """Learn from all that was reported and not learned from yet, as further steps of the run; with `tasks`, from
        these: from their recorded attempts (`load_traces`, `load_outcomes`), or else from attempts by the run's agent.
        Meanwhile `show` shows the last version that is done.

        What a spent budget leaves is learned from next time; after an interruption nothing is paid twice. Work of this
        process on one run is done one after the other; raises RunBusy if another process is writing to it.
        """
        folder = self._run_to_learn()
        limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd, "max_minutes": max_minutes}
        given = {**self._given, **{name: most for name, most in limits.items() if most is not None}}
        async with writing(folder, self._wait) as store:
            return await learn_further(
                store, self._parts, watch or Watch(), given, await self._shared(), self._trust_run,
                tasks=None if tasks is None else [*tasks],
            )  # fmt: skip

    async def edit(self, *edits: Edit) -> ApplyResult:
        """Apply edits made by hand as one more version, which all see at once; what does not fit is in `refused`.
        Raises UsageError for a run that has not ended, and while a version is being tried by a service."""
        async with writing(self._run_to_learn(), self._wait) as store:
            return apply_edits(store, lambda context: Delta(edits))

    async def rollback(self, version: int | str) -> int:
        """Make an earlier version the last one again, as a new version; returns its number. Raises UsageError if there
        is no such version."""
        async with writing(self._run_to_learn(), self._wait) as store:
            number = find_version(store, version)
            assert number is not None
            return roll_back(store, number)

    async def forget(
        self,
        *,
        tasks: Iterable[str] = (),
        sources: Iterable[str] = (),
        tags: Iterable[str] = (),
        entries: Iterable[str] = (),
        keep_mixed: bool = False,
        alike: bool = False,
    ) -> ForgetReport:
        """Remove for good what came from these tasks, sources or tags, and these entries (corrections and notes, such
        as c5, are entries too), and look for what is left. `keep_mixed` keeps entries that rest on others as well, and
        `text` also removes all else that has rare words of what is forgotten. Raises UsageError for an unknown name."""
        async with writing(self._run_to_learn(), self._wait) as store:
            return forget(
                store, tasks=[*tasks], sources=[*sources], tags=[*tags], entries=[*entries], keep_mixed=keep_mixed,
                alike=alike,
            )  # fmt: skip

    async def forget_user(self, user: str, *, alike: bool = False) -> Forgotten:
        """Remove the data of an end user for good, with what was learned from it, and look for what is left. `text`
        also removes all else that has rare words of the user. Raises UsageError if nothing is kept of the user."""
        store = self._written("what is kept of a user")
        return await asyncio.to_thread(forget_user, store, user, alike=alike)

    async def export_user(self, user: str) -> list[dict[str, Any]]:
        """The data of an end user, and what was learned from it, as plain values. Raises UsageError if nothing is kept
        of the user."""
        store = self._written("what is kept of a user")
        return await asyncio.to_thread(lambda: [*export_user(store, user)])

    async def ask(
        self, query: str, *, learn: bool = False, target: str | None = None, watch: Watch | None = None
    ) -> Answered:
        """Answer a query as the agent does at work, with the corrections and notes that it is about; with `learn` also
        learn from it, as one more step of the run.

        The feedback is the score, if `target` is the right answer or the scorer needs none, and otherwise a judge's
        verdict. `watch` is told of calls and waits, and of `began` where something is learned; after a stop the same
        query pays for nothing twice. Raises UsageError before anything is paid for if something does not fit, and
        ProviderError if there is no answer.
        """
        reader = self._reader()
        text, target = reader.redacted((_checked(query), target))
        if learn:
            folder = self._run_to_learn()
            if self._version is not None:
                raise UsageError(
                    "settings.conflict",
                    "what is learned follows the last version: name no version, or leave out `learn`",
                )
            corrections, complete = await self._complete(reader, text)
            async with writing(folder, self._wait) as store:
                return await learn_query(
                    text, store, target, self._parts, watch or Watch(), self._given, await self._shared(),
                    self._trust_run, corrections, complete,
                )  # fmt: skip
        if target is not None:
            raise UsageError(
                "settings.conflict",
                "a target is feedback to learn from: ask with `learn=True`, or score with practicum eval",
            )
        setup, context = reader.acting, reader.context()
        corrections, complete = await self._complete(reader, text)
        folder = self._log_folder()
        async with open_state(
            None, folder, setup, act_only=True, retriever=reader.retriever, shared=await self._shared()
        ) as state:
            state.observer, state.complete = watch or Watch(), complete
            for warning in check_tasks([Task("query", text)], state):
                state.observer.warned(warning)
            return await answer_query(text, context, setup, state, corrections)

    async def _complete(self, reader: Reader, text: str) -> tuple[list[str], Callable[[View], View] | None]:
        """The ids of the corrections and notes that a query is shown, and what adds them to a view."""
        near = await reader.near(text)
        if not near:
            return [], None
        small = reader.config.profile == "small"
        return [one.correction.id for one in near], lambda view: corrected_view(view, near, small)

    def _remember(self, shown: Shown) -> None:
        """Write soon what was shown."""
        row, data = shown_row(
            shown.id, shown.query, shown.version, shown.view.retrieved, [int(id[1:]) for id in shown.corrections],
            shown.user,
        )  # fmt: skip
        try:
            store = self._written("what is shown")
            if self._shown % PRUNE_EVERY == PRUNE_EVERY - 1:
                store.do(lambda at: prune(at, UNREPORTED))
            store.database.writer.post(store.space, schema.interactions, row, sums=interaction_sums(row, data))
            self._shown += 1
            failure = store.database.writer.failing
        except StoreError as error:
            self._warn(error)
        else:
            if failure is not None:
                self._warn(failure.error)

    def _warn(self, error: StoreError) -> None:
        if not self._warned:
            self._warned = True
            said = f"{error}; what is shown is kept in memory and written later"
            warnings.warn(said, RuntimeWarning, stacklevel=4)


async def ask(
    query: str,
    context: Path | str | Context,
    *,
    method: str | Method | None = None,
    settings: Mapping[str, Any] | GateSettings | None = None,
    learn: bool = False,
    target: str | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    trust_run: bool = False,
    **config: Unpack[RunOptions],
) -> Answered:
    """Answer one query under the context of a run, of a playbook file, or this one; with `learn` also learn from it.

    Keywords are those of `learn`; those not given are the run's. A program that asks often opens the run once
    (`practicum.open`), which describes `trust_run`. See `Space.ask` for what is learned, and for errors.
    """
    require_known(ask, config)
    async with open(context, method=method, settings=settings, parts=parts, trust_run=trust_run, **config) as space:
        return await space.ask(query, learn=learn, target=target, watch=watch)


def _checked(query: str) -> str:
    if not (text := query.strip()):
        raise UsageError("query.empty", "the query is empty")
    return text
