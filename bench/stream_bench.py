"""A stream of tasks through `practicum serve`: success over time, with and without reported outcomes.

The tasks are asked one after the other, as a user's agent would, each in a new session. With outcomes, the bench
reports the score of each answer, and the right answer after a wrong one. The service runs in a new process, with its
defaults. The bench prints one JSON line, and writes a picture: the share of right answers among the last 20.

    python bench/stream_bench.py TASKS.jsonl ... --upstream http://host:port/v1#NAME --system TEXT --out PICTURE.png
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from practicum.analysis.png import BLUE, GREY, new_figure, plain, write_png
from practicum.core.intervals import share_ci95
from practicum.core.subprocesses import environment, python_command
from practicum.tasks.load import load_tasks
from practicum.tasks.scoring.rules import normalise

LAST = 20
"""Number of answers whose share of right answers is a point of the picture."""


@contextmanager
def service(upstream: str, profile: str, options: Sequence[str]) -> Iterator[str]:
    """Start a service on a new store, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="practicum-stream-") as store:
        arguments = ("serve", "--upstream", upstream, store, "--port", "0", "--profile", profile, *options)
        command = python_command("practicum.cli.app", *arguments)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            try:
                ready = process.stdout.readline() if process.stdout else ""
                if not (match := re.search(r"(http://\S+)/v1:", ready)):
                    raise SystemExit("the service did not start")
                yield match[1]
            finally:
                process.terminate()


def post(url: str, body: Any, **headers: str) -> tuple[Any, Any]:
    """Send a request, and return the answer and its headers."""
    opener = build_opener(ProxyHandler({}))  # ignores the environment's proxy, as the service is local
    with opener.open(Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response), response.headers


def run(url: str, tasks: Sequence[Any], system: str, learns: bool) -> list[bool]:
    """Ask every task, and report outcomes if `learns`. Returns whether each answer was right."""
    right = []
    for number, task in enumerate(tasks):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": task.input}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 16}
        answer, headers = post(f"{url}/v1/chat/completions", body, **{"x-practicum-session": str(number)})
        text = answer["choices"][0]["message"]["content"] or ""
        right.append(normalise(text) == normalise(task.target))
        if learns:
            outcome = {"score": 1.0} if right[-1] else {"score": 0.0, "target": task.target}
            post(f"{url}/v1/feedback", {"interaction": headers["x-practicum-interaction"], **outcome})
        print(f"{number + 1} of {len(tasks)}: {sum(right)} right", file=sys.stderr, flush=True)
    return right


def picture(series: dict[str, list[bool]], path: Path) -> None:
    figure = new_figure(8.0, 4.2)
    axes = figure.add_subplot()
    for (name, right), colour in zip(series.items(), (BLUE, GREY), strict=False):
        means = [100 * sum(right[n - LAST : n]) / LAST for n in range(LAST, len(right) + 1)]
        axes.plot(range(LAST, len(right) + 1), means, color=colour, linewidth=2, label=name)
    axes.set_xlabel("requests")
    axes.set_ylabel(f"right answers of the last {LAST} (%)")
    axes.set_ylim(0, 102)
    axes.legend(loc="center right", frameon=False)
    plain(axes, "both", labelsize=10)
    write_png(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="TASKS")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--system", required=True)
    parser.add_argument("--profile", default="small")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--serve", default="", metavar="OPTIONS", help="additional options of practicum serve")
    options = parser.parse_args()
    tasks = [task for file in options.files for task in load_tasks(file)]
    Random(options.seed).shuffle(tasks)
    tasks = tasks[: options.count]
    series, seconds, began = dict[str, list[bool]](), {}, time.monotonic()
    for name, learns in (("outcomes sent back", True), ("no learning", False)):
        with service(options.upstream, options.profile, shlex.split(options.serve)) as url:
            series[name] = run(url, tasks, options.system, learns)
        seconds[name], began = round(time.monotonic() - began), time.monotonic()
    picture(series, options.out)
    result = {}
    for name, right in series.items():
        half = right[len(right) // 2 :]
        low, high = share_ci95(sum(half), len(half))
        result[name] = {
            "right": sum(right) / len(right), "second half": sum(half) / len(half), "interval": [low, high],
            "seconds": seconds[name], "answers": "".join("01"[each] for each in right),
        }  # fmt: skip
    print(json.dumps({"tasks": len(tasks), "seed": options.seed, **result}))


if __name__ == "__main__":
    main()
