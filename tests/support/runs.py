"""A Run without a folder, for tests of blocks: all is real except the disk, the model and the embedder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any, cast

import numpy as np
from helpers import client, number_of, world

from practicum.agents.chat import ChatAgent
from practicum.core.errors import ProviderError
from practicum.core.types import Lesson, Profile
from practicum.engine.run import Run
from practicum.engine.state import RunState, Seat
from practicum.methods.blocks.show import default_sections
from practicum.models.scripted import Call, ScriptedClient
from practicum.retrieval.vectors import Vectors
from practicum.store.journal import Journal, JournalRow
from practicum.tasks.scoring.registry import load_scorer


class Memory:
    """A journal in memory: place → row; rows of an earlier sitting come first."""

    def __init__(self, rows: Mapping[str, JournalRow] | None = None) -> None:
        self.rows: dict[str, JournalRow] = dict(rows or {})
        self._earlier = dict(self.rows)
        self.hits = 0

    def find(self, place: str, digest: str) -> JournalRow | None:
        row = self._earlier.pop(place, None)
        assert row is None or row.digest == digest
        return row

    def post(self, record: JournalRow) -> None:
        self.rows[record.place] = record

    async def write(self, *records: JournalRow) -> None:
        for record in records:
            self.post(record)


class Words:
    """Embeds a text as the sum of its words: the same words are one, others are far apart."""

    name = "words"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        sums = np.stack([sum(map(_word, text.split()), np.zeros(64)) for text in texts])
        unit: np.ndarray = (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        return unit


def _word(word: str) -> np.ndarray:
    seed = int.from_bytes(sha256(word.casefold().encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(64)


def indoors(
    respond: Callable[[Call], str | Exception] | ScriptedClient,
    seed: int = 0,
    choices: tuple[str, ...] = (),
    journal: Memory | None = None,
    profile: Profile = "small",
) -> Run:
    """The top of a run with a chat agent whose model answers so, and exact scores."""
    model = respond if isinstance(respond, ScriptedClient) else client(respond)
    scorer = load_scorer("exact", None)
    rows, seats, vectors = cast(Journal, journal or Memory()), {"agent": Seat(model)}, Vectors(Words())
    state = RunState(rows, seats, ChatAgent(), scorer, vectors, seed=seed, choices=choices, profile=profile)
    state.sections = default_sections(profile)
    return Run(state)


def lessons_read(call: Call) -> list[str]:
    """The lessons a curator is asked about, in order."""
    form = r"^(?:Lesson \d+(?: \(confirmed[^)]*\))?|Insight \d+(?: \([^)]*\))?): (.*)$"
    return re.findall(form, call.prompt.user, re.MULTILINE)


def rules_shown(call: Call) -> list[str]:
    """The ids of the rules a curator is shown."""
    before = "\n".join([*call.prompt.pages, call.prompt.user.partition("# New lessons")[0]])
    return re.findall(r"^\[(e\d+)\]", before, re.MULTILINE)


def spelled(number: int) -> str:
    """A number as a plain word, because digits and names are guarded."""
    return "".join("bdfghklmnp"[int(digit)] + "aeiou"[int(digit) % 5] for digit in str(number))


def make_lessons(n: int, **how: Any) -> list[Lesson]:
    """Different lessons, each with its own source."""
    words = [f"If {spelled(i)} comes, do {spelled(i)}." for i in range(n)]
    return [Lesson(f"l{i}", text, sources=(f"task:t{i}",), **how) for i, text in enumerate(words)]


OPS = ("add", "own words", "update", "merge", "delete", "covered", "forget", "unknown", "another", "twice", "no text")
"""Decisions of a curator about a lesson."""


def random_curator(
    seed: int, ops: Sequence[str], failing: float, sizes: list[int]
) -> Callable[[Call], str | Exception]:
    """A curator that decides at random, depending only on its prompt: any decision of the schema, or a failure."""

    def one(rng: Random, n: int, text: str, shown: list[str]) -> list[dict[str, Any]]:
        ids = rng.sample(shown, min(len(shown), rng.randint(1, 3)))
        words = rng.choice([text, f"{text} Or so.", "If any, do all.", f"If {spelled(rng.randint(0, 2))}, do all."])
        match rng.choice(ops):
            case "add":
                return [{"lesson": n, "op": "ADD"}]
            case "own words":
                return [{"lesson": n, "op": "ADD", "text": words}]
            case "update":
                return [{"lesson": n, "op": "UPDATE", "ids": ids[:1], "text": words}]
            case "merge":
                return [{"lesson": n, "op": "MERGE", "ids": ids, "text": rng.choice([words, ""])}]
            case "delete":
                return [{"lesson": n, "op": "DELETE", "ids": ids}]
            case "covered":
                return [{"lesson": n, "op": "COVERED", "ids": ids[:1]}]
            case "unknown":
                return [{"lesson": n, "op": rng.choice(["UPDATE", "MERGE", "COVERED"]), "ids": ["e901", "e902"],
                         "text": words}]  # fmt: skip
            case "another":
                return [{"lesson": rng.choice([0, -3, 77, n + 1]), "op": "ADD", "text": words}]
            case "twice":
                return [{"lesson": n, "op": "ADD"}, {"lesson": n, "op": "UPDATE", "ids": ids[:1], "text": words}]
            case "no text":
                return [{"lesson": n, "op": "UPDATE", "ids": ids[:1]}]
        return []

    def respond(call: Call) -> str | Exception:
        read, shown = lessons_read(call), rules_shown(call)
        sizes.append(len(read))
        rng = Random(number_of(f"{seed}{call.text}"))
        if rng.random() < failing:
            return rng.choice(["nonsense", '{"decisions": []}', ProviderError("provider.failed", "down")])
        decisions = [d for n, text in enumerate(read, 1) for d in one(rng, n, text, shown)]
        rng.shuffle(decisions)
        return json.dumps({"decisions": decisions[:150] or [{"lesson": 99, "op": "ADD"}]})

    return respond


def learner(call: Call) -> str:
    """An answer for any role, as `world`, with a curator that adds, updates and finds lessons covered."""
    if call.role != "curator" or call.schema is None or "decisions" not in call.schema["properties"]:
        return world(call)
    shown = rules_shown(call)
    decisions: list[dict[str, object]] = []
    for number, lesson in enumerate(lessons_read(call), 1):
        chance = number_of(f"{lesson}{len(shown)}")
        ids = [shown[chance % len(shown)]] if shown else []
        op = ("ADD", "ADD", "UPDATE", "COVERED")[chance // 7 % 4] if shown else "ADD"
        decisions.append({"lesson": number, "op": op, "ids": ids, "text": f"{lesson} Or so." if op == "UPDATE" else ""})
    return json.dumps({"decisions": decisions})
