"""Learning from many stored traces: memory, and the time to the first model call.

For each size and kind of file, the bench writes the file if it does not exist. Then a new process learns from it for a
few steps with a scripted model. A trace is a chat of about 3 kB with a tool call.

    first call   seconds from the start of `learn` to the first call: reading, checking and storing every trace
    resumed      the same for `resume`, which reads the traces from the run
    grown        growth of the peak memory (resident, MB) since before `learn`
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from measure import Target, load_average, print_end

GROWN, STEPS, BATCH = 500, 3, 40
"""Target: MB for a million traces. Number of steps of the run, and of traces in a step."""

ONE_GROUP = "one-group.parquet"
"""Kind of a table whose rows are all in one group."""

WORDS = [a + b + c for a in ("ka", "lo", "mi", "ter", "su") for b in ("ran", "vel", "dor", "pin") for c in "aeioub"]


def traces(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(count)

    def words(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=most))

    for number in range(count):
        call = {
            "id": "c",
            "type": "function",
            "function": {"name": "look_up", "arguments": json.dumps({"q": words(8)})},
        }
        yield {
            "id": f"trace-{number}",
            "messages": [
                {"role": "system", "content": words(20)},
                {"role": "user", "content": f"Case {number}: {words(120)}"},
                {"role": "assistant", "content": words(30), "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": words(180)},
                {"role": "assistant", "content": words(80)},
            ],
        }


def write(path: Path, count: int) -> None:
    part = path.with_suffix(".part")
    if path.suffix == ".jsonl":
        with part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(trace) + "\n" for trace in traces(count))
    else:
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.Table.from_pylist(list(traces(1))).schema
        rows, sizes = traces(count), (min(10_000, count - start) for start in range(0, count, 10_000))
        chunks = (pyarrow.Table.from_pylist([*islice(rows, size)], schema) for size in sizes)
        # Each table is written as one group of rows.
        tables = [pyarrow.concat_tables(chunks)] if ONE_GROUP in path.name else chunks
        with parquet.ParquetWriter(part, schema) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=count)
    part.rename(path)


def largest() -> float:
    """Return the peak memory of this process (resident, MB)."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(path: Path, run: Path, resumed: bool) -> dict[str, float]:
    """Learn in this process, or resume the run with twice the calls, and return the measurements."""
    import practicum
    from practicum.models.scripted import Call, ScriptedClient
    from practicum.session.components import Parts

    first: list[float] = []

    def respond(call: Call) -> str:
        first.append(time.monotonic())
        if call.role == "reflector":
            answer = {"kind": "rule", "correction": "c", "insight": "Look it up first.", "diagnosis": "d", "tags": []}
        else:
            answer = {"decisions": []}
        return json.dumps(answer)

    parts = Parts(clients={"agent": ScriptedClient(respond)})
    before, began = largest(), time.monotonic()
    calls = STEPS * (BATCH + 1)
    if resumed:
        work = practicum.resume(run, parts=parts, max_calls=2 * calls)
    else:
        work = practicum.learn(
            practicum.TraceStream(path), method="naive", settings={"batch": BATCH}, profile="small", parts=parts,
            out=run, max_calls=calls,
        )  # fmt: skip
    result = practicum.run_sync(work)
    assert result.steps, "nothing was learned"
    return {"first call": first[0] - began, "grown": largest() - before, "before": before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the files and runs; a million traces take about 8 GB")
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=["jsonl", "parquet", ONE_GROUP])
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "RUN"), help=argparse.SUPPRESS)
    parser.add_argument("--resumed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Path(options.one[0]), Path(options.one[1]), options.resumed)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    targets, results, load = list[Target](), list[dict[str, Any]](), load_average()
    print(f"{'file':>17} {'traces':>9} {'first call':>11} {'a trace':>8} {'grown':>8} {'resumed':>8} {'grown':>8}")
    for kind in options.kinds:
        for count in options.traces:
            path, run = options.folder / f"{count}.{kind}", options.folder / f"run-{count}-{kind}-{time.time_ns()}"
            if not path.exists():
                write(path, count)
            one = [sys.executable, __file__, str(options.folder), "--one", str(path), str(run)]
            new, old = (
                json.loads(subprocess.run([*one, *more], check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
                for more in ([], ["--resumed"])
            )
            print(
                f"{kind:>17} {count:>9,} {new['first call']:>9.1f} s {1e6 * new['first call'] / count:>5.0f} µs "
                f"{new['grown']:>5.0f} MB {old['first call']:>6.1f} s {old['grown']:>5.0f} MB"
            )
            name = f"MB grown with {count:,} traces of {kind}"
            targets.append(Target(name=name, value=max(new["grown"], old["grown"]), bound=GROWN))
            results.append({"kind": kind, "traces": count, "learn": new, "resume": old})
    print_end("traces", results, targets, load, options.json)


if __name__ == "__main__":
    main()
