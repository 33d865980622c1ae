"""PromptBreeder: evolves instructions together with the advice on how to mutate them; in binary tournaments, a mutant
of the winner replaces the loser (Fernando et al., 2024, sections 3.1 and 3.2).

The data of a candidate has `advice` (how to mutate the candidate), `operator` (the mutation operator that created the
candidate), and `line` (the texts of the candidate's ancestors). docs/learn/methods/reproductions.md lists the
differences from the paper.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from practicum.core.clashes import Clash
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, ordered_union
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import Method, UpdateSeam
from practicum.engine.run import Run
from practicum.methods.worked_examples import CALENDAR, CLOSED, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.plugins.rivals.ape import INDUCE
from practicum.plugins.rivals.examples import DATES, MATERIAL_CASES, MATERIALS, PRICES, SHORT, example
from practicum.plugins.rivals.search import (
    BeamSettings,
    InstructionRequest,
    cases,
    demonstrated,
    ranked,
    roulette,
    search,
    value,
    written,
)

DEMOS = 5
"""Number of cases from which an instruction is written."""

CROSSOVER = 0.1
"""Probability that the text of a mutant is replaced with the text of another candidate, as in the paper."""

LINE = 10
"""Number of newest ancestors that are stored for an instruction."""

HYPER = ("zero-order hyper", "first-order hyper")

OPERATORS = ("zero-order", "first-order", "population", "ranked", "lineage", *HYPER, "lamarckian")
"""Mutation operators of the paper. Two are not in this list: crossover, which may follow any of these operators, and
context shuffling."""


class Settings(BeamSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {**BeamSettings.SMALL, "candidates": 2}

    steps: int = Field(default=21, ge=1)
    """Number of generations, including the first (paper: 20 to 30 after the first)."""
    candidates: int = Field(default=10, ge=1)
    """Number of tournaments per generation. An instruction takes part in at most one tournament of a generation."""
    beam: int = Field(default=20, ge=2)
    """Size of the population (paper: 50)."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(
            lambda s: s.were_set("candidates") and s.candidates > s.beam // 2,
            "beam={s.beam} has fewer pairs of instructions than candidates={s.candidates} tournaments need: lower "
            "candidates",
        ),
    )


def method(s: Settings) -> Method:
    """Compare instructions in pairs, replace the worse instruction of a pair with a mutant of the better one."""
    return search("promptbreeder", s, bred(s.beam, s.candidates, s.warmth))


def bred(size: int, tournaments: int, warmth: float) -> UpdateSeam:
    """Return an update seam that writes a first generation of `size` instructions, and in later steps runs tournaments:
    a mutant of each winner replaces the loser, unless the call for the mutant failed."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        members, rng = ranked(context), run.rng("tournaments")
        if len(members) < 2:
            count = size if lessons else 0
            adds = await run.gather([(f"first {n}", partial(first, lessons, warmth)) for n in range(count)])
            new_texts = {add.text: add for add in adds if add is not None and add.text not in {e.text for e in members}}
            return Delta(tuple(new_texts.values()))
        drawn = rng.sample(members, 2 * min(tournaments, len(members) // 2))
        pairs = [sorted(pair, key=value, reverse=True) for pair in zip(drawn[::2], drawn[1::2], strict=True)]
        jobs = [(loser.id, partial(mutant, winner, members, lessons, warmth)) for winner, loser in pairs]
        edits: list[Edit] = []
        for (_, loser), add in zip(pairs, await run.gather(jobs), strict=True):
            if add is not None:
                # The deletion has the sources of the mutant. If the mutant waits for review, so does the deletion.
                edits += [add, Delete(loser.id, add.sources, reason="lost a tournament")]
        return Delta(tuple(edits))

    return update


async def first(lessons: Sequence[Lesson], warmth: float, run: Run) -> Add | None:
    """Write an instruction of the first generation. Return None if the call fails."""
    rng = run.rng("first")
    advice = rng.choice(ADVICE)
    add = await written(from_cases(advice, lessons, rng), warmth, "curator", run)
    return add and replace(add, data={"advice": advice, "operator": "first", "line": []})


async def mutant(
    winner: Entry, members: Sequence[Entry], lessons: Sequence[Lesson], warmth: float, run: Run
) -> Add | None:
    """Write a mutant of a winner. A hypermutation first changes the advice, and then mutates by the new advice. Return
    None if the call for the mutant fails."""
    rng = run.rng("operator")
    advice, advice_lessons = str(winner.data.get("advice") or rng.choice(ADVICE)), tuple[str, ...]()
    # The operator "lamarckian" infers an instruction from successes, so it needs at least one success.
    operator = rng.choice([name for name in OPERATORS if name != "lamarckian" or any(x.detail for x in lessons)])
    if operator in HYPER:
        zero_order = operator == "zero-order hyper"
        asking = from_cases("", lessons, rng) if zero_order else InstructionRequest(ADVISE, (_advice(advice),))
        asking = replace(asking, instructions=ADVISE, parents=(winner,))
        new = await written(asking, warmth, "curator", run.at("advice"))
        advice, advice_lessons = (advice, ()) if new is None else (new.text, new.lessons)
    mutation = request(operator, winner, advice, members, lessons, rng)
    # The mutant's data has the advice and the ancestors of the winner, so the winner is a parent of every mutant.
    add = await written(replace(mutation, parents=(winner, *mutation.parents)), warmth, "curator", run)
    if add is None:
        return None
    other = roulette(members, rng)[0] if rng.random() < CROSSOVER else None
    used = {x.id: x.sources for x in lessons if x.id in advice_lessons}
    return replace(
        add,
        text=add.text if other is None else other.text,
        sources=ordered_union([add.sources, *used.values(), () if other is None else other.sources]),
        lessons=ordered_union([add.lessons, tuple(used)]),
        data={"advice": advice, "operator": operator, "line": _line(winner)[-LINE:]},
    )


def request(
    operator: str, winner: Entry, advice: str, members: Sequence[Entry], lessons: Sequence[Lesson], rng: random.Random
) -> InstructionRequest:
    """Return the request by which an operator mutates the winner. For a hypermutation, `advice` is the new advice."""
    texts = {e.text: e for e in members}
    match operator:
        case "zero-order":
            return from_cases(advice, lessons, rng)
        case "population":
            listed = _listed("in no order", rng.sample([*texts], len(texts)))
            return InstructionRequest(CONTINUE, (listed,), tuple(members))
        case "ranked":
            return InstructionRequest(CONTINUE, (_listed("the best last", [*reversed(texts)]),), tuple(members))
        case "lineage":
            return InstructionRequest(CONTINUE, (_listed("each made of the one before it", _line(winner)),))
        case "lamarckian":
            successes = [x for x in lessons if x.detail]
            shown = tuple(rng.sample(successes, min(DEMOS, len(successes))))
            return InstructionRequest(INDUCE, (cases(shown),), lessons=shown)
        case _:
            return InstructionRequest(FOLLOW, (_advice(advice), f"# The instruction\n{winner.text}"))


def from_cases(advice: str, lessons: Sequence[Lesson], rng: random.Random) -> InstructionRequest:
    """Return a request for an instruction, with some random cases and a random thinking style."""
    shown = tuple(rng.sample(lessons, min(DEMOS, len(lessons))))
    parts = (f"# How to think\n{rng.choice(THINKING)}", _advice(advice) if advice else "", demonstrated(shown))
    return InstructionRequest(START, tuple(filter(None, parts)), lessons=shown)


def _line(entry: Entry) -> list[str]:
    """Return the texts of an instruction's ancestors, the oldest first, followed by the instruction's own text."""
    return [*entry.data.get("line", ()), entry.text]


def _advice(advice: str) -> str:
    return f"# The advice\n{advice}"


def _listed(order: str, texts: Sequence[str]) -> str:
    return f"# Instructions, {order}\n\n" + "\n\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))


ADVICE = (
    "Say the same in plainer words, as to somebody who does such work for the first time.",
    "Add the one step that people forget when they do such work.",
    "Leave out everything that does not change what is done.",
    "Turn it into a procedure: numbered steps, each with what it starts from and what it gives.",
    "Say how to check a result before it is given, and what to do if the check fails.",
    "Name the cases that are easily confused, and what tells them apart.",
    "Begin with what a good result is, and only then say how to get there.",
    "Make it bolder: change the approach itself, not the words.",
    "Add what an expert in the field knows and takes for granted.",
    "Say exactly in which form a result is given, and what must not be in it.",
)
"""Mutation advice of the first generation. New advice for later generations is written by a model."""

THINKING = (
    "What would make this work simple?",
    "Divide the work into parts, and look at each by itself.",
    "Which mistakes are likely here, and how are they prevented?",
    "What have all cases in common, and in what do they differ?",
    "Work backwards from the result that is wanted.",
    "What does one have to know to do this, and what can be left out?",
    "How would a careful expert go about it, step by step?",
    "Look for the exception that breaks the obvious rule.",
)
"""Thinking styles for the first generation and for zero-order operators."""

START = Instructions(
    full="""\
You write instructions for an agent. You see some cases of its work, a way to think about it, and perhaps a piece of \
advice on how instructions are written. Think about the cases in that way, follow the advice, and write one \
instruction that helps with other tasks of this kind. It is complete in itself, may have several lines, and names no \
single case.""",
    small="Write an instruction for an agent that does tasks like these. Think as you are told and follow the advice, "
    "if there is any. Write it whole. Name no single case.",
    examples=(
        example(
            MATERIALS, WORKSHOP, "# How to think\nWhat sets the cases apart?", _advice("Name what decides first."),
            MATERIAL_CASES,
        ),
        example(
            DATES, CALENDAR, "# How to think\nWhat goes wrong here?", "# Attempts, with what is known of each", MEETING
        ),
    ),
)  # fmt: skip

FOLLOW = Instructions(
    full="""\
You change the instruction that an agent works under, and you are given a piece of advice on how. Follow the advice. \
Write the whole instruction as it is after the change. It may become quite different; it has to stay an instruction \
for the same work, complete in itself.""",
    small="Change the instruction as the advice says. Write it whole, for the same work.",
    examples=(
        example(
            PRICES, SHOP, _advice("Say in which order the work is done."), "# The instruction\nMind the discounts."
        ),
        example(
            SHORT, NOTICES, _advice("Say how a result is checked."),
            "# The instruction\nSay what happens and when, without a greeting or a reason.",
        ),
    ),
)  # fmt: skip

CONTINUE = Instructions(
    full="""\
You see a list of instructions for the same work of an agent; its heading says in which order they stand. Write the \
instruction that comes next. It goes on where the list leads, and differs from all that are in it. It is complete in \
itself, since nobody sees the list.""",
    small="You see a list of instructions for the same work. Write the one that comes next. It differs from all of "
    "them and is complete.",
    examples=(
        example(
            MATERIALS, WORKSHOP,
            _listed("the best last", ("Name a strong material.", "Name a material that fits the place of the part.")),
        ),
        example(
            PRICES, SHOP,
            _listed("in no order", ("Calculate carefully.", "Subtract the discount from the price.")),
        ),
    ),
)  # fmt: skip

ADVISE = Instructions(
    full="""\
You write advice on how an instruction for an agent is changed so that it gets better. Where you see a piece of \
advice, sum it up and improve it: make it more exact, more useful, or of another kind. Where you see cases of the \
agent's work and a way to think, say what instructions for such work should be changed in. The advice is about \
instructions of this kind in general, not about a single one. Write it as `instruction`.""",
    small="Write advice on how an instruction for an agent is made better. If you see advice, write better advice. "
    "Otherwise write advice for work like the cases. Write it as `instruction`.",
    examples=(
        example(
            "Find the step at which a calculation goes wrong most easily, and say how it is done right.",
            SHOP, _advice("Make it better."),
        ),
        example(
            "Add the limits that a text has to keep, and say how one sees that it keeps them.",
            NOTICES, "# How to think\nWhat was wanted, and what came?",
            "# Attempts, with what is known of each", CLOSED,
        ),
    ),
)  # fmt: skip
