"""Reader of a run: a version of the run's context, and the view that the run's method shows an agent for a query.

The method's `show` makes the view, as in learning and evaluation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from practicum.agents.chat import ChatAgent
from practicum.core.context import Context
from practicum.core.errors import StoreError
from practicum.core.redact import Redactor
from practicum.core.types import Task
from practicum.core.views import View
from practicum.engine.framing import nonce_for
from practicum.engine.loop import Method, view_of
from practicum.engine.run import Run
from practicum.engine.state import RunState, Seat
from practicum.methods.blocks.show import default_sections
from practicum.models.registry import Models
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.components import Parts, make_method, make_settings
from practicum.session.config import Config, Splits, config_from
from practicum.session.corrections import last_version
from practicum.session.foreign import Origin
from practicum.session.opening import Shared, call_options, client_settings, open_clients, run_embedder, run_retrieval
from practicum.session.outcomes import recent_messages
from practicum.session.questions import Questions
from practicum.session.records import load_context, override_config
from practicum.session.setup import Setup, make_redactor, set_up, with_defaults
from practicum.session.shown_corrections import SIMILAR, Corrections, Near
from practicum.store.database import Store, as_stored
from practicum.store.journal import Journal
from practicum.store.names import Head, edits_size, find_version, read_head
from practicum.store.snapshot import read_context

T = TypeVar("T")


class Reader:
    """Resources that one thread holds open to show contexts and answer queries."""

    def __init__(
        self, source: Path | Context | Store, folder: Path | Store | None, version: int | str | None,
        overrides: Mapping[str, Any], parts: Parts, trust_run: bool,
    ) -> None:  # fmt: skip
        self._source, self._folder, self._requested_version, self._overrides, self._parts = (
            source,
            folder,
            version,
            overrides,
            parts,
        )
        self._trust_run = trust_run
        self._store: Store | None = None
        self._models: tuple[asyncio.AbstractEventLoop, Shared] | None = None
        self.reopen()

    config: Config
    _origin: Origin | None
    _context: Context
    _changes: int
    _corrected: int
    """Change counter of the store when corrections were last read."""
    _head: Head
    _size: int | None

    def reopen(self) -> None:
        """Open the source again, and read the configuration and the context of the source again."""
        if self._store is not None:
            self._store.close()
        store_or_folder = self._folder
        self._store = store = (
            store_or_folder
            if store_or_folder is None or isinstance(store_or_folder, Store)
            else Store.read(store_or_folder)
        )
        self._corrected = -1
        for attribute in ("acting", "corrections", "method", "questions", "redactor", "retriever", "_state"):
            self.__dict__.pop(attribute, None)
        self._origin = None if store is None else Origin.of(store, self._overrides, self._parts, self._trust_run)
        values = override_config({}, self._overrides) if self._origin is None else self._origin.values()
        # If the source is not a run, or is a run from another machine, the nonce is derived from the path of the
        # source.
        place = "" if isinstance(self._source, Context) or store is not None else str(self._source)
        place = place if store is None else str(store.folder)
        self._values = {"nonce": nonce_for((place,)), **values, "from_traces": False}
        self.config = with_defaults(config_from({**self._values, **self._parts.names()}), self._parts)
        if store is not None:
            self._changes = store.changes()
            with as_stored(store.folder):
                self._head = self._read_head()
                self._context = self._by_origin(read_context(store, self._head.version))
                self._size = edits_size(store, self._head.version)
        elif isinstance(self._source, Context):
            self._context = self._source
        elif isinstance(self._source, Path):
            self._context = load_context(self._source, self._requested_version)

    def context(self) -> Context:
        """Return the current context, after reading changes of the run."""
        if self._store is not None and (changes := self._store.changes()) != self._changes:
            with as_stored(self._store.folder):
                self._follow()
            self._changes = changes
        return self._context

    def _by_origin(self, context: Context) -> Context:
        """Return the context, with all entries marked as foreign if the run was created elsewhere."""
        return context if self._origin is None or self._origin.trusted else context.marked("foreign")

    def _read_head(self) -> Head:
        """Return the current state (`store.names.Head`) of the requested version. Raises UsageError if the version no
        longer exists."""
        assert self._store is not None
        head = read_head(self._store, self._requested_version)
        if head is None:
            # If the version does not exist, this call raises an error with the reason.
            read_context(self._store, find_version(self._store, self._requested_version))
            raise StoreError("store.changed", f"{self.store.folder} was changed while it was being read: try again")
        return head

    def _follow(self) -> None:
        """Update the context. If possible, only the changes since the last reading are read."""
        assert self._store is not None
        old, new = self._head, self._read_head()
        if new.of_run != old.of_run:
            self.reopen()
        elif new != old:
            # A resumed run may have replaced its last versions by other versions with the same numbers.
            size = edits_size(self._store, old.version)
            if new.version != old.version or size != self._size:
                old_context = self._context if size == self._size else None
                self._context = self._by_origin(read_context(self._store, new.version, old_context))
                self._size = edits_size(self._store, new.version)
            self._head = new

    async def near(self, query: str) -> list[Near]:
        """Return the corrections and notes for a query; none if the source is not a run."""
        if self._store is None:
            return []
        if (changes := self._store.changes()) != self._corrected:
            if "corrections" in self.__dict__ or last_version(self._store):
                await self.corrections.follow(self._store)
            self._corrected = changes
        if "corrections" not in self.__dict__:
            return []
        question, pieces = self.questions.ask(query)
        self.corrections.reconsider(pieces)
        return await self.corrections.near(question.text)

    @cached_property
    def corrections(self) -> Corrections:
        """Corrections and notes of the run."""
        return Corrections(self.retriever, self.questions, SIMILAR[self.config.profile or "full"])

    @cached_property
    def questions(self) -> Questions:
        """Extractor of the questions of the run's queries."""
        questions = Questions()
        questions.start(recent_messages(self.store))
        return questions

    @property
    def store(self) -> Store:
        """The open run; only available if the source is a run."""
        assert self._store is not None
        return self._store

    def version(self, number: int) -> Context:
        """Return a version of the run. Raises ContextFileError for an unknown number."""
        assert self._store is not None
        with as_stored(self._store.folder):
            return self._by_origin(read_context(self._store, number, self._context))

    async def view(self, query: str, context: Context, models: Callable[[], Path] | None = None) -> View:
        """Return the view of a context for a query, without the frame of a prompt (see `engine.framing`).

        A method whose `show` calls models makes these calls only if `models` is set. `models` returns the folder for
        the logs of these models.
        """
        roles = self.method.show_roles
        state = self._state
        if models is not None and roles:
            if self._origin is not None:
                self._origin.require((), roles)
            clients = open_clients(self.config, self._parts, roles, (await self.models(models())).models)
            options = call_options(self.config)
            state = self._make_state({role: Seat(client, options) for role, client in clients.items()})
        run = Run(state, "query", ("task:query",), teaches=False, opened=set())
        return await view_of(self.method.show, context, Task("query", query), run)

    @cached_property
    def _state(self) -> RunState:
        """State of views that need no model."""
        return self._make_state({})

    def _make_state(self, seats: dict[str, Seat]) -> RunState:
        config = self.config
        sections = config.sections or default_sections(config.profile or "full")
        return RunState(
            Journal(), seats, ChatAgent(), None, self.retriever.vectors, config.instructions, config.choices,
            config.profile or "full", sections, seed=config.seed, nonce=config.nonce, retriever_override=self.retriever,
        )  # fmt: skip

    @cached_property
    def method(self) -> Method:
        """Method of the run; only its `show` is used."""
        if self._origin is not None:
            self._origin.require(("settings",))
        return make_method(self.config, make_settings(self.config), Splits(), self._parts)

    @cached_property
    def redactor(self) -> Redactor | None:
        """Redactor of the run's queries and reports, or None."""
        if self._origin is not None:
            self._origin.require(("redact_map",))
        return make_redactor(self.config)

    def redacted(self, value: T) -> T:
        """Return the value with sensitive data redacted."""
        return value if self.redactor is None else self.redactor(value)

    @cached_property
    def retriever(self) -> Retriever:
        """Retriever of the context's entries."""
        if self._origin is not None:
            self._origin.require(("embedder",))
        vectors = Vectors(run_embedder(self.config, self._parts), self._store)
        return Retriever(vectors, retrieval=run_retrieval(self.config, self._parts))

    @cached_property
    def acting(self) -> Setup:
        """Setup for answering a query, as in evaluation; nothing is scored."""
        if self._origin is not None:
            self._origin.require_acting(without=("scorer",))
        task, parts = Task("query", "-"), replace(self._parts, scorer=None)
        return set_up({**self._values, "scorer": None}, Splits(test=(task,)), parts, scored=False)

    async def models(self, logs: Path) -> Shared:
        """Return the models that are open in this event loop. Connections of a model cannot be used in another event
        loop."""
        loop = asyncio.get_running_loop()
        if self._models is None or self._models[0] is not loop:
            await self._close_models()
            self._models = loop, Shared(Models(client_settings(self.config, logs, self._parts)))
        return self._models[1]

    async def _close_models(self) -> None:
        models, self._models = self._models, None
        if models is not None:
            # The connections of an event loop that has ended are closed already.
            with suppress(RuntimeError) if models[0].is_closed() else nullcontext():
                await models[1].models.close()

    async def close(self) -> None:
        """Close connections, models and files."""
        self.close_files()
        await self._close_models()

    def close_files(self) -> None:
        """Close connections to the run."""
        if self._store is not None:
            self._store.close()
