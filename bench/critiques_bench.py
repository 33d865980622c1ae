"""Whether critiques that accept a solution should be experience (`mael`, setting `accepted`): rounds of critique,
tokens and quality of a network without experience, with pools without them, and with pools that hold them.

Every task is divided: a model that says that it can solve everything alone would never be asked for a critique. So the
judgement of solvability is answered by this script, and everything else by the model. Pools are learned once.
Prints a line for each of the three, with the values of each task.

    python bench/critiques_bench.py TASKS.jsonl --train 4 --test 6 --scorer coverage --model local:PATH [--out FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import practicum
from practicum.agents.network import ACCEPTED
from practicum.core.context import Context
from practicum.core.edits import Delete, Delta
from practicum.core.types import Prompt, Usage
from practicum.models.client import JSON, CallOptions, Client, Reply
from practicum.models.registry import Models
from practicum.tasks.load import load_tasks


@dataclass
class Dividing:
    """A model that says of every task that it cannot solve it alone."""

    model: Client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        if schema is not None and schema.get("title") == "Ability":
            return Reply(json.dumps({"reason": "it has parts", "alone": False}), Usage())
        return await self.model.complete(role, prompt, schema, options)


def without_acceptances(context: Context) -> Context:
    """The pools as they would be with `accepted=false`."""
    accepting = (e.id for e in context if e.data.get("kind") == "critique" and e.text == ACCEPTED)
    return context.apply(Delta(tuple(map(Delete, accepting)))).context


async def measure(given: argparse.Namespace) -> None:
    tasks = load_tasks(given.tasks)
    learned, tested = tasks[: given.train], tasks[given.train : given.train + given.test]
    models = Models()
    parts = practicum.Parts(clients={"agent": Dividing(models.open(given.model))})
    common: dict[str, Any] = {
        "method": "mael", "scorer": given.scorer, "profile": "small", "seed": given.seed, "parts": parts,
        "instructions": given.instructions, "max_output_tokens": given.most, "timeout": 600.0,
    }  # fmt: skip
    settings = {"agents": given.agents, "rounds": given.rounds, "depth": 1}
    result = await practicum.learn(learned, out=given.out / "pools", settings=settings, **common)
    pools = result.context
    ways = {"none": Context(), "without": without_acceptances(pools), "with": pools}
    print(json.dumps({"experiences": {name: len(context) for name, context in ways.items()}}), flush=True)
    for name, context in ways.items():
        own = {**settings, "experience": "none" if name == "none" else "step"}
        found = await practicum.evaluate(tested, context, out=given.out / name, settings=own, **common)
        rounds = [r.trace.data.get("rounds", 0) for r in found.rollouts]
        asked = [sum(m["kind"] == "critique" for m in r.trace.data.get("moves", ())) for r in found.rollouts]
        tokens = (found.usage.input_tokens + found.usage.output_tokens) / len(tested)
        line = {"pools": name, "rounds": fmean(rounds), "critiques": fmean(asked), "tokens a task": round(tokens)}
        line |= {"score": found.score, "ci95": found.ci95, "counts": dict(found.counts), "each": rounds}
        print(json.dumps(line), flush=True)
    await models.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--scorer", default="exact")
    parser.add_argument("--instructions", default="")
    parser.add_argument("--train", type=int, default=4)
    parser.add_argument("--test", type=int, default=6)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=200, help="tokens that a call may write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder; a run that is repeated there pays nothing twice")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="practicum-critiques-") as folder:
        given.out = given.out or Path(folder)
        asyncio.run(measure(given))


if __name__ == "__main__":
    main()
