"""Vectors: each text once in the life of a store."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from helpers import asynchronous
from refusals import refused
from sqlalchemy import event

from practicum.core.errors import ModelError, StoreError
from practicum.retrieval.vectors import ProviderEmbedder, Vectors, WordLlama, _granite, open_embedder
from practicum.store.database import Store

needs_granite = pytest.mark.skipif(not find_spec("holographic_memory"), reason="needs the extra `embed`")


class Counting:
    """Distinguishes texts by length, and records them; double precision, as a user's embedder might have."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        await asyncio.sleep(0)
        angles = np.array([len(text) for text in texts], dtype=np.float64)
        return np.column_stack((np.cos(angles), np.sin(angles)))


def test_second_use_embeds_nothing_also_from_a_reopened_store(tmp_path: Path) -> None:
    texts = ["a", "bb", "a", "ccc"]
    with Store.create(tmp_path) as store:
        vectors = Vectors(Counting(), store)
        first = asyncio.run(vectors(texts))
        assert (first.shape, first.dtype, vectors.embedded) == ((4, 2), np.float32, 3)
        assert (first[0] == first[2]).all()
        assert np.allclose(first[:, 0], np.cos([1, 2, 1, 3]), atol=1e-6)
        assert len(asyncio.run(vectors([]))) == 0
        again = asyncio.run(vectors(["ccc", "a"]))
        assert (again == first[[3, 0]]).all()
        assert vectors.embedded == 3
    with Store.open(tmp_path) as store:
        embedder = Counting()
        reopened = Vectors(embedder, store)
        assert (asyncio.run(reopened([*texts, "dddd"]))[:4] == first).all()
        assert embedder.asked == ["dddd"]
        assert reopened.embedded == 1


def test_a_reader_keeps_the_latest_queries_in_memory_and_asks_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be away, and a service is asked for years."""
    monkeypatch.setattr("practicum.retrieval.vectors.QUERIES", 2)
    with Store.create(tmp_path) as store:
        asyncio.run(Vectors(Counting(), store)(["a"]))
    with Store.read(tmp_path) as store:
        vectors, statements = Vectors(embedder := Counting(), store), list[object]()
        event.listen(store.database.backend.engine, "before_cursor_execute", lambda *event: statements.append(event))
        for text in ("bb", "ccc", "dddd", "dddd", "bb"):
            assert asyncio.run(vectors.query(text)).shape == (2,)
        assert embedder.asked == ["bb", "ccc", "dddd", "bb"]
        assert vectors.texts == []
        assert statements == []


@asynchronous
async def test_concurrent_callers_share_a_text_and_a_cancelled_one_does_not_stop_another() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)
    one, two = await asyncio.gather(vectors(["a", "bb"]), vectors(["bb", "ccc"]))
    assert (one[1] == two[0]).all()
    cancelled = asyncio.create_task(vectors(["dddd"]))
    other = asyncio.create_task(vectors(["dddd"]))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await other).shape == (1, 2)
    assert {*embedder.asked} == {"a", "bb", "ccc", "dddd"}
    assert embedder.asked.count("bb") == 1


class Giving(Counting):
    """Gives the same vector for every text."""

    def __init__(self, *vector: float, name: str = "counting") -> None:
        super().__init__()
        self.vector = vector
        self.name = name

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.tile(np.array(self.vector), (len(texts), 1))


def test_unusable_vectors_are_refused_and_others_scaled_to_unit_length(tmp_path: Path) -> None:
    assert asyncio.run(Vectors(Giving(3.0, 4.0))(["a"])).tolist() == [[np.float32(0.6), np.float32(0.8)]]
    with Store.create(tmp_path) as store:
        for vector in ((np.nan, 1.0), (0.0, 0.0), ()):
            with refused("embedder.failed"):
                asyncio.run(Vectors(Giving(*vector), store)(["a"]))
    with Store.open(tmp_path) as store:
        assert asyncio.run(Vectors(Counting(), store)(["a"])).shape == (1, 2)


@asynccontextmanager
async def embedding_server(most: int, fails_at: int = 0) -> AsyncIterator[list[list[str]]]:
    """A server of the OpenAI protocol that takes at most this number of texts a call, and refuses the call `fails_at`
    otherwise; the texts of each call that it answered."""
    answered, calls = list[list[str]](), count(1)

    async def embeddings(request: web.Request) -> web.Response:
        response = answer((await request.json())["input"])
        # The connection does not outlive the test.
        response.force_close()
        return response

    def answer(texts: list[str]) -> web.Response:
        if next(calls) == fails_at:
            return web.json_response({"error": {"message": "no credit"}}, status=403)
        if len(texts) > most or not all(texts):
            fault = {"message": f"batch size is invalid, it should not be larger than {most}"}
            return web.json_response({"error": fault}, status=400)
        answered.append(texts)
        data = [{"object": "embedding", "index": n, "embedding": [1.0, float(len(t))]} for n, t in enumerate(texts)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "model": "m", "data": data, "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/embeddings", embeddings)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_BASE_URL", f"http://{host}:{port}/v1")
            patch.setenv("OPENAI_API_KEY", "none")
            yield answered
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("most", "calls"), [(10, 30), (2048, 1)])
@asynchronous
async def test_texts_are_sent_in_as_many_calls_as_the_server_needs(most: int, calls: int) -> None:
    texts = ["x" * n for n in range(120)]
    async with embedding_server(most) as answered:
        vectors = await Vectors(open_embedder("openai:m"))([*texts, "x" * 7])
    assert vectors[:, 1] == pytest.approx([n / np.hypot(1, n) for n in [1, *range(1, 120), 7]])
    assert sorted(map(len, chain.from_iterable(answered))) == sorted([1, *range(1, 120)])
    assert len(answered) <= calls


def test_texts_embedded_before_a_failure_are_not_embedded_again(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(50)]

    async def work(store: Store | None) -> list[int]:
        async with embedding_server(2048, fails_at=3) as answered:
            embedder = open_embedder("openai:m")
            assert isinstance(embedder, ProviderEmbedder)
            embedder.most = 20
            vectors = Vectors(embedder, store)
            with refused("embedder.failed"):
                await vectors(texts)
            await vectors(texts)
        return [len(call) for call in answered]

    with Store.create(tmp_path) as store:
        for where in (store, None):
            assert asyncio.run(work(where)) == [20, 20, 10]


def test_another_embedder_than_that_of_the_store_and_one_that_changed_are_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        asyncio.run(Vectors(Giving(1.0, 0.0), store)(["a"]))
    with Store.open(tmp_path) as store:
        with pytest.raises(StoreError) as caught:
            Vectors(Giving(1.0, 0.0, name="another"), store)
        assert caught.value.code == "embedder.mismatch"
        assert f"practicum space memory reembed {tmp_path} --embedder another" in str(caught.value)
        vectors = Vectors(Giving(1.0, 0.0, 0.0), store)
        assert asyncio.run(vectors(["a"])).shape == (1, 2)
        with refused("embedder.mismatch"):
            asyncio.run(vectors(["b"]))
    vectors = Vectors(changing := Giving(1.0, 0.0))
    asyncio.run(vectors(["a"]))
    changing.vector = (1.0, 0.0, 0.0)
    with refused("embedder.failed"):
        asyncio.run(vectors(["b"]))


def test_wordllama_is_offline_and_leaves_the_root_logger_alone() -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    texts = ["my card was stolen", "someone took my bank card", "the weather is fine", "", "\x00", "🦙"]
    vectors = asyncio.run(Vectors(open_embedder("wordllama"))(texts))
    assert vectors.shape == (6, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similarity = vectors @ vectors[0]
    assert similarity[1] > 0.5 > similarity[2]
    assert (root.level, list(root.handlers)) == before
    assert (vectors == np.concatenate([asyncio.run(WordLlama().embed([text])) for text in texts])).all()


@needs_granite
@pytest.mark.slow
def test_granite_gives_a_text_the_same_vector_alone_and_among_others_and_finds_its_meaning() -> None:
    texts = ["my card was stolen", "", "naïve 🦙 \x00", "my credit card was taken", "long " * 900, "it rains"]
    granite = open_embedder("granite")
    together = asyncio.run(Vectors(granite)(texts))
    assert (together.shape, together.dtype) == ((6, 384), np.float32)
    assert (together == np.concatenate([asyncio.run(granite.embed([text])) for text in texts])).all()
    assert together[0] @ together[3] > together[0] @ together[5] + 0.1


@needs_granite
def test_other_weights_are_not_granite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.retrieval.vectors.GRANITE", "0" * 64)
    _granite.cache_clear()  # weights that are loaded are not checked again
    with refused("embedder.unusable"):
        asyncio.run(open_embedder("granite").embed(["a"]))


def test_an_unknown_or_missing_embedder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("nonsense", "openai:text-embedding-3-small", "nobody:x"):
        with pytest.raises(ModelError, match="embedder"):
            open_embedder(name)
    monkeypatch.setitem(sys.modules, "holographic_memory", None)
    with refused("extra.missing"):
        open_embedder("granite")
