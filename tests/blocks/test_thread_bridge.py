"""A blocking library in a thread: its questions are answered in the event loop, and its output is dropped."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial

import pytest

from practicum.blocks.search.thread_bridge import AskModel, bridged
from practicum.core.errors import PracticumError


async def answered(word: str) -> str:
    return f"{word} in {threading.current_thread().name}"


def test_questions_are_answered_in_the_event_loop_in_their_order() -> None:
    heard: list[str] = []

    def library(ask: AskModel) -> None:
        assert threading.current_thread() is not threading.main_thread()
        heard.extend(ask(partial(answered, word)) for word in ("one", "two"))

    async def work() -> list[str]:
        async with bridged(library) as results:
            return [result async for result in results]

    assert asyncio.run(work()) == heard == ["one in MainThread", "two in MainThread"]


def test_leaving_ends_the_thread_at_its_next_question() -> None:
    ended = threading.Event()

    def stubborn(ask: AskModel) -> None:
        try:
            while True:
                try:
                    ask(lambda: answered("more"))
                except Exception as error:
                    raise PracticumError("run.interrupted", "the end must not be caught") from error
        finally:
            ended.set()

    async def leave() -> None:
        async with bridged(stubborn) as results:
            async for _ in results:
                break

    asyncio.run(leave())
    assert ended.is_set()


def test_what_the_library_raises_ends_the_iteration() -> None:
    async def work() -> None:
        async with bridged(lambda ask: 1 // 0) as results:
            async for _ in results:
                pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())


def test_an_error_of_an_answer_leaves_the_bridge_and_ends_the_thread() -> None:
    async def failing() -> None:
        raise PracticumError("run.interrupted", "no answer")

    def library(ask: AskModel) -> None:
        ask(failing)

    async def work() -> None:
        async with bridged(library) as results:
            async for _ in results:
                pass

    with pytest.raises(PracticumError, match="no answer"):
        asyncio.run(work())


def test_the_output_of_bridged_libraries_is_dropped_and_all_other_output_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def noisy(ask: AskModel) -> None:
        for word in ("one", "two"):
            print(f"library {word}")
            print(f"library {word}", file=sys.stderr)
            ask(partial(answered, word))

    async def work() -> None:
        async with bridged(noisy) as first, bridged(noisy) as second:
            async for result in first:
                print(f"command {result}")
            async for _ in second:
                pass

    out, err = sys.stdout, sys.stderr
    asyncio.run(work())
    print("after")
    assert capsys.readouterr() == ("command one in MainThread\ncommand two in MainThread\nafter\n", "")
    assert (sys.stdout, sys.stderr) == (out, err)
