"""How instructions are bred: parents by a roulette wheel (EvoPrompt, Guo et al. 2024), binary tournaments, and
operators that change an instruction, or first the advice by which it is changed (PromptBreeder, Fernando et al. 2024,
section 3.2).

A candidate's data holds its `advice`, the `operator` that made it, and its `line`, the texts of its ancestors.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, ordered_union
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.plugins.rivals.demonstrations import demonstrated
from practicum.plugins.rivals.search import Request, cases, drawn_by, ranked, value, written

DEMOS = 5
"""Cases that an instruction is written from."""

CROSSOVER = 0.1
"""The chance that a mutant takes over the text of another member (the paper's number)."""

LINE = 10
"""Ancestors of an instruction that are kept, the newest ones."""

HYPER = ("zero-order hyper", "first-order hyper")

OPERATORS = ("zero-order", "first-order", "population", "ranked", "lineage", *HYPER, "lamarckian")
"""The operators of the paper, except for crossover, which may follow each, and the shuffling of contexts."""


@dataclass(frozen=True, slots=True)
class Breeding:
    """What the operators tell a model: to write an instruction from cases, to follow advice on one, to go on with a
    list, to write better advice, and to induce an instruction from what worked. `advice` and `thinking` are the
    pieces of advice and the ways to think that the first generation draws from."""

    start: Instructions
    follow: Instructions
    go_on: Instructions
    advise: Instructions
    induce: Instructions
    advice: tuple[str, ...]
    thinking: tuple[str, ...]

    def from_cases(self, advice: str, lessons: Sequence[Lesson], rng: random.Random) -> Request:
        """An instruction for tasks like some of these, by a drawn way to think."""
        shown = tuple(rng.sample(lessons, min(DEMOS, len(lessons))))
        thinking = f"# How to think\n{rng.choice(self.thinking)}"
        parts = (thinking, _advice(advice) if advice else "", demonstrated(shown))
        return Request(self.start, tuple(filter(None, parts)), lessons=shown)

    def by(
        self, operator: str, winner: Entry, advice: str, known: Sequence[Entry], lessons: Sequence[Lesson],
        rng: random.Random,
    ) -> Request:  # fmt: skip
        """The request of an operator. What hypermutation made of the advice is followed as any other is."""
        texts = {e.text: e for e in known}
        match operator:
            case "zero-order":
                return self.from_cases(advice, lessons, rng)
            case "population":
                listed = _listed("in no order", rng.sample([*texts], len(texts)))
                return Request(self.go_on, (listed,), tuple(known))
            case "ranked":
                return Request(self.go_on, (_listed("the best last", [*reversed(texts)]),), tuple(known))
            case "lineage":
                return Request(self.go_on, (_listed("each made of the one before it", _line(winner)),))
            case "lamarckian":
                worked = [x for x in lessons if x.detail]
                shown = tuple(rng.sample(worked, min(DEMOS, len(worked))))
                return Request(self.induce, (cases(shown),), lessons=shown)
            case _:
                return Request(self.follow, (_advice(advice), f"# The instruction\n{winner.text}"))


def bred(how: Breeding, size: int, tournaments: int, warmth: float) -> UpdateSeam:
    """The first generation, of `size` instructions. After it the outcome of tournaments: a mutant of each winner takes
    the place of the loser, unless it could not be written."""

    async def first(lessons: Sequence[Lesson], run: Run) -> Add | None:
        rng = run.rng("first")
        advice = rng.choice(how.advice)
        made = await written(how.from_cases(advice, lessons, rng), warmth, "curator", run)
        return made and replace(made, data={"advice": advice, "operator": "first", "line": []})

    async def mutant(winner: Entry, known: Sequence[Entry], lessons: Sequence[Lesson], run: Run) -> Add | None:
        rng = run.rng("operator")
        advice = str(winner.data.get("advice") or rng.choice(how.advice))
        # Nothing can be taken over from what worked where nothing did.
        possible = [name for name in OPERATORS if name != "lamarckian" or any(x.detail for x in lessons)]
        operator = rng.choice(possible)
        if operator in HYPER:
            zero = how.from_cases("", lessons, rng) if operator == "zero-order hyper" else None
            asked = zero or Request(how.advise, (_advice(advice),))
            new = await written(replace(asked, told=how.advise, parents=(winner,)), warmth, "curator", run.at("advice"))
            advice, rests_on = (advice, ()) if new is None else (new.text, new.lessons)
        else:
            rests_on = ()
        asked = how.by(operator, winner, advice, known, lessons, rng)
        # It carries the advice and the line of the winner, so it rests on the winner in any case.
        asked = replace(asked, parents=(winner, *asked.parents))
        made = await written(asked, warmth, "curator", run)
        if made is None:
            return None
        other = roulette(known, rng)[0] if rng.random() < CROSSOVER else None
        named = {x.id: x.sources for x in lessons if x.id in rests_on}
        sources = ordered_union([made.sources, *named.values(), () if other is None else other.sources])
        return replace(
            made, text=made.text if other is None else other.text, sources=sources,
            lessons=ordered_union([made.lessons, tuple(named)]),
            data={"advice": advice, "operator": operator, "line": _line(winner)[-LINE:]},
        )  # fmt: skip

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        known, rng = ranked(context), run.rng("tournaments")
        if len(known) < 2:
            made = await run.gather([(f"first {n}", partial(first, lessons)) for n in range(size if lessons else 0)])
            unlike = {add.text: add for add in made if add is not None and add.text not in {e.text for e in known}}
            return Delta(tuple(unlike.values()))
        drawn = rng.sample(known, 2 * min(tournaments, len(known) // 2))
        pairs = [sorted(pair, key=value, reverse=True) for pair in zip(drawn[::2], drawn[1::2], strict=True)]
        jobs = [(loser.id, partial(mutant, winner, known, lessons)) for winner, loser in pairs]
        edits: list[Edit] = []
        for (_, loser), new in zip(pairs, await run.gather(jobs), strict=True):
            if new is not None:
                # What waits for review takes nobody's place.
                edits += [new, Delete(loser.id, new.sources, reason="lost a tournament")]
        return Delta(tuple(edits))

    return update


def roulette(known: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """Two different candidates, each drawn with a chance in proportion to its score."""
    # A small share for each, so that candidates which all score 0 can be drawn.
    return drawn_by(lambda e: value(e) + 1e-6, known, 2, rng)


def _line(entry: Entry) -> list[str]:
    """The texts of an instruction's ancestors and its own, the oldest first."""
    return [*entry.data.get("line", ()), entry.text]


def _advice(advice: str) -> str:
    return f"# The advice\n{advice}"


def _listed(order: str, texts: Sequence[str]) -> str:
    return f"# Instructions, {order}\n\n" + "\n\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))
