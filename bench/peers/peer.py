"""What each peer is given and what it answers. Standard library only: this module is imported in every environment."""

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
    """One run of one method. `learning` and `testing` are addresses of the same model, at which calls are counted for
    the two stages; `learning` refuses all calls after the first `budget`. Tasks are {"id", "input", "target"}, those to
    test without a target; `choices` may be empty."""

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
        """The attempts at tasks that GEPA may make within the budget: what it limits includes neither its reflections
        nor the validation that it is in when the limit is reached."""
        return 3 * self.budget // 4

    @property
    def split(self) -> int:
        """Where a peer that needs tasks to validate with cuts the training tasks: the last third is for that."""
        return len(self.train) - len(self.train) // 3

    def predict(self, answer: Callable[[str], str], at_once: int = AT_ONCE) -> None:
        """Write the answer to each test task. An attempt that raises has no answer; why is printed."""

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
    """The case in the file that the command line names."""
    return Case(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
