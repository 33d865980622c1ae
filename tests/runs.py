"""A Run without a folder, for tests of blocks: everything is real but the disk, the model and the embedder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import cast

import numpy as np
from helpers import client

from practicum.embed import Vectors
from practicum.house import Agent, House, Seat
from practicum.journal import Journal, Record
from practicum.models.scripted import Call, ScriptedClient
from practicum.run import Run
from practicum.types import Lesson


class NoJournal:
    """Remembers nothing."""

    hits = 0

    def find(self, place: str, digest: str) -> None:
        return None

    def post(self, record: Record) -> None:
        return None

    async def write(self, *records: Record) -> None:
        return None


class Words:
    """Embeds a text as the sum of its words: the same words are one, others are far apart."""

    name = "words"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        made = np.stack([sum(map(_word, text.split()), np.zeros(64)) for text in texts])
        unit: np.ndarray = (made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        return unit


def _word(word: str) -> np.ndarray:
    seed = int.from_bytes(sha256(word.casefold().encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(64)


def indoors(
    respond: Callable[[Call], str | Exception] | ScriptedClient, seed: int = 0, choices: tuple[str, ...] = ()
) -> Run:
    """The top of a run whose model answers so."""
    model = respond if isinstance(respond, ScriptedClient) else client(respond)
    house = House(
        journal=cast(Journal, NoJournal()), seats={"agent": Seat(model)}, agent=cast(Agent, None), scorer=None,
        vectors=Vectors(Words()), seed=seed, choices=choices,
    )  # fmt: skip
    return Run(house)


def lessons_read(call: Call) -> list[str]:
    """The lessons a curator is asked about, in order."""
    return re.findall(r"^Lesson \d+(?: \(confirmed[^)]*\))?: (.*)$", call.prompt.user, re.MULTILINE)


def rules_shown(call: Call) -> list[str]:
    """The ids of the rules a curator is shown."""
    return re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)


def make_lessons(n: int, **how: object) -> list[Lesson]:
    """Lessons that say different things, each with a source of its own."""
    return [Lesson(f"l{i}", f"If case {i} comes, do thing{i}.", sources=(f"task:t{i}",), **how) for i in range(n)]  # type: ignore[arg-type]
