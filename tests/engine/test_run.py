"""A Run: places, order, chance, and effects that happen once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from helpers import client, make_tasks, world
from places import within
from pydantic import BaseModel
from refusals import refused

import practicum
from practicum.core.errors import PlaceTaken, ProviderError, WindowError
from practicum.core.types import Prompt, Score, Task, Trace
from practicum.core.views import count_tokens
from practicum.engine.run import Run, feedback
from practicum.models.client import JSON, CallOptions, Reply
from practicum.models.scripted import Call, ScriptedClient


class Word(BaseModel):
    word: str


def test_a_place_is_opened_once(tmp_path: Path) -> None:
    async def twice(run: Run) -> None:
        run.at("here")
        run.at("here")

    with refused("journal.place_taken"):
        within(tmp_path / "run", client(), twice)


def test_asking_twice_at_one_place_is_a_fault(tmp_path: Path) -> None:
    async def bare(run: Run) -> None:
        await asyncio.gather(*(run.ask_text("agent", Prompt("", str(n))) for n in range(2)))

    with pytest.raises(PlaceTaken):
        within(tmp_path / "run", client(), bare)


def test_results_come_in_the_order_of_places(tmp_path: Path) -> None:
    async def work(run: Run) -> list[str]:
        async def one(at: Run) -> str:
            await asyncio.sleep(0.01 if at.place.endswith("0") else 0)
            return at.place

        return await run.gather([(str(n), one) for n in range(3)])

    assert within(tmp_path / "run", client(), work) == ["0", "1", "2"]


def test_all_jobs_end_before_the_first_failure_by_place_is_raised(tmp_path: Path) -> None:
    done: list[str] = []

    async def work(run: Run) -> None:
        async def one(at: Run) -> None:
            if at.place == "0":
                await asyncio.sleep(0.01)
                raise ValueError("the first by place")
            if at.place == "1":
                raise ValueError("the first by time")
            await asyncio.sleep(0.02)
            done.append(at.place)

        await run.gather([(str(n), one) for n in range(3)])

    with pytest.raises(ValueError, match="the first by place"):
        within(tmp_path / "run", client(), work)
    assert done == ["2"]


def test_chance_follows_from_seed_and_place(tmp_path: Path) -> None:
    async def work(run: Run) -> list[float]:
        return [run.rng().random(), run.rng("x").random(), run.at("a").rng("x").random()]

    first = within(tmp_path / "a", client(), work)
    assert isinstance(first, list)
    assert first == within(tmp_path / "b", client(), work)
    assert first != within(tmp_path / "c", client(), work, seed=1)
    assert len(set(first)) == 3


def test_an_answer_is_paid_once_and_a_question_may_not_change(tmp_path: Path) -> None:
    def ask(text: str) -> Callable[[Run], Awaitable[Word]]:
        return lambda run: run.at("a").ask("agent", Prompt("system", text), Word)

    first, second = client(), client()
    folder = tmp_path / "run"
    assert within(folder, first, ask("what?")) == within(folder, second, ask("what?"))
    assert (len(first.calls), len(second.calls)) == (1, 0)
    with refused("journal.mismatch"):
        within(folder, second, ask("why?"))


def test_bad_answers_are_not_paid_twice(tmp_path: Path) -> None:
    def mumbling(call: Call) -> str:
        return "hm" if len(call.prompt.turns) < 3 else world(call)

    async def ask(run: Run) -> Word:
        return await run.ask("agent", Prompt("", "what?"), Word)

    first, second = client(mumbling), client(mumbling)
    for model, calls in ((first, 3), (second, 0)):
        with refused("output.invalid"):
            within(tmp_path / "run", model, ask)
        assert len(model.calls) == calls
    assert [len(call.prompt.turns) for call in first.calls] == [0, 1, 2]


def reading(tokens: int) -> ScriptedClient:
    """A model whose window nobody knows: it refuses what is longer."""

    def respond(call: Call) -> str | Exception:
        return (
            world(call)
            if count_tokens(call.text) <= tokens
            else WindowError("window.exceeded", "larger than the window")
        )

    return client(respond)


async def about_a_long_trace(run: Run) -> tuple[Word | None, Word | None, dict[str, int]]:
    made = Prompt("Reflect.", "begin " + "word " * 40_000 + "end")
    long = await run.at("a").try_ask("reflector", made, Word, "lost_reflections")
    short = await run.at("b").try_ask("reflector", Prompt("Reflect.", "short"), Word, "lost_reflections")
    return long, short, dict(run.counts)


def test_a_prompt_refused_as_too_long_is_shortened_until_it_fits(tmp_path: Path) -> None:
    model, larger = reading(16_000), reading(1_000_000)
    first = within(tmp_path / "run", model, about_a_long_trace)
    assert isinstance(first, tuple)
    assert first[0] is not None
    assert first[2] == {"shortened_prompts": 1}
    sizes = [count_tokens(call.prompt.user) for call in model.calls[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert 8_000 < sizes[-1] <= 16_000 < sizes[-2]
    read = model.calls[-2].prompt.user
    assert (read.startswith("begin"), "tokens left out here" in read, read.endswith("end")) == (True, True, True)
    # A resume goes on from the same answer, also where the model has come to read more.
    assert within(tmp_path / "run", larger, about_a_long_trace) == first
    assert larger.calls == []


def test_a_prompt_that_never_fits_is_lost_and_the_run_continues(tmp_path: Path) -> None:
    model, larger = reading(20), reading(1_000_000)
    first = within(tmp_path / "run", model, about_a_long_trace)
    assert isinstance(first, tuple)
    assert (first[0], first[1] is not None) == (None, True)
    assert first[2] == {"shortened_prompts": 1, "lost_reflections": 1}
    assert len(model.calls) < 10
    assert within(tmp_path / "run", larger, about_a_long_trace) == first
    assert larger.calls == []


def test_json_is_found_in_prose(tmp_path: Path) -> None:
    async def ask(run: Run) -> Word:
        return await run.ask("agent", Prompt("", "what?"), Word)

    for n, text in enumerate(('{"word": "a"} Done.', 'Sure:\n```json\n{"word": "a"}\n```', ' {"word":"a"} ')):
        assert within(tmp_path / str(n), client(lambda call, text=text: text), ask) == Word(word="a")


def test_a_text_that_ended_at_the_limit_of_tokens_is_counted_and_still_is_after_a_resume(tmp_path: Path) -> None:
    class Limited(ScriptedClient):
        async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
            return replace(await super().complete(role, prompt, schema, options), cut=prompt.user == "long")

    async def work(run: Run) -> tuple[str, int]:
        texts = [await run.at(user).ask_text("agent", Prompt("", user)) for user in ("short", "long")]
        return " ".join(texts), run.counts["cut_texts"]

    model = Limited(lambda call: call.prompt.user)
    assert [within(tmp_path / "run", model, work) for _ in range(2)] == [("short long", 1)] * 2
    assert len(model.calls) == 2


def test_a_failure_is_journaled_once_a_later_result_used_it(tmp_path: Path) -> None:
    def down(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "down") if "first" in call.prompt.user else world(call)

    async def work(run: Run, go_on: bool = True) -> str:
        try:
            return await run.at("a").ask_text("agent", Prompt("", "first"))
        except ProviderError as error:
            if not go_on:
                raise
            return str(error) + await run.at("b").ask_text("agent", Prompt("", "second"))

    async def stopping(run: Run) -> str:
        return await work(run, go_on=False)

    used, healthy = client(down), client()
    first = within(tmp_path / "used", used, work)
    assert within(tmp_path / "used", healthy, work) == first
    assert healthy.calls == []
    with pytest.raises(ProviderError):
        within(tmp_path / "unused", client(down), stopping)
    assert str(within(tmp_path / "unused", healthy, stopping)).startswith("word")
    assert len(healthy.calls) == 1


def test_evaluations_are_kept_by_split_task_and_context(tmp_path: Path) -> None:
    from practicum.blocks.act.show import answer, full_view

    model = client()

    async def work(run: Run) -> list[int]:
        act, tasks, empty = answer(full_view), make_tasks(4), practicum.Context()
        counts = []
        for split, some in (("val", tasks[:2]), ("val", tasks), ("val", tasks), ("test", tasks)):
            await run.evaluate(act, split, some, empty)
            counts.append(len(model.calls))
        return counts

    assert within(tmp_path / "run", model, work) == [2, 4, 4, 8]


def test_feedback_says_what_learning_may_know() -> None:
    task, good, bad = Task("t", "What?", "blue"), Score(1.0, True), Score(0.0, False)
    assert feedback(task, Trace("blue"), good, True).success is True
    wrong = feedback(task, Trace("red"), bad, True)
    assert (wrong.success, wrong.target) == (False, "blue")
    assert "blue" in wrong.text
    assert feedback(task, Trace("red"), bad, False) == feedback(task, Trace("blue"), good, False)
    assert feedback(task, Trace("blue"), None, True).success is None
    failed = feedback(task, Trace("", error="it broke"), bad, False)
    assert (failed.success, failed.target) == (False, None)
    assert "it broke" in failed.text


@pytest.mark.parametrize("more", [False, True])
def test_notes_after_a_failure_are_kept_only_with_the_failure(tmp_path: Path, more: bool) -> None:
    """A resume tries again what was lost at the end, so it must not find what came of its being lost."""

    def dead(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "the line is dead") if "first" in call.text else '{"word": "yes"}'

    async def work(run: Run) -> object:
        known, before = run.recall("came next"), run.recall("before")
        if before is None:
            run.note("before", "kept")
        if known is None:
            await run.at("a").try_ask("agent", Prompt("", "first"), Word, "lost")
            run.note("came next", "nothing came of it")
            if more:
                await run.at("b").ask("agent", Prompt("", "second"), Word)
        return known, before, run.hits

    assert within(tmp_path / "run", client(dead), work) == (None, None, 0)
    known, before, _ = cast("tuple[object, ...]", within(tmp_path / "run", client(dead), work))
    assert (known, before) == ("nothing came of it" if more else None, "kept")
