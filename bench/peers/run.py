"""practicum and other learners on the same tasks, with the same model and the same budget of calls to learn.

Each peer is a script of this folder that runs in a separate environment with pinned packages. All peers call the model
through one proxy. The proxy counts calls and tokens in the same way for all, refuses calls after the budget, and
answers every request for vectors with practicum's default embedder. Answers are scored by practicum's scorer, and
differences are claimed as `practicum compare` claims them. If you repeat a command, it continues where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from measure import load_average, print_end

from practicum.core.differences import Claim, claims
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.formats import UNKNOWN, count, interval, p_value, percent, points, seconds, verdict_label
from practicum.core.intervals import method_ci95
from practicum.core.subprocesses import environment
from practicum.core.types import Task, Trace
from practicum.retrieval.vectors import open_embedder
from practicum.store.journal import digest
from practicum.tasks.load import load_tasks
from practicum.tasks.scoring.registry import load_scorer

HERE = Path(__file__).parent

AT_ONCE = 2
"""Maximum number of calls that the proxy passes on at once, for any peer."""

MAX_BODY_BYTES = 2**26


@dataclass(frozen=True)
class Peer:
    """A method of a package: the script that runs it, and the requirements of its environment. Without requirements,
    the method runs in practicum's environment."""

    script: str
    method: str
    requirements: tuple[str, ...] = ()


DSPY = ("dspy==3.4.1", "optuna==5.0.0", "numpy==2.4.6")
PEERS = {
    **{f"practicum:{m}": Peer("with_practicum", m) for m in ("none", "icl", "episodes", "ace", "unified")},
    **{f"dspy:{m}": Peer("with_dspy", m, DSPY) for m in ("LabeledFewShot", "KNNFewShot", "GEPA", "MIPROv2")},
    "dspy:KNNFewShot-labelled": Peer("with_dspy", "KNNFewShot-labelled", DSPY),
    "gepa": Peer("with_gepa", "gepa", ("gepa==0.1.4", "litellm==1.106.2")),
    "ace-framework": Peer("with_ace_framework", "ace", ("ace-framework==0.7.1",)),
    **{f"mem0:{m}": Peer("with_mem0", m, ("mem0ai==2.2.1",)) for m in ("raw", "inferred")},
}

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MEM0_TELEMETRY": "False", "HF_HUB_OFFLINE": "1"}
"""Environment variables that stop peers from downloading files and sending telemetry."""


@dataclass
class Stage:
    """Usage of one stage of a run. `failed` calls were passed on and answered with an error; `refused` calls came after
    the budget was spent. `seconds` is the sum of the model's times."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0


class CountingProxy:
    """OpenAI-compatible proxy of the server at `upstream`, with an address for each of two stages. It counts the calls
    and tokens of a peer."""

    def __init__(self, upstream: str, budget: int) -> None:
        self.stages = {"learning": Stage(), "testing": Stage()}
        self.url = ""
        self._upstream, self._budget = upstream, budget
        self._embedder, self._gate = open_embedder("wordllama"), asyncio.Semaphore(AT_ONCE)

    def address(self, stage: str) -> str:
        """Return the address of the model for a peer, in a stage."""
        return f"{self.url}/{stage}/v1"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port of this machine while the block runs."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/{stage:learning|testing}/v1/chat/completions", self._chat)
        app.router.add_post("/{stage:learning|testing}/v1/embeddings", self._embed)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                await runner.cleanup()

    async def _chat(self, request: web.Request) -> web.Response:
        body, stage = await request.json(), self.stages[request.match_info["stage"]]
        if body.get("stream"):
            return _refusal(400, "invalid_request_error", "calls that stream are not counted: ask without stream")
        if stage is self.stages["learning"] and stage.calls >= self._budget:
            stage.refused += 1
            return _refusal(429, "insufficient_quota", f"the budget of {self._budget} calls to learn is spent")
        stage.calls += 1
        async with self._gate:
            began = time.perf_counter()
            try:
                async with self._session.post(f"{self._upstream}/chat/completions", json=body) as reply:
                    content, status = await reply.read(), reply.status
            except ClientError as error:
                stage.failed += 1
                return _refusal(502, "server_error", f"the model cannot be reached: {error}")
            finally:
                stage.seconds += time.perf_counter() - began
        if status != 200:
            stage.failed += 1
        else:
            usage = json.loads(content)["usage"]
            stage.prompt += usage["prompt_tokens"]
            stage.output += usage["completion_tokens"]
            stage.cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return web.Response(body=content, status=status, content_type="application/json")

    async def _embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if not all(isinstance(text, str) for text in texts):
            return _refusal(400, "invalid_request_error", "the input must be text, not tokens of another model")
        vectors = await self._embedder.embed(texts)
        packed = body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": i, "embedding": base64.b64encode(v).decode() if packed else v.tolist()}
            for i, v in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return web.json_response({"object": "list", "data": data, "model": self._embedder.name, "usage": usage})


def _refusal(status: int, code: str, message: str) -> web.Response:
    # A retry would be refused again. OpenAI's clients obey this header.
    error = {"message": message, "type": code, "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers={"x-should-retry": "false"})


def python_of(requirements: tuple[str, ...], folder: Path) -> Path:
    """Return the Python of an environment with these packages. Creates the environment in `folder` if it does not
    exist. Raises subprocess.CalledProcessError if pip cannot install the packages."""
    if not requirements:
        return Path(sys.executable)
    place = folder / hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    python, frozen = place / "bin" / "python", place / "frozen.txt"
    if not frozen.exists():
        print(f"installing {', '.join(requirements)} into {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
        listed = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True)
        write_atomic(frozen, listed.stdout)
    return python


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of all runs. `model` is an address and a name, `limit` the time limit of one run (s)."""

    train: Sequence[Task]
    test: Sequence[Task]
    instructions: str
    choices: tuple[str, ...]
    model: str
    budget: int
    limit: float


async def measured(plan: Plan, peer: Peer, python: Path, seed: int, folder: Path) -> dict[str, Any]:
    """Run a peer in an empty folder with an absolute path. Returns the score of each test task by its id, the costs of
    the run, and the error if it failed."""
    upstream, _, model = plan.model.partition("#")
    proxy = CountingProxy(upstream, plan.budget)
    async with proxy.serving():
        case = {
            "method": peer.method, "model": model, "learning": proxy.address("learning"),
            "testing": proxy.address("testing"), "instructions": plan.instructions, "choices": plan.choices,
            "budget": plan.budget, "seed": seed, "folder": str(folder),
            "train": [{"id": task.id, "input": task.input, "target": task.target} for task in plan.train],
            "test": [{"id": task.id, "input": task.input} for task in plan.test],
        }  # fmt: skip
        (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
        began = time.perf_counter()
        failed = await _run_script(python, peer.script, folder, plan.limit)
        wall = time.perf_counter() - began
    costs = {name: asdict(stage) for name, stage in proxy.stages.items()}
    return {
        "scores": {} if failed else scores_of(folder / "predictions.jsonl", plan.test, plan.choices),
        "costs": costs, "wall": wall, "budget": plan.budget, "failed": failed, "requirements": peer.requirements,
    }  # fmt: skip


async def _run_script(python: Path, script: str, folder: Path, limit: float) -> str | None:
    """Run a peer's script on the case in `folder`, with its output in log.txt. Returns the error, or None."""
    # Each run has a separate home, because files that a peer stores in one run must not affect another run.
    env = {**environment(), **OFFLINE, "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    env |= {"PYTHONPATH": str(HERE.parents[1])} if python == Path(sys.executable) else {}
    with (folder / "log.txt").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            python, HERE / f"{script}.py", folder / "case.json",
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
        )  # fmt: skip
        try:
            code = await asyncio.wait_for(process.wait(), limit)
        except TimeoutError:
            return f"took over {seconds(limit)}"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if code == 0:
        return None
    lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1] if lines else 'it printed nothing'}"


def scores_of(predictions: Path, test: Sequence[Task], choices: tuple[str, ...]) -> dict[str, float]:
    """Return the scores of a peer's answers by task id, from the scorer that practicum uses for such tasks."""
    scorer = load_scorer("choice" if choices else "exact", choices)
    rows = map(json.loads, predictions.read_text(encoding="utf-8").splitlines())
    answers = {row["id"]: row["answer"] for row in rows}
    return {task.id: scorer.score(task, Trace(answers[task.id])).value for task in test}


def table(runs: Mapping[str, Sequence[Mapping[str, Any]]], baseline: str) -> tuple[list[str], dict[str, Any]]:
    """Return the rows of all methods as a table in Markdown, and as plain values: scores with 95% intervals,
    differences from the baseline with p-values corrected for the number of methods, and mean costs. `runs` has the runs
    of each method, by seed."""
    by_task = {
        name: {id: [run["scores"][id] for run in scored] for id in scored[0]["scores"]}
        for name, own in runs.items()
        if (scored := [run for run in own if not run["failed"]])
    }
    base = by_task.get(baseline, {})
    claim_of = claims({n: [(own[id], base[id]) for id in base] for n, own in by_task.items() if n != baseline and base})
    titles = (
        "method", "score (95%)", f"less {baseline} (95%), p", "calls to learn",
        "tokens to learn: prompt (cached), output", "calls a test task", "tokens a test task: prompt (cached), output",
        "seconds of calls: learn, test", "wall",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    values: dict[str, Any] = {}
    for name, own in runs.items():
        row = _row(own, by_task.get(name), claim_of.get(name))
        values[name] = row
        lines.append(_line(name, row))
    return lines, values


def _row(
    runs: Sequence[Mapping[str, Any]], scores: Mapping[str, Sequence[float]] | None, claim: Claim | None
) -> dict[str, Any]:
    counted = [run for run in runs if not run["failed"]] or runs

    def mean(stage: str) -> dict[str, float]:
        return {key: sum(run["costs"][stage][key] for run in counted) / len(counted) for key in asdict(Stage())}

    by_task = list(scores.values()) if scores else []
    return {
        "score": sum(map(sum, by_task)) / sum(map(len, by_task)) if by_task else None,
        "ci95": list(method_ci95(by_task)) if by_task else None,
        "tests": len(by_task),
        "claim": asdict(claim) if claim else None,
        "learning": mean("learning"),
        "testing": mean("testing"),
        "wall": sum(run["wall"] for run in counted) / len(counted),
        "failed": [run["failed"] for run in runs if run["failed"]],
    }


def _line(name: str, row: Mapping[str, Any]) -> str:
    score = f"{percent(row['score'])} ({interval(row['ci95'])})" if row["ci95"] else f"none: {row['failed'][0]}"
    less = UNKNOWN
    if claim := row["claim"]:
        one = claim["difference"]
        less = f"{points(one['effect'])} ({interval(one['ci95'], signed=True)}), {p_value(claim['corrected'])}, "
        less += verdict_label(claim["verdict"])
    learning, testing, n = row["learning"], row["testing"], row["tests"] or 1

    def calls(stage: Mapping[str, float], by: int) -> str:
        lost = [f"{count(stage[key])} {key}" for key in ("failed", "refused") if stage[key]]
        return count(stage["calls"] / by) + (f" ({', '.join(lost)})" if lost else "")

    def tokens(stage: Mapping[str, float], by: int) -> str:
        prompt, cached, output = (count(round(stage[key] / by)) for key in ("prompt", "cached", "output"))
        return f"{prompt} ({cached}), {output}"

    cells = [
        name, score, less, calls(learning, 1), tokens(learning, 1), calls(testing, n),
        tokens(testing, n), f"{seconds(learning['seconds'])}, {seconds(testing['seconds'])}", seconds(row["wall"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def claim_folder(folder: Path, *plan: Any) -> None:
    """Mark a new folder as the folder of a bench with this plan. Raises UsageError if the folder belongs to another
    plan, or has other files."""
    path, name = folder / "plan.json", digest(*plan)
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8"))["plan"] != name:
            raise UsageError(
                "comparison.mismatch", f"{folder} has a bench with other tasks or settings: pass another --out"
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("file.exists", f"{folder} is not empty and has no bench: pass another --out")
    write_atomic(path, json.dumps({"plan": name}) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the methods that are not measured yet, and print the table."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--model", required=True, metavar="URL#NAME", help="an OpenAI-compatible address, and a model")
    reader.add_argument("--train", required=True, type=Path, metavar="FILE", help="tasks as JSON lines")
    reader.add_argument("--test", required=True, type=Path, metavar="FILE", help="tasks as JSON lines")
    reader.add_argument("--instructions", required=True)
    reader.add_argument("--choices", default="", metavar="A,B,C", help="the possible answers, if they are few")
    reader.add_argument("--methods", default=",".join(PEERS), metavar="A,B,C", help="default: all")
    reader.add_argument("--baseline", default="practicum:episodes", metavar="METHOD")
    reader.add_argument("--budget", type=int, default=200, help="calls that each method may make to learn (200)")
    reader.add_argument("--seeds", type=int, default=1)
    reader.add_argument("--minutes", type=float, default=60.0, help="time limit of one run in minutes (60)")
    reader.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "practicum-peers"
    reader.add_argument("--environments", type=Path, default=cache, metavar="FOLDER")
    reader.add_argument("--json", action="store_true", help="print one JSON line last")
    options = reader.parse_args(arguments)
    names = options.methods.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        reader.error(f"no method named {unknown[0]!r}: the methods are {', '.join(PEERS)}")
    before = load_average()
    plan = Plan(
        train=load_tasks(options.train), test=load_tasks(options.test), instructions=options.instructions,
        choices=tuple(filter(None, options.choices.split(","))), model=options.model, budget=options.budget,
        limit=60 * options.minutes,
    )  # fmt: skip
    # The budget may differ between methods: it is stored with each run.
    claim_folder(options.out, asdict(replace(plan, budget=0, limit=0)))
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for seed in range(options.seeds):
            folder = options.out.absolute() / f"{name.replace(':', '-')}-{seed}"
            path = folder / "measured.json"
            if not path.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                python = python_of(PEERS[name].requirements, options.environments)
                run = asyncio.run(measured(plan, PEERS[name], python, seed, folder))
                write_atomic(path, json.dumps(run))
            runs.setdefault(name, []).append(json.loads(path.read_text(encoding="utf-8")))
            outcome = runs[name][-1]["failed"] or percent(fmean(runs[name][-1]["scores"].values()))
            print(f"{name}, seed {seed}: {outcome}", flush=True)
    lines, values = table(runs, options.baseline)
    print("\n".join(["", *lines]))
    print_end("peers", values, [], before, options.json)


if __name__ == "__main__":
    main()
