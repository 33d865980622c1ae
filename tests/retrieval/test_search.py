"""Retrieval: the same as comparing everything, whatever happened to the context."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import Memory, Words, indoors
from searched import SECTIONS, adds, ids, texts

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Merge, Update, Vote
from practicum.core.errors import PlaceTaken
from practicum.methods.blocks.network import Experience
from practicum.retrieval.search import (
    VISIBLE,
    WEIGHTS,
    EntryPredicate,
    Filter,
    Match,
    Retrieval,
    Retriever,
    SearchResult,
)
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.retrieval.words import K1, B, word_keys

SOURCES = ("tag:a", "tag:b", "task:t", "conversation:a", "conversation:b")
FILTERS = (
    VISIBLE,
    Filter(section="memories"),
    Filter(section=".hidden"),
    Filter(outcome="failure"),
    Filter(section="memories", tags=("a",), outcome="success"),
    Filter(tags=("a", "b")),
)

new = adds(SOURCES)
edits = st.one_of(
    new,
    st.builds(Update, ids, text=texts),
    st.builds(Update, ids, section=st.sampled_from(SECTIONS)),
    st.builds(Delete, ids),
    st.builds(Vote, ids, helpful=st.just(1)),
    st.builds(Merge, st.tuples(ids, ids), text=st.one_of(st.none(), texts)),
)
many_adds = st.lists(new, min_size=0, max_size=90)
deltas = st.lists(st.lists(edits, max_size=8), max_size=6)


async def by_hand(
    context: Context, text: str, k: int, where: EntryPredicate, retrieval: Retrieval = "mixed"
) -> list[Match]:
    """What retrieval should give: every entry that matches, compared in full."""
    entries = [e for e in context if where(e)]
    if not entries:
        return []
    vectors = Vectors(Words())
    rows = await vectors([e.embedded_text for e in entries])
    query = (await vectors([text]))[0]
    # Not "@": that may give equal rows different last digits, by where they stand.
    cosines = np.einsum("ij,j->i", rows, query)
    weight = {"cosine": 0, "words": 1, "mixed": 2 / 3}[retrieval]
    shares = bm25_share([e.embedded_text for e in entries], text)
    similarity = (1 - weight) * np.minimum(cosines, 1) + weight * shares
    similarity = raised(entries, similarity.tolist())
    return [Match(entries[i], float(similarity[i])) for i in np.argsort(-similarity, kind="stable")[:k]]


def raised(entries: list[Entry], similarity: list[float]) -> np.ndarray:
    """Each similarity raised by half of the higher one of its neighbours, as far as it is from 1: turn by turn."""
    turns: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        turns.setdefault(entry.conversation, []).append(i)
    found = list(similarity)
    for said in (said for name, said in turns.items() if name):
        for at, i in enumerate(said):
            beside = [similarity[said[other]] for other in (at - 1, at + 1) if 0 <= other < len(said)]
            found[i] += 0.5 * max(0.0, *beside, 0.0) * (1 - similarity[i])
    return np.array(found)


def bm25_share(said: list[str], text: str) -> np.ndarray:
    """BM25 of each text, divided by that of the query's own text, at most 1: written again, text by text."""
    documents = [Counter(word_keys(each)) for each in said]
    asked = Counter(word_keys(text))
    mean = sum(map(Counter.total, documents)) / len(documents)
    having = {key: sum(key in document for document in documents) for key in asked}
    weight = {key: math.log1p((len(said) - having[key] + 0.5) / (having[key] + 0.5)) for key in asked}
    found = []
    for document in [asked, *documents]:
        norm = K1 * (1 - B + B * (document.total() / (mean or 1)))
        found.append(sum(weight[key] * (document[key] / (document[key] + norm)) for key in asked if document[key]))
    return np.minimum(np.array(found[1:]) / found[0], 1)


def same(found: Sequence[Match], expected: list[Match]) -> bool:
    return [f.entry for f in found] == [f.entry for f in expected] and np.allclose(
        [f.similarity for f in found], [f.similarity for f in expected], atol=1e-5
    )


def versions(first: list[Add], later: list[list[Edit]]) -> list[Context]:
    made = [Context().apply(Delta(tuple(first))).context]
    for each in later:
        made.append(made[-1].apply(Delta(tuple(each))).context)
    return made


@pytest.mark.parametrize("many", [1, 1_000])
@given(
    many_adds,
    deltas,
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(FILTERS), texts), max_size=8),
    st.sampled_from([*WEIGHTS]),
)
@settings(max_examples=examples(60))
@pytest.mark.slow
def test_every_context_is_searched_as_it_is(
    many: int, first: list[Add], later: list[list[Edit]], asked: list[tuple[int, Filter, str]], retrieval: Retrieval
) -> None:
    """Versions are asked in any order, also older ones again; one retriever serves them all."""
    contexts = versions(first, later)
    retriever = Retriever(Vectors(Words()), many, retrieval=retrieval)

    async def work() -> None:
        for number, where, text in asked:
            context = contexts[number % len(contexts)]
            search = await retriever.nearest(context, text, 5, where)
            assert same(search.matches, await by_hand(context, text, 5, where, retrieval))
            assert search.exact or many == 1

    asyncio.run(work())


class Recording(Words):
    """Keeps the texts that were embedded."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return await super().embed(texts)


def memories(*said: str) -> Context:
    return Context().apply(Delta(tuple(Add("memories", text) for text in said))).context


def test_an_empty_memory_gives_nothing_and_embeds_nothing() -> None:
    vectors = Vectors(Words())
    for context in (Context(), memories("card")):
        search = asyncio.run(Retriever(vectors).nearest(context, "bank", 3, Filter(section="notes")))
        assert (search.matches, search.exact, vectors.embedded) == ((), True, 0)
    assert asyncio.run(Retriever(vectors).nearest(memories("card"), "bank", 0)).matches == ()


def test_only_what_matches_is_embedded_and_only_once() -> None:
    vectors = Vectors(Words())
    retriever = Retriever(vectors)
    context = memories("card", "bank").apply(Delta((Add("notes", "a note"),))).context
    for _ in range(2):
        asyncio.run(retriever.nearest(context, "bank", 3, Filter(section="memories")))
    assert sorted(vectors.texts) == ["bank", "card"]
    later = context.apply(Delta((Add("memories", "fee"),))).context
    asyncio.run(retriever.nearest(later, "bank", 3, Filter(section="memories")))
    assert sorted(vectors.texts) == ["bank", "card", "fee"]
    assert vectors.embedded == 3


def test_only_changed_pages_are_searched_again() -> None:
    seen: list[str] = []

    def where(entry: Entry) -> bool:
        seen.append(entry.id)
        return True

    context = memories(*(f"text {n}" for n in range(200)))
    retriever = Retriever(Vectors(Words()))
    asyncio.run(retriever.nearest(context, "text 3", 1, where))
    assert {int(id[1:]) for id in seen} == {*range(200)}
    seen.clear()
    asyncio.run(retriever.nearest(context, "text 4", 1, where))
    assert seen == []
    later = context.apply(Delta((Vote("e70", helpful=1),))).context
    asyncio.run(retriever.nearest(later, "text 4", 1, where))
    assert {int(id[1:]) for id in seen} == {*range(64, 128)}


def test_equal_texts_tie_to_the_older_wherever_they_stand() -> None:
    said = [f"other {n}" for n in range(150)]
    for at in (140, 77, 3):
        said[at] = "the same text"
    for many in (1, 1_000):
        found = asyncio.run(Retriever(Vectors(Words()), many).nearest(memories(*said), "the same text", 3)).matches
        assert [f.entry.id for f in found] == ["e3", "e77", "e140"]
        assert len({f.similarity for f in found}) == 1


def test_searches_at_once_in_different_contexts_do_not_disturb_each_other() -> None:
    old = memories(*(f"text {n}" for n in range(100)))
    new = old.apply(Delta((Update("e5", "quite another"), Add("memories", "newest")))).context

    async def work(many: int) -> list[SearchResult]:
        retriever = Retriever(Vectors(Words()), many)
        asked = [(old, "text 5"), (new, "text 5"), (new, "newest"), (old, "newest")] * 3
        return await asyncio.gather(*(retriever.nearest(context, text, 1) for context, text in asked))

    for many in (1, 1_000):
        first = [search.matches[0] for search in asyncio.run(work(many))]
        assert first[0].entry.text == "text 5"
        assert first[1].entry.text != "text 5"
        assert first[2].entry.text == "newest"
        assert first[3].entry.text != "newest"
        assert [f.entry for f in first] == [f.entry for f in first[:4]] * 3


def test_what_an_index_found_is_noted_and_a_resume_finds_the_same() -> None:
    context = memories(*(f"text {n}" for n in range(50)))

    def sitting(many: int, journal: Memory) -> list[Match]:
        run = indoors(lambda call: "", journal=journal)
        run._state.retriever = Retriever(run._state.vectors, many)
        return asyncio.run(run.at("t1").nearest(context, "text 7", 3))

    journal = Memory()
    exact = sitting(1_000, journal)
    assert journal.rows == {}
    assert sitting(1, journal) == exact
    (row,) = journal.rows.values()
    assert row.place == "t1/nearest"
    noted = [("e9", 0.5)]
    resumed = Memory({row.place: replace(row, answer=json.dumps(noted))})
    assert [(f.entry.id, f.similarity) for f in sitting(1, resumed)] == noted


def test_a_place_is_searched_once() -> None:
    run = indoors(lambda call: "")
    asyncio.run(run.nearest(memories("card"), "card", 1))
    with pytest.raises(PlaceTaken):
        asyncio.run(run.nearest(memories("card"), "card", 1))


@pytest.mark.slow
def test_a_filter_that_leaves_few_of_many_keeps_them_all() -> None:
    """The lists around the query hold the other section alone."""
    said = [Add("notes", f"bank {n}") for n in range(3_000)] + [Add("memories", f"card {n}") for n in range(20)]
    context = Context().apply(Delta(tuple(said))).context
    retriever = Retriever(Vectors(Words()), 10)

    async def work() -> tuple[SearchResult, SearchResult]:
        everything = await retriever.nearest(context, "bank", 3)
        return everything, await retriever.nearest(context, "bank", 3, Filter(section="memories"))

    everything, few = asyncio.run(work())
    assert (len(everything.matches), everything.exact) == (3, False)
    assert list(few.matches) == asyncio.run(by_hand(context, "bank", 3, Filter(section="memories")))


def test_a_turn_is_found_by_the_turns_beside_it_in_its_conversation() -> None:
    said = [
        ("a", "which card was stolen"),
        ("b", "fee fee"),
        ("a", "a black one"),
        ("b", "a blue one"),
        ("", "a red one"),
    ]
    turns = [Add("memories", text, sources=(f"conversation:{name}",) if name else ()) for name, text in said]
    context = Context().apply(Delta(tuple(turns))).context
    for many in (1, 1_000):
        found = asyncio.run(Retriever(Vectors(Words()), many).nearest(context, "stolen card", 2)).matches
        assert [f.entry.id for f in found] == ["e0", "e2"]


@pytest.mark.parametrize(
    ("retrieval", "order", "embedded"),
    [("cosine", ["near", "named"], True), ("words", ["named", "near"], False), ("mixed", ["near", "named"], True)],
)
@pytest.mark.parametrize("many", [1, 1_000])
def test_the_measure_decides_the_order_and_an_identical_text_has_1(
    many: int, retrieval: Retrieval, order: list[str], embedded: bool
) -> None:
    said = {"near": "my card and my purse and my key", "named": "depot K7 has it"}
    query = "my card and my purse, depot K7"
    embedder = Recording()
    retriever = Retriever(Vectors(embedder), many, retrieval=retrieval)
    context = memories(*said.values())
    found = asyncio.run(retriever.nearest(context, query, 2)).matches
    assert [match.entry.text for match in found] == [said[name] for name in order]
    assert (query in embedder.texts) == embedded
    for text in said.values():
        best, other = asyncio.run(retriever.nearest(context, text, 2)).matches
        assert (best.entry.text, best.similarity) == (text, pytest.approx(1, abs=1e-6))
        assert other.similarity < best.similarity <= 1


@pytest.mark.parametrize("retrieval", WEIGHTS)
def test_the_same_state_with_a_low_reward_beats_an_unrelated_one_with_a_high_reward(retrieval: Retrieval) -> None:
    """Equation 2 of MAEL at alpha 0.5."""
    state, other = "Divide the total by 12 to get the monthly rent.", "Paint the fence in green before winter."
    found = asyncio.run(Retriever(Vectors(WordLlama()), retrieval=retrieval).nearest(memories(state, other), state, 2))
    low, high = (
        Experience("task", 0.5).score(match.similarity, reward)
        for match, reward in zip(found.matches, (0.2, 1.0), strict=True)
    )
    assert (low, low > high) == (pytest.approx(0.6, abs=1e-6), True)


def test_a_rare_word_is_found_that_vectors_do_not_tell_apart() -> None:
    said = [f"the order {n} of customer K{n} came late" for n in range(1_000, 1_200)]
    found = asyncio.run(Retriever(Vectors(WordLlama())).nearest(memories(*said), "What did K1117 get?", 1)).matches
    assert found[0].entry.text == said[117]
