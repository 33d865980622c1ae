"""Permanent failures of the provider, and the sources of entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from helpers import asynchronous, number_of
from hypothesis import given
from hypothesis import strategies as st
from runs import Memory, indoors

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.errors import ProviderError, Stopped
from practicum.core.types import Lesson, Prompt
from practicum.engine.provenance import traced
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import INTERRUPTED
from practicum.store.journal import NOTE_ROLE

DOWN = ProviderError("provider.failed", "the server is down")

Program = list[Any]
"""The steps of a job: "ask", "note", or the programs of concurrent jobs."""

PROGRAMS = st.recursive(
    st.lists(st.sampled_from(["ask", "note"]), max_size=3),
    lambda inner: st.lists(st.sampled_from(["ask", "note"]) | st.lists(inner, min_size=1, max_size=3), max_size=4),
    max_leaves=12,
)


async def execute(program: Program, run: Run) -> str:
    """A text that follows from every result so far; each question holds it, so a result that changed is noticed."""
    state = "so far: "
    for n, item in enumerate(program):
        at = run.at(f"{n}")
        if item == "ask":
            try:
                state += await at.ask_text("agent", Prompt("", f"{at.place}|{state}"))
            except ProviderError:
                state += " lost"
        elif item == "note":
            if at.recall("it") is None:
                at.note("it", state)
            else:
                assert at.recall("it") is None  # it is returned once
        else:
            state += str(await at.gather([(str(j), partial(execute, inner)) for j, inner in enumerate(item)]))
    return state


@asynchronous
async def sit(
    program: Program, journal: Memory, lost: Callable[[str], bool], calls: int = 10**9, seed: int = 0
) -> str | None:
    """Run a program: the provider loses the calls of some places, and a stop comes after `calls` calls."""
    count, rng = 0, Random(seed)

    class Slow(ScriptedClient):
        async def complete(self, *args: Any) -> Any:
            nonlocal count
            count += 1
            if count == calls:
                run._state.budget.stop(INTERRUPTED)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            return await super().complete(*args)

    def respond(call: Call) -> str | Exception:
        return DOWN if lost(call.prompt.user.partition("|")[0]) else f" {number_of(call.prompt.user)}"

    run = indoors(Slow(respond), journal=journal)
    try:
        return await execute(program, run)
    except Stopped:
        return None


def depends_on(later: str, lost: str) -> bool:
    """Whether work at one place comes after work at another: where they part, they are not jobs of one gather."""
    for depth, (a, b) in enumerate(zip(later.split("/"), lost.split("/"), strict=False)):
        if a != b:
            return depth % 2 == 0 and int(a) > int(b)
    return False


@given(PROGRAMS, st.randoms(use_true_random=False), st.integers(1, 12), st.integers(0, 99))
def test_a_loss_is_permanent_only_if_later_work_depends_on_it(
    program: Program, rng: Random, calls: int, seed: int
) -> None:
    down = Random(rng.random())
    lost: dict[str, bool] = {}
    first = Memory()
    ended = sit(program, first, lambda place: lost.setdefault(place, down.random() < 0.4), calls, seed)
    permanent = {place.removesuffix("/agent") for place, row in first.rows.items() if not row.ok}
    answers = [place.removesuffix("/agent") for place, row in first.rows.items() if row.ok and row.role != NOTE_ROLE]
    for place in (place for place, failed in lost.items() if failed):
        assert (place in permanent) == any(depends_on(answer, place) for answer in answers)
    # A resume with a healthy provider ends as a run that lost just that.
    resumed = sit(program, Memory(first.rows), lambda place: False, seed=seed + 1)
    assert resumed == sit(program, Memory(), lambda place: place in permanent)
    assert ended is None or permanent or ended == resumed or any(lost.values())


LESSON = st.builds(
    lambda id, words: Lesson(id, " ".join(words), sources=(f"task:{id}",)),
    st.sampled_from("abcd"),
    st.lists(st.sampled_from(["vault", "heron", "lantern", "copper", "kestrel", "ZX-4711", "parcels", "sealed"])),
)


@given(st.lists(LESSON, max_size=4, unique_by=lambda x: x.id), LESSON)
def test_an_entry_keeps_its_sources_and_gets_those_of_its_words_once(lessons: list[Lesson], written: Lesson) -> None:
    delta = Delta((Add("rules", written.text or "x", sources=("task:own",)),))
    once = traced(delta, lessons, Context())
    assert {"task:own"} <= {*once.edits[0].sources} <= {"task:own", *(s for x in lessons for s in x.sources)}
    assert traced(once, lessons, Context()) == once
