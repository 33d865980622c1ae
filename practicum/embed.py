"""Texts as vectors of unit length, each text embedded once: kept in memory and in the run's store by its hash."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sqlalchemy import select

from practicum.errors import ModelError, ProviderError
from practicum.store import schema
from practicum.store.store import Store

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
        # The library divides by the length of an empty text's vector, which is nothing.
        vectors: np.ndarray = _wordllama().embed([text if text.strip() else "-" for text in texts], norm=True)
        return vectors.astype(np.float32, copy=False)


@cache
def _wordllama() -> Any:
    """Built from the files in the package: its own loader looks for one of them in the wrong folder and downloads."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    import wordllama
    from safetensors import safe_open
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    # The import configures the root logger for the whole program; put it back.
    root.setLevel(level)
    root.handlers[:] = handlers
    package = Path(str(wordllama.__file__)).parent
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    with safe_open(str(package / "weights" / "l2_supercat_256.safetensors"), framework="np") as weights:
        return WordLlamaInference(weights.get_tensor("embedding.weight"), tokenizer)


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


def text_key(text: str) -> bytes:
    """What a text's vector is stored under."""
    return hashlib.sha256(text.encode()).digest()[:16]


class Vectors:
    """An embedder with a memory. `made` counts the texts that had to be embedded in this sitting."""

    CHUNK = 500

    def __init__(self, embedder: Embedder, store: Store | None = None) -> None:
        self.embedder = embedder
        self.made = 0
        self._store = store
        self._making: dict[str, asyncio.Task[None]] = {}
        self._row: dict[str, int] = {}
        self._matrix = np.zeros((0, 0), dtype=np.float32)

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of shape (n, d) in the order of `texts`."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._row]
        if missing:
            missing = self._recall(missing)
        if missing:
            await self._made(missing)
        rows = self._row
        return self._matrix[[rows[text] for text in texts]]

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
        if self._store is None:
            return texts
        table = schema.vectors
        found: dict[bytes, bytes] = {}
        keys = {text_key(text): text for text in texts}
        listed = list(keys)
        for start in range(0, len(listed), self.CHUNK):
            part = listed[start : start + self.CHUNK]
            where = (table.c.embedder == self.embedder.name) & table.c.key.in_(part)
            found.update((row.key, row.vector) for row in self._store.rows(select(table).where(where)))
        self._keep([keys[k] for k in found], [np.frombuffer(v, dtype=np.float32) for v in found.values()])
        return [text for key, text in keys.items() if key not in found]

    async def _make(self, texts: list[str]) -> None:
        vectors = np.asarray(await self.embedder.embed(texts), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ProviderError(f"embedder {self.embedder.name} gave no usable vectors (shape {vectors.shape})")
        self.made += len(texts)
        if self._store is not None:
            name = self.embedder.name
            rows = [
                {"embedder": name, "key": text_key(t), "vector": v.tobytes()}
                for t, v in zip(texts, vectors, strict=True)
            ]
            # A result that rests on them is written later, so they are on the disk before it.
            self._store.post(schema.vectors, rows)
        self._keep(texts, list(vectors))

    def _keep(self, texts: list[str], vectors: list[np.ndarray]) -> None:
        fresh = [(t, v) for t, v in zip(texts, vectors, strict=True) if t not in self._row]
        if not fresh:
            return
        used = len(self._row)
        needed = used + len(fresh)
        if needed > len(self._matrix):
            # Doubling keeps many small additions linear in all.
            grown = np.zeros((max(needed, 2 * len(self._matrix), 64), len(fresh[0][1])), dtype=np.float32)
            grown[:used] = self._matrix[:used].reshape(used, -1) if used else 0
            self._matrix = grown
        for offset, (text, vector) in enumerate(fresh):
            self._matrix[used + offset] = vector
            self._row[text] = used + offset
