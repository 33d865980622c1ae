"""A run in use by a program: show its context, report outcomes, and learn from the outcomes.

A `Space` keeps the files, the context and the vectors open. The `Space` notices new versions that another process
makes, or that learning in this process makes. Showing only reads the run; a report is a short write that does not wait
for the process that learns.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from practicum.agents.chat import USING, choosing_among, first_prompt
from practicum.agents.external import context_text
from practicum.core.context import ApplyResult, Context
from practicum.core.edits import Delta, Edit
from practicum.core.errors import StoreError, UsageError
from practicum.core.playbook import ExportFormat, export
from practicum.core.skills import SkillFiles
from practicum.core.types import Task, Turn
from practicum.core.views import View
from practicum.engine.framing import framed_view, text_view
from practicum.engine.loop import Method
from practicum.methods.settings import GateSettings
from practicum.session.amend import apply_edits, roll_back, writing
from practicum.session.ask import Answered, answer_query, learn_query
from practicum.session.components import Parts
from practicum.session.config import Config, require_keywords
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
    shown_row,
    trust_of,
)
from practicum.session.reader import Reader
from practicum.session.registries import push_context
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
from practicum.session.skills import export_skills
from practicum.session.users import Forgotten, export_user, forget_user
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.names import LIVE, delete_name, find_version, name_version, read_names
from practicum.store.reviews import APPROVED, REJECTED
from practicum.store.snapshot import read_context
from practicum.store.sums import interaction_sums
from practicum.store.versions import Version, read_versions, rebuild

PRUNE_EVERY, UNREPORTED = 1_000, 100_000
"""Number of shown queries between two deletions of queries without a report, and number of the newest queries that a
deletion keeps."""


@dataclass(frozen=True)
class Shown:
    """Context shown to an agent for a query. `report` takes this object or its `id`.

    `version` is the version of the run that is shown. `config` has the instructions and choices of the run.
    """

    id: str
    query: str
    version: int
    view: View = field(repr=False)
    context: Context = field(repr=False, compare=False)
    config: Config = field(repr=False, compare=False)
    user: str | None = None
    corrections: tuple[str, ...] = ()
    """Ids of the corrections and notes that are shown, such as c5."""

    @cached_property
    def text(self) -> str:
        """Context as one text: the `context` argument of your own agent."""
        return context_text(text_view(self.view, self.config.nonce))

    @property
    def pages(self) -> tuple[str, ...]:
        """Parts of the context that precede the query in a prompt."""
        return framed_view(self.view, self.config.nonce).pages

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Solved tasks, each as an earlier chat turn with the fields `user` and `assistant`."""
        return self.view.turns

    @property
    def scores(self) -> dict[str, float]:
        """Similarities of the retrieved entries to the query, by entry id, most similar first. Empty if every query is
        shown the same entries."""
        return dict(self.view.retrieved)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Ids of the shown entries: first the retrieved entries, in the order of `scores`, then the other entries,
        oldest first."""
        retrieved = tuple(self.scores)
        ids = self.view.ids
        # A few ids of many entries are looked up one by one, without iterating over all entries.
        entries = map(self.context.get, ids) if isinstance(ids, frozenset) else (e for e in self.context if e.id in ids)
        shown = sorted((e for e in entries if e is not None and not e.hidden), key=lambda e: e.number)
        return (*retrieved, *(entry.id for entry in shown if entry.id not in self.scores))

    @cached_property
    def messages(self) -> list[Any]:
        """Messages that the chat agent of practicum sends, in the format of OpenAI's API: the run's instructions with
        the pages, the turns, the query. The request to cite entry ids, and to reason first, is left out."""
        choosing = choosing_among(self.config.choices, self.view, self.config.profile or "full")
        usage = USING if self.view.citable else ""
        task = Task(self.id, self.query)
        view = framed_view(self.view, self.config.nonce)
        prompt = first_prompt(task, view, view.turns, self.config.instructions, choosing, usage)
        turns = [(role, text) for t in prompt.turns for role, text in (("user", t.user), ("assistant", t.assistant))]
        messages = [("system", prompt.head), *turns, ("user", prompt.user)]
        return [{"role": role, "content": text} for role, text in messages if text]


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
    """Open a run for use in a program, at the version with this number or name.

    By default, the live version of a served space is opened, or else the last version. A name may also be written
    RUN@NAME. A playbook file or a Context can be opened for `show` and `ask` too.

    Other keywords are the same as for `learn`; the defaults of these keywords are the run's values. `parts` holds the
    Python objects of the run: the method for `show`, the agent for `ask`, and the scorer for `learn`. `wait` is the
    time (s) that learning waits for another process that writes to the run. Without `trust_run`, a run from another
    machine shows its context, but the agent, models and programs that the run names are not used.

    Raises UsageError or StoreError if the run or version does not exist.
    """
    require_keywords(open, config)
    values, parts = take_objects({**config, "method": method, "settings": settings}, parts or Parts())
    return Space(source, version, parts, wait, values, trust_run)


class Space(Opened):
    """Run that is open for use; created by `practicum.open`. Many asyncio tasks and threads may use this object at the
    same time."""

    _shown = 0
    _warned = False

    @property
    def context(self) -> Context:
        """Context of the version that `show` uses now."""
        return self._reader().context()

    @property
    def corrections(self) -> Context:
        """Corrections and notes in effect, as entries; empty for a playbook."""
        return self._stored(read_corrections, Context())

    def versions(self) -> list[Version]:
        """Return the versions of the run, oldest first, each with its parent and edits; empty for a playbook."""
        return self._stored(read_versions, [])

    def export(self, format: ExportFormat = "markdown") -> str:
        """Return the shown context, with corrections and notes, as text in a format: `markdown`, `json`,
        `agents-md`."""
        return export(self.context, format, self.corrections)

    async def export_skills(self, folder: Path | str, *, model: str | None = None) -> list[SkillFiles]:
        """Write the shown context, with corrections and notes, as Agent Skills, one folder each in `folder`, and return
        the skills. `session.skills.export_skills` describes the topics, `model`, and the folders that are replaced."""
        first = rebuild(self.versions()[:1]) if self.folder else self.context
        return await export_skills(Path(folder), self.context, self.corrections, first, model)

    @property
    def names(self) -> dict[str, int]:
        """Named versions of the run."""
        return self._stored(read_names, {})

    def name(self, name: str, version: int | str | None = None, *, push: str | None = None) -> int:
        """Name a version (None: the last version) and return the version's number. If another version had the name, the
        name moves to this version.

        After this call, a process that opened the run by this name shows the named version. With `push`, REGISTRY or
        REGISTRY:PROMPT, the text of the version is also registered as a version of a prompt in a prompt registry, and
        gets the name as its label. Raises PracticumError if the registry does not accept the text; the version keeps
        its name here, and the call can be repeated.
        """
        store = self._writable_store("a name")
        number = name_version(store, name, version)
        if push is not None:
            push_context(read_context(store, number), name, push, store.folder)
        return number

    def unname(self, name: str) -> None:
        """Delete a name. The version that it names stays."""
        delete_name(self._writable_store("a name"), name)

    async def show(self, query: str, *, user: str | None = None) -> Shown:
        """Return the context that the method shows an agent for a query, as in training and evaluation, and add the
        corrections and notes about the query.

        `user` is the end user who asks, if the query is not the operator's own.

        No model is called, except by a method that writes the context for each query (`dynamic_cheatsheet` with
        `form=synthesis`). Raises UsageError for a method with a network of agents (`mael`), which shows each agent a
        different context: use `ask`.
        """
        reader = self._reader()
        text = reader.redacted(_checked(query))
        try:
            context, view, corrections = await self._view(reader, text)
        except StoreError:
            # The files were replaced, for example by `forget`.
            reader.reopen()
            context, view, corrections = await self._view(reader, text)
        shown = Shown(new_id(), text, context.version, view, context, reader.config, user, tuple(corrections))
        if self._is_writable:
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
        """Store a report about a shown context and return the outcome. The report is on disk when this method returns.

        `answer` is anything that your own agent may return: a text, a Trace, or a mapping with "answer" and, for
        example, "used" and "steps". `score` is a number in [0, 1], a bool or a Score; `target` is the right answer,
        `comment` a description of the error, and `label` a word such as thumbs_up. A later report adds fields to an
        earlier report, and replaces the fields that both reports have. If a report changes an outcome that was learned
        from, the outcome is learned from again. Raises UsageError for an unknown id.

        `user` is the end user who reports. Lessons from reports of users, and from questions of users (see `show`), may
        wait for review (`practicum review RUN`). A user's report never replaces the operator's report.

        A right answer or a comment also creates a correction, which takes effect with the next query; a later score of
        1 withdraws the correction. In a served space, some outcomes with a right answer are held out from learning.
        """
        id = shown if isinstance(shown, str) else shown.id
        report, extra = report_of(id, answer, score, target, comment, label)
        reader, store = self._reader(), self._writable_store("a report")
        report = report.model_copy(update=reader.redacted(report.model_dump(include={*REPORTED}, exclude_none=True)))
        extra = reader.redacted(extra)
        if isinstance(shown, Shown):
            self._remember(shown)
        interaction = await asyncio.wrap_future(store.do(lambda at: find_interaction(at, report)))
        await reader.near(interaction.query)
        question = reader.questions.of(interaction.query).text if interaction.query else ""
        return await self._corrector(reader, store).report(interaction, question, report, trust_of(user), extra=extra)

    def pending(self) -> list[Review]:
        """Return the edits that wait for review, oldest first; empty for a playbook."""
        return self._stored(read_reviews, [])

    async def approve(self, ids: Iterable[str]) -> Approval:
        """Apply edits that wait for review as one version, and put corrections and notes in effect.

        Edits that can no longer be applied keep waiting, and are in `refused` of the returned Approval. Raises
        UsageError for the id of an edit that does not wait.
        """
        with Store.read(self._run_to_learn()) as stored:
            reviews = find_reviews(stored, ids)
        edits = [one.id for one in reviews if one.correction is None]
        done = Approval(self.context)
        if edits:
            async with writing(self._run_to_learn(), self._wait) as store:
                done = approve(store, find_reviews(store, edits))
        corrections = await self._decide([one for one in reviews if one.id not in edits], APPROVED)
        return replace(done, approved=(*corrections, *done.approved))

    async def reject(self, ids: Iterable[str], reason: str) -> list[Review]:
        """Reject edits that wait for review. After the rejection, an edit with the same text is refused.

        A correction or a note (such as c5) that is in effect can be rejected too. Raises UsageError for an id of
        anything else.
        """
        reason = required_reason(reason)
        with Store.read(self._run_to_learn()) as stored:
            reviews = find_reviews(stored, ids, held=True)
        edits = [one.id for one in reviews if one.correction is None]
        done = list[Review]()
        if edits:
            async with writing(self._run_to_learn(), self._wait) as store:
                done = reject(store, find_reviews(store, edits), reason)
        return [*await self._decide([one for one in reviews if one.id not in edits], REJECTED, reason), *done]

    async def reopen(self, ids: Iterable[str]) -> list[Review]:
        """Make rejected edits, corrections and notes wait for review again. Raises UsageError for the id of an edit,
        correction or note that is not rejected."""
        store = self._writable_store("a decision")
        return reopen(store, find_reviews(store, ids, (REJECTED,)))

    async def _decide(self, reviews: Sequence[Review], state: str, reason: str = "") -> list[Review]:
        """Decide reviews of corrections and notes."""
        reader, store = self._reader(), self._writable_store("a decision")
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
        """Learn from all reported outcomes that were not learned from yet, as further steps of the run.

        With `tasks`, learn from these tasks instead of the outcomes: from their recorded attempts (`load_traces`,
        `load_outcomes`), or else from attempts by the run's agent. During learning, `show` shows the last finished
        version.

        If a budget is spent, the next call learns from the remaining outcomes. After an interruption, no call is paid
        for twice. Calls on one run in this process take turns; raises RunBusy if another process is writing to the run.
        """
        folder = self._run_to_learn()
        limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd, "max_minutes": max_minutes}
        overrides = {**self._overrides, **{name: most for name, most in limits.items() if most is not None}}
        async with writing(folder, self._wait) as store:
            return await learn_further(
                store, self._parts, watch or Watch(), overrides, await self._shared(), self._trust_run,
                tasks=None if tasks is None else [*tasks],
            )  # fmt: skip

    async def edit(self, *edits: Edit) -> ApplyResult:
        """Apply edits made by hand as one version, which is shown at once. Edits that cannot be applied are in
        `refused` of the result.

        Raises UsageError for a run that has not ended, and while a service has a version in a canary.
        """
        async with writing(self._run_to_learn(), self._wait) as store:
            return apply_edits(store, lambda context: Delta(edits))

    async def rollback(self, version: int | str) -> int:
        """Add a new version with the context of an earlier version. Return the number of the new version.

        Raises UsageError for an unknown version.
        """
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
        """Remove permanently these entries, and everything that was derived from these tasks, sources or tags. Return a
        report.

        Corrections and notes, such as c5, are entries too. `keep_mixed` keeps entries that also have other sources, and
        `alike` also removes other text with rare words of the forgotten text. Raises UsageError for an unknown name.
        """
        async with writing(self._run_to_learn(), self._wait) as store:
            return forget(
                store, tasks=[*tasks], sources=[*sources], tags=[*tags], entries=[*entries], keep_mixed=keep_mixed,
                alike=alike,
            )  # fmt: skip

    async def forget_user(self, user: str, *, alike: bool = False) -> Forgotten:
        """Remove permanently the data of an end user and the lessons from these data. Return a report.

        `alike` also removes other text with rare words of the user's texts. Raises UsageError if no data of the user
        are stored.
        """
        store = self._writable_store("the data of a user")
        return await asyncio.to_thread(forget_user, store, user, alike=alike)

    async def export_user(self, user: str) -> list[dict[str, Any]]:
        """Return the data of an end user, and the lessons from these data, as plain values. Raises UsageError if no
        data of the user are stored."""
        store = self._writable_store("the data of a user")
        return await asyncio.to_thread(lambda: [*export_user(store, user)])

    async def ask(
        self, query: str, *, learn: bool = False, target: str | None = None, watch: Watch | None = None
    ) -> Answered:
        """Answer a query with the agent, which is also shown the corrections and notes about the query. With `learn`,
        also learn from the query, as one more step of the run.

        `target` is the right answer, for learning. The feedback is a score if `target` is passed or the scorer needs no
        target, and otherwise a judge's verdict. `watch` receives the model calls and the waits for retries. If the run
        learns, `watch` also receives the beginning of the step (`Watch.began`). After a stop, repeat the query: no call
        is paid for twice. Raises UsageError before the first model call for invalid arguments, and ProviderError if the
        agent gives no answer.
        """
        reader = self._reader()
        text, target = reader.redacted((_checked(query), target))
        if learn:
            folder = self._run_to_learn()
            if self._version is not None:
                raise UsageError(
                    "settings.conflict",
                    "learning continues from the last version: open the run without a version, or leave out `learn`",
                )
            corrections, complete = await self._complete(reader, text)
            async with writing(folder, self._wait) as store:
                return await learn_query(
                    text, store, target, self._parts, watch or Watch(), self._overrides, await self._shared(),
                    self._trust_run, corrections, complete,
                )  # fmt: skip
        if target is not None:
            raise UsageError(
                "settings.conflict",
                "a target is feedback for learning: ask with `learn=True`, or score with practicum eval",
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
        """Return the ids of the corrections and notes for a query, and the function that adds these corrections and
        notes to a view."""
        near = await reader.near(text)
        if not near:
            return [], None
        small = reader.config.profile == "small"
        return [one.correction.id for one in near], lambda view: corrected_view(view, near, small)

    def _remember(self, shown: Shown) -> None:
        """Queue the record of a shown context for writing."""
        row, data = shown_row(
            shown.id, shown.query, shown.version, shown.view.retrieved, [int(id[1:]) for id in shown.corrections],
            shown.user,
        )  # fmt: skip
        try:
            store = self._writable_store("a shown context")
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
            message = f"{error}; the record of shown contexts is kept in memory and written later"
            warnings.warn(message, RuntimeWarning, stacklevel=4)


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
    """Answer one query with a context: the context of a run or of a playbook file, or a `Context`. With `learn`, also
    learn from the query.

    Keywords are the same as for `learn`; the defaults of the keywords are the run's values. A program with many queries
    should open the run once (`practicum.open`, where `trust_run` is described). See `Space.ask` for the feedback and
    the errors.
    """
    require_keywords(ask, config)
    async with open(context, method=method, settings=settings, parts=parts, trust_run=trust_run, **config) as space:
        return await space.ask(query, learn=learn, target=target, watch=watch)


def _checked(query: str) -> str:
    if not (text := query.strip()):
        raise UsageError("query.empty", "the query is empty")
    return text
