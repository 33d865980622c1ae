"""Creation of spaces, and the update of existing spaces before they are served."""

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
from practicum.engine.admission import Held
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
    """Creates the spaces of a service. `model` is the model that learns. `small`: a small model answers the requests.
    Thread safe."""

    def __init__(self, database: Database, settings: ServiceSettings, model: str, small: bool, parts: Parts) -> None:
        self._database, self._settings, self._model, self._small, self._parts = database, settings, model, small, parts
        self.warnings: list[str] = []
        """Warnings for the operator."""
        self.created: list[str] = []
        """Names of the spaces that this maker created."""

    def make(self, name: str, context: str | None = None, unfinished: Collection[str] = ()) -> None:
        """Create a space that starts from `context`, or update the existing space of this name. `unfinished` has the
        names of spaces with an unfinished deletion of user data: if such a space cannot be updated, only warn."""
        require_space_name(name, UnknownSpace)
        with self._database.backend.exclusive(f"making space {name}"):
            if (id := self._database.live(name)) is None:
                self._create_space(name, context)
                self.created.append(name)
                return
        if context is not None or self._settings.settings:
            self.warnings.append(f"space {name} exists already: --context and --set have no effect on this space")
        try:
            with self._database.store(name, id).leased() as store:
                self._bring_up_to_date(name, store)
        except RunBusy:
            # Another node has the space open for writing, and has updated the space.
            if not self._database.shared:
                raise
        except StoreError as error:
            if name not in unfinished:
                raise
            # Until the deletion of user data is finished, the space is served unchanged and does not learn.
            self.warnings.append(
                f"space {name} does not learn until an interrupted deletion of user data is finished: {error}"
            )

    def _bring_up_to_date(self, name: str, store: Store) -> None:
        """Prepare an existing space for this service, without a change of the space's agent, models and settings."""
        settings, (config, _) = self._settings, read_config(store)
        if not (own := is_own(store, config)):
            self.warnings.append(
                f"space {name} was created by another installation, so its entries are shown as untrusted: give all "
                f"nodes the same installation key (the folder {home()})"
            )
        if settings.method is not None and config.method != settings.method:
            raise UsageError(
                "method.mismatch",
                f"space {name} learns with method {config.method}, not {settings.method}: leave out --method, or pass "
                "another --space",
            )
        if own and settings.review not in (None, config.review):
            update_run(store, **config_columns(config.model_copy(update={"review": settings.review})))
        # Give the last version the name LIVE. Without the name, the last version is live too, so a command that only
        # reads writes no name.
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
                    inherited = ("method", "settings", "profile", "sections", "instructions", "embedder", "scorer")
                    values |= {name: getattr(config, name) for name in inherited if getattr(config, name)}
        if not methods.is_own(values["method"]):
            raise UsageError(
                "method.unsuitable",
                f"method {values['method']!r} cannot serve: choose a method that practicum bench methods lists",
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
            # Store the vectors, so that the space opens quickly.
            vectors = Vectors(run_embedder(config, self._parts), store)
            asyncio.run(vectors.ready(entry.embedded_text for entry in seed))

    def remove_old_folders(self) -> None:
        """Delete this node's folders of spaces that other nodes deleted."""
        live = {row.space for row in self._database.rows(select(schema.spaces.c.space))}
        for folder in (self._settings.folder / "spaces").glob("*.*"):
            if folder.suffix.removeprefix(".") not in live:
                rmtree(folder, ignore_errors=True)
