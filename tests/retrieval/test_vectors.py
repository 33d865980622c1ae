"""Vectors: each text once in the life of a store."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from refusals import refused
from sqlalchemy import event

from practicum.core.errors import ModelError, StoreError
from practicum.retrieval.vectors import (
    QUERIES,
    VECTORS_PER_BLOCK,
    Matrix,
    ProviderEmbedder,
    Vectors,
    WordLlama,
    _granite,
    open_embedder,
)
from practicum.store.database import Store

needs_granite = pytest.mark.skipif(not find_spec("holographic_memory"), reason="needs the extra `embed`")


class Counting:
    """Tells texts apart by length, and keeps what it was asked; double precision, as a user's might."""

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
        again = asyncio.run(vectors(["ccc", "a"]))
        assert (again == first[[3, 0]]).all()
        assert vectors.embedded == 3
    with Store.open(tmp_path) as store:
        embedder = Counting()
        reopened = Vectors(embedder, store)
        assert (asyncio.run(reopened([*texts, "dddd"]))[:4] == first).all()
        assert embedder.asked == ["dddd"]
        assert reopened.embedded == 1


@pytest.mark.parametrize("opened", [Store.read, Store.open_shared])
def test_a_query_of_who_learns_nothing_stays_out_of_memory_and_asks_no_database(opened: Any, tmp_path: Path) -> None:
    """The database may be away, and a service is asked for years."""
    with Store.create(tmp_path) as store:
        asyncio.run(Vectors(Counting(), store)(["a"]))
    with opened(tmp_path) as store:
        vectors, statements = Vectors(Counting(), store), list[object]()
        event.listen(store.database.backend.engine, "before_cursor_execute", lambda *said: statements.append(said))
        for n in range(QUERIES + 10):
            assert asyncio.run(vectors.query("b" * n + "?")).shape == (2,)
        assert vectors.texts == []
        assert statements == []


def test_a_text_asked_for_twice_at_once_is_embedded_once() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)

    async def work() -> None:
        one, two = await asyncio.gather(vectors(["a", "bb"]), vectors(["bb", "ccc"]))
        assert (one[1] == two[0]).all()

    asyncio.run(work())
    assert sorted(embedder.asked) == ["a", "bb", "ccc"]
    assert vectors.embedded == 3


def test_one_caller_that_is_cancelled_does_not_stop_another() -> None:
    vectors = Vectors(Counting())

    async def work() -> np.ndarray:
        gone = asyncio.create_task(vectors(["a"]))
        stays = asyncio.create_task(vectors(["a"]))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(work()).shape == (1, 2)


def test_no_texts_need_no_embedder() -> None:
    embedder = Counting()
    assert len(asyncio.run(Vectors(embedder)([]))) == 0
    assert embedder.asked == []


def test_many_texts_in_many_calls() -> None:
    vectors = Vectors(Counting())
    texts = ["x" * n for n in range(300)]

    async def work() -> None:
        for start in range(0, 300, 7):
            await vectors(texts[start : start + 7])

    asyncio.run(work())
    both = asyncio.run(vectors(texts))
    assert np.allclose(both[:, 0], np.cos(np.arange(300)), atol=1e-6)
    assert vectors.embedded == 300


class Giving(Counting):
    """Gives the same vector for every text."""

    def __init__(self, *vector: float, name: str = "counting") -> None:
        super().__init__()
        self.vector = vector
        self.name = name

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.tile(np.array(self.vector), (len(texts), 1))


@pytest.mark.parametrize("vector", [(np.nan, 1.0), (np.inf, 0.0), (0.0, 0.0), ()])
def test_unusable_vectors_are_refused(vector: tuple[float, ...], tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        vectors = Vectors(Giving(*vector), store)
        with refused("embedder.failed"):
            asyncio.run(vectors(["a"]))
    with Store.open(tmp_path) as store:
        assert asyncio.run(Vectors(Counting(), store)(["a"])).shape == (1, 2)


@asynccontextmanager
async def embedding_server(most: int, fails_at: int = 0) -> AsyncIterator[list[list[str]]]:
    """A server of the OpenAI protocol that takes at most so many texts a call, and refuses the call `fails_at`
    otherwise; the texts of each call that it answered."""
    answered: list[list[str]] = []
    calls = count(1)

    async def embeddings(request: web.Request) -> web.Response:
        response = answer(await request.json())
        # The connection does not outlive the test.
        response.force_close()
        return response

    def answer(body: dict[str, Any]) -> web.Response:
        texts = body["input"]
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


@pytest.mark.parametrize(("most", "calls"), [(10, 60), (32, 19), (2048, 1), (1, 300)])
def test_texts_are_sent_in_as_many_calls_as_the_server_needs(most: int, calls: int) -> None:
    texts = ["x" * n for n in range(300)]

    async def work() -> tuple[np.ndarray, list[list[str]]]:
        async with embedding_server(most) as answered:
            return await Vectors(open_embedder("openai:m"))([*texts, "x" * 7]), answered

    made, answered = asyncio.run(work())
    assert made[:, 1] == pytest.approx([n / np.hypot(1, n) for n in [1, *range(1, 300), 7]])
    assert sorted(map(len, chain.from_iterable(answered))) == sorted([1, *range(1, 300)])
    assert len(answered) <= calls


@pytest.mark.parametrize("stored", [True, False])
def test_what_was_embedded_before_a_failure_is_not_embedded_again(tmp_path: Path, stored: bool) -> None:
    texts = [f"text {n}" for n in range(50)]

    async def work(store: Store | None) -> list[list[str]]:
        async with embedding_server(2048, fails_at=3) as answered:
            embedder = open_embedder("openai:m")
            assert isinstance(embedder, ProviderEmbedder)
            embedder.most = 20
            vectors = Vectors(embedder, store)
            with refused("embedder.failed"):
                await vectors(texts)
            await vectors(texts)
        return answered

    with Store.create(tmp_path) as store:
        answered = asyncio.run(work(store if stored else None))
    assert [len(call) for call in answered] == [20, 20, 10]


@pytest.mark.parametrize(
    ("name", "most"), [("openai:m", 2048), ("google:m", 100), ("cohere:m", 96), ("voyageai:m", 1000)]
)
def test_a_call_begins_with_what_the_provider_documents(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydantic_ai.embeddings.Embedder", lambda *args, **how: None)
    monkeypatch.setattr("practicum.retrieval.vectors.require", lambda *args: None)
    embedder = open_embedder(name)
    assert isinstance(embedder, ProviderEmbedder)
    assert embedder.most == most


def test_vectors_are_scaled_to_unit_length() -> None:
    assert asyncio.run(Vectors(Giving(3.0, 4.0))(["a"])).tolist() == [[np.float32(0.6), np.float32(0.8)]]


def test_another_embedder_than_that_of_the_store_is_refused_with_the_command_to_reembed(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        asyncio.run(Vectors(Giving(1.0, 0.0, name="middle"), store)(["a"]))
    with Store.open(tmp_path) as store:
        for name in ("another", "zulu"):
            with pytest.raises(StoreError) as refused:
                Vectors(Giving(1.0, 0.0, name=name), store)
            assert "contains vectors of embedder 'middle'" in str(refused.value)
            assert f"practicum space memory reembed {tmp_path} --embedder {name}" in str(refused.value)


def test_an_embedder_that_changed_under_its_name_is_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        asyncio.run(Vectors(Giving(1.0, 0.0), store)(["a"]))
    with Store.open(tmp_path) as store:
        vectors = Vectors(Giving(1.0, 0.0, 0.0), store)
        assert asyncio.run(vectors(["a"])).shape == (1, 2)
        with refused("embedder.mismatch"):
            asyncio.run(vectors(["b"]))
    vectors = Vectors(changing := Giving(1.0, 0.0))
    asyncio.run(vectors(["a"]))
    changing.vector = (1.0, 0.0, 0.0)
    with refused("embedder.failed"):
        asyncio.run(vectors(["b"]))


def test_a_matrix_of_several_blocks() -> None:
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2 * VECTORS_PER_BLOCK + 7, 3)).astype(np.float32)
    matrix = Matrix()
    for start in range(0, len(given), 5_000):
        matrix.extend(given[start : start + 5_000])
    assert len(matrix) == len(given)
    rows = rng.integers(0, len(given), 1_000)
    assert (matrix.take(rows) == given[rows]).all()
    assert np.allclose(matrix.times(given[0]), given @ given[0], atol=1e-5)


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
    many = asyncio.run(WordLlama().embed([f"text {n}" for n in range(300)]))
    assert many.shape == (300, 256)


def test_a_text_has_the_same_vector_alone_and_among_others() -> None:
    texts = ["my card was stolen", "a", "naïve 🦙 [PAD] \x00", "the weather is fine, and will be so all week. " * 40]
    together = asyncio.run(WordLlama().embed(texts))
    assert (together == np.concatenate([asyncio.run(WordLlama().embed([text])) for text in texts])).all()


@pytest.mark.slow
def test_the_vectors_of_wordllama_are_those_of_its_package() -> None:
    texts = ["my card was stolen", "a", "naïve 🦙 [PAD] \x00", "the weather is fine, and will be so all week. " * 40]
    together = asyncio.run(WordLlama().embed(texts))
    said = "import json, sys; from wordllama import WordLlama; from wordllama.inference import WordLlamaInference\n"
    said += "from practicum.retrieval.vectors import _wordllama; tokenizer, table = _wordllama()\n"
    said += "made = WordLlamaInference(table, tokenizer).embed(json.load(sys.stdin), norm=True)\n"
    said += "print(json.dumps(made.tolist()))"
    # In a process of its own, since the package's import configures the root logger.
    done = subprocess.run([sys.executable, "-c", said], input=json.dumps(texts), capture_output=True, text=True)
    assert np.allclose(together, json.loads(done.stdout), atol=1e-6), done.stderr


def test_granite_is_refused_in_one_line_if_its_wheels_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holographic_memory", None)
    with refused("extra.missing"):
        open_embedder("granite")


@needs_granite
@pytest.mark.slow
def test_granite_gives_a_text_the_same_vector_alone_and_among_others_and_finds_its_meaning() -> None:
    texts = ["my card was stolen", "", "naïve 🦙 \x00", "somebody took my credit card", "long " * 900, "it rains"]
    granite = open_embedder("granite")
    together = asyncio.run(Vectors(granite)(texts))
    assert (together.shape, together.dtype) == ((6, 384), np.float32)
    assert (together == np.concatenate([asyncio.run(granite.embed([text])) for text in texts])).all()
    assert together[0] @ together[3] > together[0] @ together[5] + 0.1


@needs_granite
@pytest.mark.slow
def test_calls_in_flight_continue_while_granite_embeds() -> None:
    async def work() -> int:
        embedding, turns = asyncio.create_task(open_embedder("granite").embed(["a long text " * 60] * 4)), 0
        while not embedding.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(work()) > 100


@needs_granite
def test_other_weights_are_not_granite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.retrieval.vectors.GRANITE", "0" * 64)
    _granite.cache_clear()  # weights that are loaded are not checked again
    with refused("embedder.unusable"):
        asyncio.run(open_embedder("granite").embed(["a"]))


@pytest.mark.parametrize("name", ["nonsense", "openai:text-embedding-3-small", "nobody:x"])
def test_an_unknown_embedder_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match="embedder"):
        open_embedder(name)
