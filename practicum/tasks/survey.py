"""Summary of all tasks of a run. It is computed before the run starts, in one pass over the tasks, without holding the
tasks in memory."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from practicum.core.trust import Trust
from practicum.core.types import Task
from practicum.core.views import count_tokens


def digest(text: str) -> int:
    """Return a 63-bit hash of a text. For a million different texts, the probability that any two of them have the same
    hash is 1 in 18 million."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") >> 1


@dataclass
class Survey:
    """Summary of `count` tasks: how many have no target (`unlabelled`), their trust levels, the tokens of the longest
    input (`longest`), and whether all tasks have a recorded attempt (`recorded`). Ids and inputs are stored as digests,
    16 bytes per task."""

    count: int = 0
    unlabelled: int = 0
    levels: set[Trust] = field(default_factory=set)
    longest: int = 0
    recorded: bool = True
    _ids: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _inputs: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _content: Any = field(default_factory=hashlib.sha256, repr=False)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Survey:
        survey = cls()
        for task in tasks:
            survey.add(task)
        return survey

    def add(self, task: Task) -> None:
        self.count += 1
        self.unlabelled += task.target is None
        self.levels.add(task.trust)
        self.longest = max(self.longest, count_tokens(task.text))
        self.recorded = self.recorded and task.recorded is not None
        id, input = digest(task.id), digest(task.text)
        self._ids.append(id)
        self._inputs.append(input)
        self._content.update(id.to_bytes(8, "big") + input.to_bytes(8, "big"))

    @property
    def content(self) -> str:
        """Digest of the ids and inputs of the tasks, in order."""
        return str(self._content.hexdigest())

    @property
    def repeated(self) -> int | None:
        """Position of the first task with the same id as an earlier task; None if all ids differ."""
        ids = np.frombuffer(self._ids, dtype=np.int64) if self._ids else np.empty(0, np.int64)
        order = np.argsort(ids, kind="stable")
        same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        return int(order[same + 1].min()) if len(same) else None

    def shared(self, inputs: Iterable[str]) -> int:
        """Return how many of `inputs` are also inputs of the tasks that this survey summarizes."""
        digests = np.array([digest(text) for text in inputs], dtype=np.int64)
        return int(np.isin(digests, np.frombuffer(self._inputs, dtype=np.int64)).sum()) if self._inputs else 0
