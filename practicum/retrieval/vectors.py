"""Texts as vectors of unit length, each text embedded once: kept in memory and in the run's store by its hash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sqlalchemy import select

from practicum.core.errors import ModelError, ProviderError, StoreError
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.schema import text_key

BLOCK = 16_384
"""Vectors that lie together. A matrix of such blocks grows without being copied; unwritten parts take no memory."""

CHUNK = 4_096
"""Texts embedded, or looked for in the store, at a time."""

KEYS = 500
"""Texts named in one query of the store."""

UNIT = 1e-3
"""How far a vector's length may be from 1 before it is made 1."""

INLINE = 256
"""Texts embedded on the event loop's own thread; more than that go to another, so that calls in flight go on."""


class Embedder(Protocol):
    """Gives an array of shape (n, d), float32, rows of unit length, for n texts."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> np.ndarray: ...


class WordLlama:
    """The offline default: 256 dimensions, weights inside the `wordllama` wheel, some 50,000 short texts a second."""

    name = "wordllama"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if len(texts) <= INLINE:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        tokenizer, table = _wordllama()
        # An empty text has no tokens, and so no direction.
        said = [text if text.strip() else "-" for text in texts]
        encoded = tokenizer.encode_batch_fast(said, add_special_tokens=False)
        sums = np.empty((len(texts), table.shape[1]), dtype=np.float32)
        for row, text in zip(sums, encoded, strict=True):
            np.add.reduce(table.take(text.ids, axis=0, mode="clip"), axis=0, out=row)
        unit: np.ndarray = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return unit


@cache
def _wordllama() -> tuple[Any, np.ndarray]:
    """Tokenizer, and vectors by token, shape (n, d), from the files in the package.

    The package itself is not imported: its loader looks for one of them in the wrong folder and downloads, its import
    configures the root logger of the whole program, and its inference takes twice as long, since it pads texts.
    """
    from safetensors import safe_open
    from tokenizers import Tokenizer

    found = find_spec("wordllama")
    if found is None or found.origin is None:
        raise ModelError("embedder 'wordllama' needs the package of this name: pip install wordllama")
    package = Path(found.origin).parent
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with safe_open(str(package / "weights" / "l2_supercat_256.safetensors"), framework="np") as weights:
        return tokenizer, weights.get_tensor("embedding.weight").astype(np.float32, copy=False)


class ProviderEmbedder:
    """An embedding model of a provider, through pydantic-ai."""

    def __init__(self, name: str) -> None:
        from pydantic_ai.embeddings import Embedder as Provided
        from pydantic_ai.exceptions import UserError

        self.name = name
        try:
            self._embedder = Provided(name, defer_model_check=False)
        except (UserError, ValueError, ImportError) as error:
            raise ModelError(
                f"embedder {name!r} cannot be used: {error}. Try 'wordllama', which needs no key"
            ) from error

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        from pydantic_ai.exceptions import AgentRunError

        try:
            result = await self._embedder.embed_documents(list(texts))
        except AgentRunError as error:
            raise ProviderError(f"embedder {self.name} failed: {error}") from error
        vectors = np.asarray(result.embeddings, dtype=np.float32)
        unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return unit


def open_embedder(name: str) -> Embedder:
    """The embedder of this name: "wordllama", or a provider's as pydantic-ai names it."""
    if name == "wordllama":
        return WordLlama()
    if ":" not in name:
        raise ModelError(f"unknown embedder {name!r}: take 'wordllama' or one like 'openai:text-embedding-3-small'")
    return ProviderEmbedder(name)


class Matrix:
    """Vectors by row, in blocks: shape (n, d), float32. Rows are only ever added."""

    def __init__(self) -> None:
        self.dims = 0
        self._blocks: list[np.ndarray] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, vectors: np.ndarray) -> None:
        """Add rows, of shape (m, d)."""
        self.dims = vectors.shape[1]
        while len(vectors):
            used = self._size % BLOCK
            if used == 0:
                self._blocks.append(np.empty((BLOCK, self.dims), dtype=np.float32))
            part = vectors[: BLOCK - used]
            self._blocks[-1][used : used + len(part)] = part
            self._size += len(part)
            vectors = vectors[len(part) :]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy of these rows, in their order."""
        taken = np.empty((len(rows), self.dims), dtype=np.float32)
        block, at = np.divmod(rows, BLOCK)
        for number in np.unique(block):
            here = block == number
            taken[here] = self._blocks[number][at[here]]
        return taken

    def times(self, query: np.ndarray) -> np.ndarray:
        """The product of every row with a vector of shape (d,). Equal rows may differ in the last digits."""
        products = np.empty(self._size, dtype=np.float32)
        for number, block in enumerate(self._blocks):
            start = number * BLOCK
            used = min(BLOCK, self._size - start)
            np.matmul(block[:used], query, out=products[start : start + used])
        return products


class Vectors:
    """An embedder with a memory: the store's, where it has one, which learns of new vectors unless it is read-only.
    `made` counts the texts that had to be embedded in this sitting; `texts` are those of the rows of `matrix`.

    Raises StoreError where the store holds vectors that do not go with this embedder's.
    """

    def __init__(self, embedder: Embedder, store: Store | None = None) -> None:
        self.embedder = embedder
        self.made = 0
        self.matrix = Matrix()
        self._store = store
        self._stored_dims = 0 if store is None else stored_dims(store, embedder.name)
        self.texts: list[str] = []
        self._making: dict[str, asyncio.Task[None]] = {}
        self._row: dict[str, int] = {}

    @property
    def folder(self) -> Path | None:
        """Where they are kept."""
        return None if self._store is None else self._store.folder

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of shape (n, d) in the order of `texts`."""
        await self.ready(texts)
        return self.matrix.take(self.rows(texts))

    async def ready(self, texts: Iterable[str]) -> None:
        """See to it that these texts have rows in the matrix: known, read from the store, or embedded."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._row]
        for start in range(0, len(missing), CHUNK):
            unknown = self._recall(missing[start : start + CHUNK])
            if unknown:
                await self._made(unknown)

    def rows(self, texts: Iterable[str]) -> np.ndarray:
        """The matrix rows of texts that are `ready`."""
        row = self._row
        return np.fromiter((row[text] for text in texts), dtype=np.int32)

    async def _made(self, texts: list[str]) -> None:
        """Embed these; a text that is being embedded for another caller is waited for, not embedded again."""
        mine = [text for text in texts if text not in self._making]
        if mine:
            making = asyncio.create_task(self._make(mine))
            self._making.update(dict.fromkeys(mine, making))
            making.add_done_callback(lambda _: [self._making.pop(text) for text in mine])
        waited = dict.fromkeys(self._making[text] for text in texts)
        # Shielded, so that one caller's end is not another's.
        await asyncio.shield(asyncio.gather(*waited))

    def _recall(self, texts: list[str]) -> list[str]:
        """Take what the store knows; return the rest."""
        texts = [text for text in texts if text not in self._row]
        if self._store is None or not self._stored_dims:
            # A store that had none has only what is in memory by now.
            return texts
        table = schema.vectors
        unknown: list[str] = []
        for start in range(0, len(texts), KEYS):
            keys = {text_key(text): text for text in texts[start : start + KEYS]}
            where = (table.c.embedder == self.embedder.name) & table.c.key.in_(list(keys))
            found = {row.key: row.vector for row in self._store.rows(select(table.c.key, table.c.vector).where(where))}
            if found:
                vectors = np.frombuffer(b"".join(found.values()), dtype=np.float32).reshape(len(found), -1)
                self._keep([keys[key] for key in found], vectors)
            unknown += [text for key, text in keys.items() if key not in found]
        return unknown

    async def _make(self, texts: list[str]) -> None:
        vectors = self._usable(np.asarray(await self.embedder.embed(texts), dtype=np.float32), len(texts))
        self.made += len(texts)
        if self._store is not None and not self._store.read_only:
            name = self.embedder.name
            rows = [
                {"embedder": name, "key": text_key(t), "vector": v.tobytes()}
                for t, v in zip(texts, vectors, strict=True)
            ]
            if len(texts) <= INLINE:
                # A result that rests on them is written later, so they are on the disk before it.
                self._store.post(schema.vectors, rows)
            else:
                # Waited for, so that no more of them wait in memory than are written at a time.
                await self._store.write(schema.vectors, rows)
        self._keep(texts, vectors)

    def _usable(self, vectors: np.ndarray, n: int) -> np.ndarray:
        """These n vectors with unit length. Raises ProviderError where they are none, ModelError or StoreError where
        they have not as many dimensions as those before."""
        name = self.embedder.name
        if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1] or not np.isfinite(vectors).all():
            raise ProviderError(f"embedder {name} gave no usable vectors (shape {vectors.shape})")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if (lengths < UNIT).any():
            raise ProviderError(f"embedder {name} gave a vector of length 0, which is like no other")
        dims = vectors.shape[1]
        if self._store is not None and self._stored_dims not in (0, dims):
            raise StoreError(
                f"embedder {name} gives {dims} dimensions, the vectors in {self._store.folder} have "
                f"{self._stored_dims}: it changed under its name; {_anew(self._store, name)}"
            )
        if self.matrix.dims not in (0, dims):
            raise ModelError(f"embedder {name} gave {dims} dimensions after {self.matrix.dims}: it is of no use so")
        return vectors if (np.abs(lengths - 1) < UNIT).all() else vectors / lengths

    def _keep(self, texts: list[str], vectors: np.ndarray) -> None:
        # Two who looked at once may both bring a text.
        fresh = [i for i, text in enumerate(texts) if text not in self._row]
        used = len(self.matrix)
        self.matrix.extend(vectors if len(fresh) == len(texts) else vectors[fresh])
        self._row.update((texts[i], used + n) for n, i in enumerate(fresh))
        self.texts += [texts[i] for i in fresh]


def stored_dims(store: Store, embedder: str) -> int:
    """Dimensions of the vectors that a store holds of this embedder, 0 where there are none.

    Raises StoreError where it holds another's: vectors of two models cannot be compared.
    """
    table = schema.vectors
    # Not "!=", which would read them all.
    for other in (table.c.embedder < embedder, table.c.embedder > embedder):
        for row in store.rows(select(table.c.embedder).where(other).limit(1)):
            raise StoreError(
                f"{store.folder} holds vectors of embedder {row.embedder!r}, not of {embedder!r}: go on with "
                f"--embedder {row.embedder}; or {_anew(store, embedder)}"
            )
    found = store.rows(select(table.c.vector).where(table.c.embedder == embedder).limit(1))
    return len(found[0].vector) // 4 if found else 0


def _anew(store: Store, embedder: str) -> str:
    return f"embed its entries anew: practicum memory {store.folder} reembed --embedder {embedder}"
