"""What a run keeps beside its log and can make anew: the snapshot of its last context, the vectors, and their index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import delete

from practicum.core.context import Context
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import CHUNK, Embedder, Vectors
from practicum.session.records import RUN, read_run
from practicum.store import schema
from practicum.store.database import INDEX_FILE, RowValues, Store
from practicum.store.schema import text_key
from practicum.store.snapshot import delete_snapshot, read_context, snapshot_due, write_snapshot


async def keep(store: Store, context: Context, retriever: Retriever) -> None:
    """Make the next opening of a run quick, where that is worth it. `context` is the last version of its log."""
    if snapshot_due(store, RUN):
        # The index comes first: it may know more than the snapshot says, and never less.
        indexed = await retriever.save(context) if retriever.vectors.folder == store.folder else 0
        write_snapshot(store, RUN, context, indexed)


async def reembedded(store: Store, embedder: Embedder) -> int:
    """Embed the entries of a run's last version by another model, or by one that changed under its name; from then on
    the run is that embedder's. Returns how many texts were embedded.

    Nothing is changed before all are embedded. A run that was not finished and retrieves what it shows will not go
    on after this, since its journal rests on the old vectors.
    """
    config, _, _ = read_run(store)
    context = read_context(store, RUN)
    vectors = Vectors(embedder)
    await vectors.ready(entry.embedded_text for entry in context)
    (store.folder / INDEX_FILE).unlink(missing_ok=True)
    config = config.model_copy(update={"embedder": embedder.name})

    def statements() -> Iterator[tuple[Any, list[RowValues]]]:
        yield delete(schema.vectors), []
        for start in range(0, len(vectors.texts), CHUNK):
            yield schema.vectors.insert(), _rows(vectors, start)
        yield from ((statement, []) for statement in delete_snapshot(RUN))
        yield schema.runs.update().where(schema.runs.c.run_id == RUN).values(config=config.model_dump_json()), []

    store.execute_all(statements())
    await keep(store, read_context(store, RUN), Retriever(Vectors(embedder, store)))
    return vectors.made


def _rows(vectors: Vectors, start: int) -> list[RowValues]:
    texts = vectors.texts[start : start + CHUNK]
    found = vectors.matrix.take(vectors.rows(texts))
    name = vectors.embedder.name
    return [
        {"embedder": name, "key": text_key(text), "vector": vector.tobytes()}
        for text, vector in zip(texts, found, strict=True)
    ]
