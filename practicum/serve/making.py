"""Making spaces, and bringing those that are there up to date, before they are served."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from secrets import token_hex
from shutil import rmtree
from typing import Any

from sqlalchemy import select

from practicum import methods
from practicum.core.context import Context
from practicum.core.errors import RunBusy, StoreError, UsageError
from practicum.core.installation import home
from practicum.engine.door import Held
from practicum.retrieval.vectors import Vectors
from practicum.serve.settings import ServiceSettings
from practicum.session.components import Parts
from practicum.session.config import Splits, config_from
from practicum.session.opening import run_embedder
from practicum.session.records import (
    as_seed,
    begin,
    config_columns,
    is_own,
    load_context,
    read_config,
    seed_rows,
    split_version,
    update_run,
)
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.folder import is_run
from practicum.store.names import LIVE, name_version, read_names
from practicum.store.spaces import UnknownSpace, require_space_name


class SpaceMaker:
    """Makes the spaces of a service. `model` is what it learns with, and `small` whether a small model answers. It
    may be used in any thread."""

    def __init__(self, database: Database, settings: ServiceSettings, model: str, small: bool, parts: Parts) -> None:
        self._database, self._settings, self._model, self._small, self._parts = database, settings, model, small, parts
        self.warnings: list[str] = []
        """What the operator should know."""
        self.made: list[str] = []
        """The spaces that were made."""

    def make(self, name: str, context: str | None = None, unfinished: Collection[str] = ()) -> None:
        """Make a space that starts from a `context`, if there is none of this name yet. In those with an `unfinished`
        removal of a user's data nothing needs to be learned."""
        require_space_name(name, UnknownSpace)
        with self._database.backend.alone(f"making space {name}"):
            if (id := self._database.live(name)) is None:
                self._create_space(name, context)
                self.made.append(name)
                return
        if context is not None or self._settings.settings:
            self.warnings.append(f"space {name} is there already: --context and --set change nothing of it")
        try:
            with self._database.store(name, id).leased() as store:
                self._bring_up_to_date(name, store)
        except RunBusy:
            # Another node learns, and has done this.
            if not self._database.shared:
                raise
        except StoreError as error:
            if name not in unfinished:
                raise
            # It is served as it is, and learns nothing, until the removal can be finished.
            self.warnings.append(f"space {name} does not learn yet: {error}")

    def _bring_up_to_date(self, name: str, store: Store) -> None:
        """Let a space that was made before be served. Its agent, models and settings stay its own."""
        settings, (config, _) = self._settings, read_config(store)
        if not (own := is_own(store, config)):
            self.warnings.append(
                f"space {name} was made by another installation, so what it learned is shown as a stranger's: give all "
                f"nodes the same key (the folder {home()})"
            )
        if settings.method is not None and config.method != settings.method:
            raise UsageError(
                "method.mismatch",
                f"space {name} learns by {config.method}, not by {settings.method}: leave out --method, or serve "
                "another --space",
            )
        if own and settings.review not in (None, config.review):
            update_run(store, **config_columns(config.model_copy(update={"review": settings.review})))
        # A command that looks at a run with this process's service leaves it as it is: its last version is live.
        if (settings.upstream or settings.learn) and LIVE not in read_names(store):
            name_version(store, LIVE)

    def _create_space(self, name: str, context: str | None) -> None:
        settings = self._settings
        profile = settings.profile or ("small" if self._small else "full")
        values: dict[str, Any] = {
            "method": settings.method or ("episodes" if profile == "small" else "unified"), "profile": profile,
            "settings": dict(settings.settings), "scorer": "contains", "nonce": token_hex(8),
        }  # fmt: skip
        own = False
        if context is not None:
            path, _ = split_version(context)
            if is_run(path):
                with Store.read(path) as store:
                    config, _ = read_config(store)
                    own = is_own(store, config)
                if own and settings.method is None and config.method != "none":
                    kept = ("method", "settings", "profile", "sections", "instructions", "embedder", "scorer")
                    values |= {name: getattr(config, name) for name in kept if getattr(config, name)}
        if not methods.is_own(values["method"]):
            raise UsageError(
                "method.unsuitable",
                f"method {values['method']!r} cannot serve: choose one that practicum bench methods lists",
            )
        config = config_from({**values, "model": self._model or None, "review": settings.review or "foreign"})
        seed = load_context(context) if context is not None else None
        waiting = list[Held]()
        if seed is not None and not own:
            seed, waiting = seed_rows(seed, "own")
        seed = Context() if seed is None else as_seed(seed)
        with self._database.create(name) as store:
            begin(store, config, Splits(), seed, "done", waiting)
            name_version(store, LIVE)
            # Kept, so that the space opens quickly ever after.
            vectors = Vectors(run_embedder(config, self._parts), store)
            asyncio.run(vectors.ready(entry.embedded_text for entry in seed))

    def remove_old_folders(self) -> None:
        """Remove the folders of this node for spaces that other nodes deleted."""
        live = {row.space for row in self._database.rows(select(schema.spaces.c.space))}
        for folder in (self._settings.folder / "spaces").glob("*.*"):
            if folder.suffix.removeprefix(".") not in live:
                rmtree(folder, ignore_errors=True)
