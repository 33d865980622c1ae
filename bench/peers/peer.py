"""Input and output of each peer. It needs only the standard library, because every environment imports it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MAX_OUTPUT_TOKENS = 1024
AT_ONCE = 2


@dataclass(frozen=True)
class Case:
    """Input of one run of one method. `learning` and `testing` are addresses of the same model, which count the calls
    of the two stages. `learning` refuses all calls after the first `budget`. Tasks are {"id", "input", "target"}; test
    tasks have no target. `choices` may be empty."""

    method: str
    train: list[dict[str, str]]
    test: list[dict[str, str]]
    instructions: str
    choices: list[str]
    model: str
    learning: str
    testing: str
    budget: int
    seed: int
    folder: str

    @property
    def attempts(self) -> int:
        """Number of attempts at tasks that GEPA may make within the budget. Its limit includes neither its reflections
        nor the validation that runs when the limit is reached."""
        return 3 * self.budget // 4

    @property
    def split(self) -> int:
        """Index that splits the training tasks for a peer that validates: the last third is for validation."""
        return len(self.train) - len(self.train) // 3

    def predict(self, answer: Callable[[str], str], at_once: int = AT_ONCE) -> None:
        """Write the answer to each test task. If an attempt raises, its answer is empty and the error is printed."""

        def one(task: dict[str, str]) -> str:
            try:
                return str(answer(task["input"]))
            except Exception as error:
                print(f"{task['id']}: {type(error).__name__}: {error}", file=sys.stderr)
                return ""

        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(one, self.test))
        lines = (json.dumps({"id": task["id"], "answer": text}) for task, text in zip(self.test, answers, strict=True))
        Path(self.folder, "predictions.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_case() -> Case:
    """Return the case in the file that the command line names."""
    return Case(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
