"""Resources that a program holds open for a run: a reader for each thread, models, and a connection that writes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.html import card
from practicum.core.words import quantity
from practicum.session.components import Parts
from practicum.session.opening import Shared
from practicum.session.reader import Reader
from practicum.session.records import read_config, run_summary, split_version
from practicum.session.result import SCORE_NAMES
from practicum.session.review import count_pending
from practicum.store.database import Store
from practicum.store.folder import is_run, located
from practicum.store.names import read_names

T = TypeVar("T")


class Opened:
    """Run, playbook file or context that is open for use. Many asyncio tasks and threads may use this object at the
    same time."""

    def __init__(
        self,
        source: Path | str | Context,
        version: int | str | None,
        parts: Parts,
        wait: float,
        config: dict[str, Any],
        trust_run: bool,
    ) -> None:
        if not isinstance(source, Context):
            path, path_version = split_version(source)
            if path_version is not None and version is not None:
                raise UsageError(
                    "settings.conflict",
                    f"{source} and version={version!r} both name a version: pass only one of the two",
                )
            source, version = path, path_version if path_version is not None else version
        self._overrides, self._parts, self._trust_run = config, parts, trust_run
        self._source, self._version, self._wait = source, version, wait
        run = not isinstance(source, Context) and is_run(source)
        self.folder: Path | None = source if run and isinstance(source, Path) else None
        """Folder of the run; None for a playbook."""
        self._local = threading.local()
        self._readers: list[tuple[threading.Thread, Reader]] = []
        self._writer: Store | None = None
        """Store of the run, open for writing shown contexts and reports; None before the first write."""
        self._logs: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._reader()

    def __repr__(self) -> str:
        where = "a context" if isinstance(self._source, Context) else str(self._source)
        version = "" if self._version is None else f", version={self._version!r}"
        return f"<practicum.Space {where}{version}{', closed' if self._closed else ''}>"

    def _repr_html_(self) -> str:
        """Return the method, the scores, the version, the number of entries and the first entries as HTML, for
        notebooks."""
        if self._closed:
            return card(repr(self), {})
        empty: dict[str, str] = {}
        return card(repr(self), self._stored(_facts, empty), self._reader().context()._repr_html_())

    async def close(self) -> None:
        """Write pending rows, and close models and files."""
        if self._closed:
            return
        self._closed = True
        for _, reader in self._readers:
            await reader.close()
        try:
            if self._writer is not None:
                await asyncio.to_thread(self._writer.close)
        finally:
            if self._logs is not None:
                self._logs.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _reader(self) -> Reader:
        """Return the reader of this thread; connections, vectors and rendered pages are not shared between threads."""
        if self._closed:
            raise UsageError("space.closed", f"{self!r} is closed: open the space again with practicum.open")
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(
                self._source, self.folder, self._version, self._overrides, self._parts, self._trust_run
            )
            with self._lock:
                ended = [(thread, reader_left) for thread, reader_left in self._readers if not thread.is_alive()]
                self._readers = [one for one in self._readers if one not in ended]
                self._readers.append((threading.current_thread(), reader))
            for _, reader_left in ended:
                reader_left.close_files()
        return reader

    async def _shared(self) -> Shared:
        return await self._reader().models(self._log_folder())

    def _log_folder(self) -> Path:
        """Return the folder for logs of models in this process. These logs do not belong to the run."""
        with self._lock:
            if self._logs is None:
                self._logs = tempfile.TemporaryDirectory(prefix="practicum-space-")
        return Path(self._logs.name)

    def _stored(self, read: Callable[[Store], T], default: T) -> T:
        """Return a value read from the stored run, or `default` if the open source is not a run."""
        self._reader()
        if self.folder is None:
            return default
        with Store.read(self.folder) as store:
            return read(store)

    @property
    def _is_writable(self) -> bool:
        """Whether shown contexts and reports can be written."""
        return self.folder is not None and os.access(located(self.folder)[0], os.W_OK)

    def _writable_store(self, data: str) -> Store:
        self._reader()
        if self.folder is not None and self._is_writable:
            with self._lock:
                if self._writer is None:
                    self._writer = Store.open_shared(self.folder)
                return self._writer
        reason = f"{self._source} cannot be written to" if self.folder else "no run is open"
        raise UsageError(
            "run.needed", f"{data} is stored in a run, and {reason}: open a run (practicum space import FILE --out RUN)"
        )

    def _run_to_learn(self) -> Path:
        self._reader()
        if self.folder is None:
            where = "a context" if isinstance(self._source, Context) else f"{self._source}, which is not a run"
            raise UsageError(
                "run.needed",
                f"lessons are stored in a run, not in {where}: create a run from a playbook file first "
                "(practicum space import FILE --out RUN)",
            )
        return self.folder


def _facts(store: Store) -> dict[str, str]:
    """Return a run's method, scores and named versions, and the number of edits that wait for review."""
    held = count_pending(store)
    return {
        "method": read_config(store)[0].method,
        **{SCORE_NAMES.get(name, name): f"{score:.1%}" for name, score in run_summary(store)["scores"].items()},
        "names": ", ".join(f"{name}: version {version}" for name, version in read_names(store).items()),
        "waits for review": quantity(held, "edit") if held else "",
    }
