"""Whether critiques that accept a solution should be experience (`mael`, setting `accepted`).

Compares the rounds of critique, the tokens and the scores of a network without experience, with pools without such
critiques, and with pools that contain them. The tasks are lists of words to write a text with (CommonGen-Hard). This
script divides every task into the two halves of its list, because a weak model divides badly, or answers that it can
solve each task without the others; the model makes all other calls. Pools are learned once. The bench prints a line for
each of the three networks.

    python bench/critiques_bench.py TASKS.jsonl --train 6 --test 8 --model local:PATH --out FOLDER
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

INSTRUCTIONS = "Write a short coherent text that uses all of the given words. Answer with the text only."


@dataclass
class Dividing:
    """Client of a model that divides each task itself, into two halves of its list of words."""

    model: Client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        match schema and schema.get("title"):
            case "Ability":
                return Reply(json.dumps({"reason": "two halves", "alone": False}), Usage())
            case "Plan":
                task = prompt.user.partition("# Task\n")[2].partition("\n\n")[0]
                words = task.split(", ")
                halves = (words[: len(words) // 2], words[len(words) // 2 :])
                return Reply(json.dumps({"parts": [{"text": ", ".join(half)} for half in halves]}), Usage())
        return await self.model.complete(role, prompt, schema, options)


def without_acceptances(context: Context) -> Context:
    """Return the pools without the critiques that accept a solution, as with `accepted=false`."""
    accepting = (e.id for e in context if e.data.get("kind") == "critique" and e.text == ACCEPTED)
    return context.apply(Delta(tuple(map(Delete, accepting)))).context


async def measure(options: argparse.Namespace) -> None:
    tasks = load_tasks(options.tasks)
    learned, tested = tasks[: options.train], tasks[options.train : options.train + options.test]
    models = Models()
    parts = practicum.Parts(clients={"agent": Dividing(models.open(options.model))})
    common: dict[str, Any] = {
        "method": "mael", "scorer": "coverage", "profile": "small", "seed": options.seed, "parts": parts,
        "instructions": INSTRUCTIONS, "max_output_tokens": 200, "timeout": 600.0,
    }  # fmt: skip
    settings = {"agents": 3, "rounds": options.rounds, "depth": 1}
    result = await practicum.learn(
        learned, out=options.out / "pools", settings={**settings, "batch": len(learned)}, **common
    )
    pools = result.context
    ways = {"none": Context(), "without": without_acceptances(pools), "with": pools}
    print(json.dumps({"experiences": {name: len(context) for name, context in ways.items()}}), flush=True)
    for name, context in ways.items():
        own = {**settings, "experience": "none" if name == "none" else "step"}
        result_ = await practicum.evaluate(tested, context, out=options.out / name, settings=own, **common)
        rounds = [r.trace.data.get("rounds", 0) for r in result_.attempts]
        asked = [sum(m["kind"] == "critique" for m in r.trace.data.get("moves", ())) for r in result_.attempts]
        tokens = (result_.usage.input_tokens + result_.usage.output_tokens) / len(tested)
        line = {"pools": name, "rounds": fmean(rounds), "critiques": fmean(asked), "tokens a task": round(tokens)}
        line |= {"score": result_.score, "ci95": result_.ci95, "counts": dict(result_.counts), "each": rounds}
        print(json.dumps(line), flush=True)
    await models.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--train", type=int, default=6)
    parser.add_argument("--test", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the runs; repeating a run there makes no calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="practicum-critiques-") as folder:
        options.out = options.out or Path(folder)
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()
