"""Retrieval returns the result of comparing all entries, after any edits of the context."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers import asynchronous
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import Memory, Words, indoors
from searched import FILTERS, adds, edits, texts

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update
from practicum.core.errors import PlaceTaken
from practicum.retrieval.rough import Rough
from practicum.retrieval.search import WEIGHTS, EntryPredicate, Filter, Match, Retrieval, Retriever
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.retrieval.words import K1, B, word_keys
from practicum.testing import pseudo_words

SOURCES = ("tag:a", "tag:b", "task:t", "conversation:a", "conversation:b")


async def by_hand(
    context: Context, text: str, k: int, where: EntryPredicate, retrieval: Retrieval = "mixed"
) -> list[Match]:
    """The reference: every entry that matches, compared in full."""
    entries = [e for e in context if where(e)]
    if not entries:
        return []
    vectors = Vectors(Words())
    rows = await vectors([e.embedded_text for e in entries])
    query = (await vectors([text]))[0]
    # Not "@": that may give equal rows different last digits, by their position.
    cosines = np.einsum("ij,j->i", rows, query)
    weight = {"cosine": 0, "words": 1, "mixed": 2 / 3}[retrieval]
    shares = bm25_share([e.embedded_text for e in entries], text)
    similarity = (1 - weight) * np.minimum(cosines, 1) + weight * shares
    # Equal texts are equally similar: their last digits differ by rounding only.
    similarity = np.round(raised(entries, similarity.tolist()), 6)
    return [Match(entries[i], float(similarity[i])) for i in np.argsort(-similarity, kind="stable")[:k]]


def raised(entries: list[Entry], similarity: list[float]) -> np.ndarray:
    """Each similarity raised by half of the higher one of its neighbours in the conversation, times the gap to 1."""
    turns: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        turns.setdefault(entry.conversation, []).append(i)
    result = list(similarity)
    for turn in (turn for name, turn in turns.items() if name):
        for at, i in enumerate(turn):
            neighbours = [similarity[turn[other]] for other in (at - 1, at + 1) if 0 <= other < len(turn)]
            result[i] += 0.5 * max(0.0, *neighbours, 0.0) * (1 - similarity[i])
    return np.array(result)


def bm25_share(texts: list[str], text: str) -> np.ndarray:
    """BM25 of each text, divided by that of the query as a text, at most 1."""
    documents = [Counter(word_keys(each)) for each in texts]
    query = Counter(word_keys(text))
    mean = sum(map(Counter.total, documents)) / len(documents)
    having = {key: sum(key in document for document in documents) for key in query}
    weight = {key: math.log1p((len(texts) - having[key] + 0.5) / (having[key] + 0.5)) for key in query}
    scores = []
    for document in [query, *documents]:
        norm = K1 * (1 - B + B * (document.total() / (mean or 1)))
        scores.append(sum(weight[key] * (document[key] / (document[key] + norm)) for key in query if document[key]))
    return np.minimum(np.array(scores[1:]) / scores[0], 1)


def same(matches: Sequence[Match], expected: list[Match]) -> bool:
    return [m.entry for m in matches] == [m.entry for m in expected] and np.allclose(
        [m.similarity for m in matches], [m.similarity for m in expected], atol=1e-5
    )


@pytest.mark.parametrize("many", [1, pytest.param(1_000, marks=pytest.mark.slow)])
@given(
    st.lists(adds(SOURCES), max_size=90),
    st.lists(st.lists(edits(SOURCES), max_size=8), max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(FILTERS), texts), max_size=8),
    st.sampled_from([*WEIGHTS]),
)
@settings(max_examples=examples(15))
@asynchronous
async def test_every_version_is_searched_as_by_comparing_all_entries(
    many: int, first: list[Add], later: list[list[Edit]], asked: list[tuple[int, Filter, str]], retrieval: Retrieval
) -> None:
    """Versions are searched in any order, also older ones again; one retriever serves them all."""
    contexts = [Context().apply(Delta(tuple(first))).context]
    for each in later:
        contexts.append(contexts[-1].apply(Delta(tuple(each))).context)
    retriever = Retriever(Vectors(Words()), many, retrieval=retrieval)
    for number, where, text in asked:
        context = contexts[number % len(contexts)]
        search = await retriever.nearest(context, text, 5, where)
        assert same(search.matches, await by_hand(context, text, 5, where, retrieval))
        assert search.exact or many == 1
        assert where.section or not any(match.entry.section == ".hidden" for match in search.matches)


def memories(*texts: str) -> Context:
    return Context().apply(Delta(tuple(Add("memories", text) for text in texts))).context


def test_only_matching_entries_are_embedded_and_only_once() -> None:
    vectors = Vectors(Words())
    for context in (Context(), memories("card")):
        search = asyncio.run(Retriever(vectors).nearest(context, "bank", 3, Filter(section="notes")))
        assert (search.matches, search.exact, vectors.embedded) == ((), True, 0)
    assert asyncio.run(Retriever(vectors).nearest(memories("card"), "bank", 0)).matches == ()
    retriever = Retriever(vectors)
    context = memories("card", "bank").apply(Delta((Add("notes", "a note"),))).context
    for _ in range(2):
        asyncio.run(retriever.nearest(context, "bank", 3, Filter(section="memories")))
    assert sorted(vectors.texts) == ["bank", "card"]
    later = context.apply(Delta((Add("memories", "fee"),))).context
    asyncio.run(retriever.nearest(later, "bank", 3, Filter(section="memories")))
    assert sorted(vectors.texts) == ["bank", "card", "fee"]
    assert vectors.embedded == 3


@pytest.mark.parametrize("many", [1, 1_000])
@asynchronous
async def test_a_deleted_or_moved_entry_is_no_match_of_the_same_retriever(many: int) -> None:
    context, retriever = memories("card", "card lost", "bank"), Retriever(Vectors(Words()), many)
    matches = []
    for edit in (Update("e0", section="notes"), Delete("e1"), Add("memories", "fee")):
        search = await retriever.nearest(context, "card", 2, Filter(section="memories"))
        matches.append([match.entry.id for match in search.matches])
        context = context.apply(Delta((edit,))).context
    assert matches == [["e0", "e1"], ["e1", "e2"], ["e2"]]


@pytest.mark.parametrize("many", [1, 1_000])
@asynchronous
async def test_concurrent_searches_in_different_contexts_do_not_disturb_each_other(many: int) -> None:
    old = memories(*(f"text {n}" for n in range(100)))
    new = old.apply(Delta((Update("e5", "quite another"), Add("memories", "newest")))).context
    retriever = Retriever(Vectors(Words()), many)
    asked = [(old, "text 5"), (new, "text 5"), (new, "newest"), (old, "newest")] * 3
    results = await asyncio.gather(*(retriever.nearest(context, text, 1) for context, text in asked))
    first, second, third, fourth, *others = (result.matches[0].entry.text for result in results)
    assert (first, third) == ("text 5", "newest")
    assert second != "text 5"
    assert fourth != "newest"
    assert others == [first, second, third, fourth] * 2


def test_the_matches_of_an_index_are_journaled_and_a_resume_reads_them() -> None:
    context = memories(*(f"text {n}" for n in range(50)))

    def sitting(many: int, journal: Memory) -> list[Match]:
        run = indoors(lambda call: "", journal=journal)
        run._state.retriever = Retriever(run._state.vectors, many)
        matches = asyncio.run(run.at("t1").nearest(context, "text 7", 3))
        with pytest.raises(PlaceTaken):
            asyncio.run(run.at("t1").nearest(context, "text 7", 3))
        return matches

    journal = Memory()
    exact = sitting(1_000, journal)
    assert journal.rows == {}
    assert sitting(1, journal) == exact
    (row,) = journal.rows.values()
    assert row.place == "t1/nearest"
    noted = [("e9", 0.5)]
    resumed = Memory({row.place: replace(row, answer=json.dumps(noted))})
    assert [(m.entry.id, m.similarity) for m in sitting(1, resumed)] == noted


class Recording(Words):
    """Records the texts that it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return await super().embed(texts)


@pytest.mark.parametrize(
    ("retrieval", "order"), [("cosine", ["e0", "e1"]), ("words", ["e1", "e0"]), ("mixed", ["e0", "e1"])]
)
def test_only_the_measure_of_words_embeds_no_query(retrieval: Retrieval, order: list[str]) -> None:
    query, context = "my card and my purse, depot K7", memories("my card and my purse and my key", "depot K7 has it")
    embedder = Recording()
    search = Retriever(Vectors(embedder), retrieval=retrieval).nearest(context, query, 2)
    assert [match.entry.id for match in asyncio.run(search).matches] == order
    assert (query in embedder.texts) == (retrieval != "words")


def test_a_search_finds_the_same_with_and_without_cosines_from_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    texts = [pseudo_words(rng) for _ in range(2_100)]
    context, queries = memories(*texts), [pseudo_words(rng) for _ in range(5)] + texts[:3]
    built, original = list[Rough](), Rough.of

    def counted(*arguments: Any) -> Rough:
        built.append(original(*arguments))
        return built[-1]

    monkeypatch.setattr(Rough, "of", counted)

    async def matches() -> list[list[tuple[str, float]]]:
        retriever = Retriever(Vectors(WordLlama()))
        one_by_one = [await retriever.nearest(context, query, 5) for query in queries]
        assert await asyncio.gather(*(retriever.nearest(context, query, 5) for query in queries)) == one_by_one
        return [[(match.entry.id, match.similarity) for match in result.matches] for result in one_by_one]

    rough = asyncio.run(matches())
    monkeypatch.setattr("practicum.retrieval.search.rough_installed", lambda: False)
    assert asyncio.run(matches()) == rough
    assert len(built) == 1
