"""What a run has to know of all its tasks before it starts, found in one pass that holds none of them."""

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
    """A number for a text: 63 bits. The odds that two of a million texts share one are 1 to 18 million."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") >> 1


@dataclass
class Survey:
    """What is known of so many (`count`) tasks: whose they are (`levels`), the tokens of the largest input
    (`longest`), and whether each has a recorded attempt. Ids and inputs are kept as digests: 16 bytes a task."""

    count: int = 0
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
        self.levels.add(task.trust)
        self.longest = max(self.longest, count_tokens(task.input))
        self.recorded = self.recorded and task.recorded is not None
        id, input = digest(task.id), digest(task.input)
        self._ids.append(id)
        self._inputs.append(input)
        self._content.update(id.to_bytes(8, "big") + input.to_bytes(8, "big"))

    @property
    def content(self) -> str:
        """A digest of the ids and inputs of the tasks, in their order."""
        return str(self._content.hexdigest())

    @property
    def repeated(self) -> int | None:
        """The position of a task whose id an earlier one has; None if all ids differ."""
        ids = np.frombuffer(self._ids, dtype=np.int64) if self._ids else np.empty(0, np.int64)
        order = np.argsort(ids, kind="stable")
        same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        return int(order[same + 1].min()) if len(same) else None

    def shared(self, inputs: Iterable[str]) -> int:
        """How many of these inputs are those of tasks."""
        wanted = np.array([digest(text) for text in inputs], dtype=np.int64)
        return int(np.isin(wanted, np.frombuffer(self._inputs, dtype=np.int64)).sum()) if self._inputs else 0
