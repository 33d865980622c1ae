"""Requests a second, latency, CPU time and memory of the proxy, measured from outside.

An upstream answers at once (see `simulated_upstream`). The server under test has one core; no other process uses it.
The upstream and the load, which are two processes, share the other cores. The last message of every request is new.
Servers:

    upstream            no proxy; the upstream runs on the server's core
    practicum           a space with many entries; each request looks some of them up
    practicum, empty    a space without entries
    litellm             with --litellm

The load is closed for throughput and CPU time: 32 connections, and each sends its next request after an answer. It is
open for latency: requests come at random times at half of the target rate (half of the throughput, for a server that
does not reach the target), and the clock runs from the sending to the first byte of the body. Last, one connection
sends one request after the other. Their words are in no entry and in no earlier request, so that no search can use the
cached parts of another. The servers are measured in turn in each of several runs; a value is the median of the runs.

Latencies at half load depend on how long the core keeps its caches. A virtual core may lose them within milliseconds.
So the bench also reads a megabyte at random places, after pauses in which the core is busy and the memory is not read.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from random import Random
from statistics import mean, median
from string import ascii_lowercase
from typing import Any
from urllib.request import ProxyHandler, build_opener

import httptools
import numpy as np
import uvloop
from measure import BenchError, OnResult, Target, arguments, load_average, print_end, print_table, rounded
from simulated_upstream import CHUNKS, SCRIPT, TEXT, answer

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.subprocesses import environment, python_command
from practicum.session.records import create_seed
from practicum.testing import ServerOptions, pseudo_words
from practicum.testing import serve as serve_upstream

UPSTREAM, PRACTICUM, EMPTY, LITELLM = "upstream", "practicum", "practicum, empty", "litellm"
TARGETS = {"JSON": 500.0, "stream": 350.0}
"""Kind of requests → target: requests a second of `PRACTICUM` on one core."""
MORE_P50, MORE_P99, UNCHANGED = 3.0, 10.0, 0.95
"""Targets: milliseconds that the proxy adds, and the least share of a prompt that the next prompt begins with."""
CONNECTIONS, SESSIONS, TURNS = 32, 8, 10
"""Connections of the closed load, sessions of each, and turns of the session whose prompts are compared."""
VOCABULARY, NEW_WORDS = 5_000, 25
"""Number of words in the vocabulary of the entries, and of words in a message that no entry has."""
PAUSES = (0, 1, 5, 10, 50)
"""Milliseconds between two readings of the same memory."""
_READY_SECONDS = 180.0
_WARM_SECONDS = 1.0
_ALONE_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """Address of a server: its upstream, folder, space and port, and the run that its space starts from."""

    upstream: str
    store: Path
    space: str
    port: int
    context: Path | None = None


def practicum_command(place: Place) -> list[str]:
    """Return the command that starts the proxy."""
    flags = {"upstream": f"{place.upstream}#sim", "space": place.space, "method": "unified"}
    flags |= {"port": place.port} | ({"context": place.context} if place.context else {})
    options = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    return python_command("practicum.cli.app", "serve", str(place.store), *options)


@dataclass(frozen=True, kw_only=True)
class ServePlan:
    """Plan of the measurements. `litellm` is the Python that has litellm; `command` returns the proxy's command."""

    runs: int = 3
    seconds: float = 5.0
    entries: int = 20_000
    litellm: Path | None = None
    command: Callable[[Place], list[str]] = practicum_command


@dataclass(frozen=True, kw_only=True)
class ServeRow:
    """Measurement of one server with one kind of requests.

    `busy` is the share of its core that the server used at `per_second`: far below 1, the load or the machine was the
    limit. `alone_ms` is the CPU time of a request with words that no entry has, if one connection sends one request at
    a time. `p50_ms` and `p99_ms` are times to the first byte at `rate` requests a second; `over_p50_ms` and
    `over_p99_ms` are their differences to the bare upstream. `late` is the share of all requests that the proxy sent on
    unchanged, because the view was not ready in time. `mb` is resident memory.
    """

    server: str
    kind: str
    per_second: float
    cpu_ms: float
    alone_ms: float
    busy: float
    rate: float
    p50_ms: float
    p99_ms: float
    over_p50_ms: float
    over_p99_ms: float
    late: float
    mb: float


@dataclass(frozen=True, kw_only=True)
class ServeResult:
    """All measurements.

    `prefix` has a share for each turn after the first: the share of the previous prompt, in characters, that is
    unchanged at the front of the turn's prompt. `megabyte_us` maps the pause between two readings (ms) to the time to
    read a megabyte (us).
    """

    rows: Sequence[ServeRow]
    prefix: Sequence[float]
    megabyte_us: Mapping[int, float]

    def targets(self) -> list[Target]:
        """Return the targets, with the values of the proxy that looks entries up."""
        targets = []
        for row in (row for row in self.rows if row.server == PRACTICUM):
            late, at = f"{row.late:.1%} went on unchanged", f"at {row.rate:.0f} requests/s"
            more = f"{row.kind}: more ms to the first byte"
            targets += [
                Target(
                    name=f"{row.kind}: requests/s",
                    value=row.per_second,
                    bound=TARGETS[row.kind],
                    at_least=True,
                    note=late,
                ),
                Target(name=f"{more}, p50", value=row.over_p50_ms, bound=MORE_P50, note=at),
                Target(name=f"{more}, p99", value=row.over_p99_ms, bound=MORE_P99, note=at),
            ]
        targets.append(
            Target(name="prompt unchanged at the front", value=min(self.prefix), bound=UNCHANGED, at_least=True)
        )
        return targets

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": [rounded(asdict(row)) for row in self.rows],
            "prefix": rounded({"mean": mean(self.prefix), "lowest": min(self.prefix)}),
            "megabyte_us": {str(pause): round(us, 1) for pause, us in self.megabyte_us.items()},
            "targets": [target.as_json() for target in self.targets()],
        }


def serve(plan: ServePlan, report: OnResult = lambda line: None) -> ServeResult:
    """Make all measurements of the plan. Raises BenchError without a second core, and if a server fails."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        raise BenchError("bench serve needs Linux and two cores: one for the server, one for the load")
    with tempfile.TemporaryDirectory(prefix="practicum-serve-") as name, _affinity(set(cores[1:])):
        bench = _Bench(plan, Path(name), cores[0], set(cores[1:]), report)
        rows = bench.rows()
        prefix = uvloop.run(bench.prefix())
        report(f"prefix: {mean(prefix):.1%} unchanged")
        with _affinity({cores[0]}):
            megabyte = {pause: _megabyte_us(pause) for pause in PAUSES}
        return ServeResult(rows=rows, prefix=prefix, megabyte_us=megabyte)


def _megabyte_us(pause: int) -> float:
    """Return the median time to read a megabyte at random places (us) after a pause (ms)."""
    lines, times = 2**14, list[float]()
    memory, out = np.ones(8 * lines), np.empty(lines)
    places = 8 * np.random.default_rng(0).permutation(lines)
    for _ in range(30):
        end = time.perf_counter() + pause / 1000
        while time.perf_counter() < end:
            pass
        began = time.perf_counter()
        np.take(memory, places, out=out, mode="clip")
        times.append(1e6 * (time.perf_counter() - began))
    return median(times)


@dataclass(frozen=True)
class _Server:
    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def cpu(self) -> float:
        """CPU time of all threads of the server (s)."""
        # The second field is a name in parentheses, which may contain spaces.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def late(self) -> int:
        """Return the number of requests that the server sent on unchanged. Only the proxy reports it; others: 0."""
        if self.name in (UPSTREAM, LITELLM):
            return 0
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{self.port}/health") as response:
            return int(json.load(response)["counts"].get("unchanged_requests", 0))

    @property
    def mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True)
class _Bench:
    plan: ServePlan
    folder: Path
    core: int
    others: set[int]
    report: OnResult

    def rows(self) -> list[ServeRow]:
        with ExitStack() as stack:
            bare, url = self._upstream(stack)
            seed, servers = self.folder / "seed", [bare]
            make_seed(seed, self.plan.entries)
            for name, context in ((PRACTICUM, seed), (EMPTY, None)):
                place = Place(url, self.folder / name, "bench", _free_port(), context)
                servers.append(self._practicum(stack, name, place))
            if self.plan.litellm:
                place = Place(url, self.folder, "", _free_port())
                command = _litellm_command(place, self.plan.litellm)
                servers.append(self._start(stack, LITELLM, command, place.port, "/health/liveliness"))
            return uvloop.run(self._measure(servers))

    async def _measure(self, servers: Sequence[_Server]) -> list[ServeRow]:
        by_server: dict[tuple[str, str], list[ServeRow]] = {}
        for run in range(self.plan.runs):
            for kind in TARGETS:
                traffic, base = Traffic(kind, seed=run), None
                for server in servers:
                    if server.name == UPSTREAM:
                        os.sched_setaffinity(server.process.pid, {self.core})
                    if run == 0:
                        await closed_load(server.port, traffic, _WARM_SECONDS)
                    late, began, cpu = server.late(), time.perf_counter(), server.cpu
                    count = await closed_load(server.port, traffic, self.plan.seconds)
                    wall, cpu = time.perf_counter() - began, server.cpu - cpu
                    rate = min(TARGETS[kind], count / wall) / 2
                    p50, p99 = await _quantiles(server.port, traffic, rate, self.plan.seconds)
                    before = server.cpu
                    alone = await closed_load(server.port, Traffic(kind, run, new_words=True), _ALONE_SECONDS, 1)
                    alone_ms = 1000 * (server.cpu - before) / alone
                    if server.name == UPSTREAM:
                        os.sched_setaffinity(server.process.pid, self.others)
                    base = base or (p50, p99)
                    row = ServeRow(
                        server=server.name, kind=kind, per_second=count / wall, cpu_ms=1000 * cpu / count,
                        alone_ms=alone_ms, busy=cpu / wall, rate=rate, p50_ms=p50, p99_ms=p99,
                        over_p50_ms=p50 - base[0], over_p99_ms=p99 - base[1], mb=server.mb,
                        late=(server.late() - late) / (count + rate * self.plan.seconds),
                    )  # fmt: skip
                    by_server.setdefault((server.name, kind), []).append(row)
                    title = f"run {run + 1}, {server.name}, {kind}"
                    self.report(f"{title}: {row.per_second:.0f} requests/s, p50 {p50:.2f} ms")
        return [_median_row(rows) for rows in by_server.values()]

    async def prefix(self) -> list[float]:
        """Return the unchanged shares of the prompts of a session that grows by an answer and a question a turn."""
        asked, stack = list[str](), ExitStack()
        async with serve_upstream(ServerOptions(responder=answer)) as running:
            try:
                place = Place(running.url, self.folder / PRACTICUM, "bench", _free_port())
                # Threads start and stop the server, because it may call the upstream, which runs in this event loop.
                await asyncio.to_thread(self._practicum, stack, PRACTICUM, place)
                traffic, connection = Traffic("JSON", seed=-1), await _connect(place.port)
                turns = traffic.opening()
                for _ in range(TURNS):
                    asked.append(traffic.message())
                    turns.append({"role": "user", "content": asked[-1]})
                    await connection.ask(_request({"model": "sim", "messages": turns}, "prefix"), b"}")
                    turns.append({"role": "assistant", "content": TEXT})
            finally:
                await asyncio.to_thread(stack.close)
        # The server may also send other requests to the upstream, but only later.
        seen = [_prompt(r.json()) for r in running.requests if r.path == "/v1/chat/completions"]
        prompts = [next(prompt for prompt in seen if text in prompt) for text in asked]
        return [_unchanged(before, after) for before, after in pairwise(prompts)]

    def _upstream(self, stack: ExitStack) -> tuple[_Server, str]:
        port = _free_port()
        command = python_command(SCRIPT, f"--port={port}", f"--chunks={CHUNKS}")
        server = self._start(stack, UPSTREAM, command, port, "/v1/models", self.others)
        return server, f"http://127.0.0.1:{port}/v1"

    def _practicum(self, stack: ExitStack, name: str, place: Place) -> _Server:
        return self._start(stack, name, self.plan.command(place), place.port, "/health")

    def _start(
        self, stack: ExitStack, name: str, command: Sequence[str], port: int, health: str, cores: set[int] | None = None
    ) -> _Server:
        """Start a server and wait until it answers `health`. It runs on the server's core unless `cores` are passed."""
        log = self.folder / f"{name}.log"
        # A process and all its threads inherit the cores of the thread that starts it.
        with log.open("wb") as output, _affinity(cores or {self.core}):
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment())
        stack.callback(_stop, process)
        get, end = build_opener(ProxyHandler({})).open, time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError), get(f"http://127.0.0.1:{port}{health}", timeout=5):
                return _Server(name, port, process)
            time.sleep(0.1)
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise BenchError(f"{name} did not start: {last[0]}")


class Traffic:
    """Requests of one kind, in sessions with a system message and three earlier turns each. The words of the last
    message are from the vocabulary of the entries, or of random letters with `new_words`."""

    def __init__(self, kind: str, seed: int, *, new_words: bool = False) -> None:
        self._name = f"{kind}-{seed}{'-new' if new_words else ''}"
        self._rng, self._words, self._new_words = Random(self._name), vocabulary(), new_words
        self._more = {"stream": True} if kind == "stream" else {}
        self._end = b"[DONE]\n\n" if kind == "stream" else b"}"
        self._sessions = [self.opening() for _ in range(CONNECTIONS * SESSIONS)]

    def message(self, chars: int = 200) -> str:
        return " ".join(self._rng.choices(self._words, k=chars // 8))[:chars]

    def opening(self) -> list[dict[str, str]]:
        roles = ("user", "assistant") * 3
        return [
            {"role": "system", "content": self.message(400)},
            *({"role": role, "content": self.message()} for role in roles),
        ]

    def request(self, session: int) -> tuple[bytes, bytes]:
        """Return a request with a new last message, and the bytes that its answer ends with."""
        session %= len(self._sessions)
        new = ("".join(self._rng.choices(ascii_lowercase, k=7)) for _ in range(NEW_WORDS))
        last = " ".join(new) if self._new_words else self.message()
        turns = [*self._sessions[session], {"role": "user", "content": last}]
        body = {"model": "sim", "messages": turns, **self._more}
        return _request(body, f"{self._name}-{session}"), self._end


class _Connection(asyncio.Protocol):
    """Connection of HTTP/1.1 that stays open. It needs a tenth of the CPU of a client library, whose CPU would limit
    the measurement."""

    def __init__(self) -> None:
        self.transport: Any = None
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    async def ask(self, request: bytes, end: bytes) -> float:
        """Send a request and wait for its answer. Returns the seconds until the first byte of the body. Raises
        BenchError unless the answer's status is 200 and the answer ends with `end`."""
        self._answered = asyncio.get_running_loop().create_future()
        self._first, self._tail, self._sent = 0.0, b"", time.perf_counter()
        self.transport.write(request)
        await self._answered
        if self._parser.get_status_code() != 200 or not self._tail.endswith(end):
            tail = self._tail.decode(errors="replace")
            raise BenchError(f"a request was answered with status {self._parser.get_status_code()}: ...{tail}")
        return self._first - self._sent

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._first = self._first or time.perf_counter()
        self._tail = (self._tail + body)[-200:]

    def on_message_complete(self) -> None:
        if not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        answered = getattr(self, "_answered", None)
        if answered and not answered.done():
            answered.set_exception(BenchError("the server closed a connection before its answer was complete"))


async def _connect(port: int) -> _Connection:
    _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
    return connection


async def closed_load(port: int, traffic: Traffic, seconds: float, connections: int = CONNECTIONS) -> int:
    """Send from a number of connections, on each as soon as its last answer is complete. Returns the answers' count."""
    end = time.perf_counter() + seconds

    async def send(number: int) -> int:
        connection, count = await _connect(port), 0
        while time.perf_counter() < end:
            await connection.ask(*traffic.request(number * SESSIONS + count % SESSIONS))
            count += 1
        connection.transport.abort()
        return count

    return sum(await asyncio.gather(*(send(number) for number in range(connections))))


async def open_load(port: int, traffic: Traffic, rate: float, seconds: float) -> list[float]:
    """Send at random times, without waiting for answers. Returns the seconds to the first byte of each answer."""
    idle = [await _connect(port) for _ in range(CONNECTIONS)]
    firsts, asked = list[float](), list[asyncio.Task[None]]()

    async def send(number: int) -> None:
        connection = idle.pop() if idle else await _connect(port)
        firsts.append(await connection.ask(*traffic.request(number)))
        idle.append(connection)

    rng, at, began = Random(0), 0.0, time.perf_counter()
    while (at := at + rng.expovariate(rate)) < seconds:
        await asyncio.sleep(began + at - time.perf_counter())
        asked.append(asyncio.create_task(send(len(asked))))
    await asyncio.gather(*asked)
    for connection in idle:
        connection.transport.abort()
    return firsts


async def _quantiles(port: int, traffic: Traffic, rate: float, seconds: float) -> tuple[float, float]:
    """Return the median and the 99th percentile of the time to the first byte (ms)."""
    firsts = sorted(await open_load(port, traffic, rate, seconds))
    return 1000 * median(firsts), 1000 * firsts[int(0.99 * len(firsts))]


def _request(body: Any, session: str) -> bytes:
    raw = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer bench\r\nx-practicum-session: {session}\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


def _prompt(body: Any) -> str:
    contents = [turn["content"] or "" for turn in body["messages"]]
    return "".join(c if isinstance(c, str) else "".join(part.get("text", "") for part in c) for c in contents)


def _unchanged(before: str, after: str) -> float:
    """Return the share of `before`, in characters, that `after` begins with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))) / len(before)


@cache
def vocabulary() -> list[str]:
    rng, words = Random(0), dict[str, None]()
    while len(words) < VOCABULARY:
        words["".join(pseudo_words(rng).split()[:2])] = None
    return list(words)


def make_seed(folder: Path, entries: int) -> None:
    """Create a run with entries of 20 words. One entry in 500 is a rule."""
    rng, words = Random(0), vocabulary()
    adds = tuple(
        Add(section="memories" if number % 500 else "rules", text=" ".join(rng.choices(words, k=20)))
        for number in range(entries)
    )
    create_seed(folder, Context().apply(Delta(adds)).context)


def _litellm_command(place: Place, python: Path) -> list[str]:
    params = {"model": "openai/sim", "api_base": place.upstream, "api_key": "bench"}
    config = place.store / "litellm.json"  # JSON is valid YAML
    models = [{"model_name": "sim", "litellm_params": params}]
    # Without a key, litellm does less work.
    general = {"dangerously_permit_weak_or_unset_master_key": True}
    config.write_text(json.dumps({"model_list": models, "general_settings": general}))
    return [str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1", "--port", str(place.port)]


def _median_row(rows: Sequence[ServeRow]) -> ServeRow:
    numbers = {
        name: median(getattr(row, name) for row in rows)
        for name, value in asdict(rows[0]).items()
        if isinstance(value, float)
    }
    return replace(rows[0], **numbers)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _affinity(cores: set[int]) -> Iterator[None]:
    """Keep this thread, and the processes it starts, on these cores while the block runs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def show(result: ServeResult) -> None:
    """Print the tables."""
    lines = []
    for row in result.rows:
        times = (f"{ms:.2f}" for ms in (row.p50_ms, row.p99_ms, row.over_p50_ms, row.over_p99_ms))
        cpu = (f"{row.busy:.0%}", f"{row.cpu_ms:.2f}", f"{row.alone_ms:.2f}")
        counts = (f"{row.per_second:,.0f}", *cpu, f"{row.rate:.0f}")
        lines.append((row.server, row.kind, *counts, *times, f"{row.late:.1%}", f"{row.mb:.0f}"))
    columns = ("server", "kind", "requests/s", "busy", "CPU ms", "single", "at /s")
    latencies = ("p50 ms", "p99 ms", "more p50", "more p99")
    print_table((*columns, *latencies, "late", "MB"), lines)
    print(
        "busy: share of the server's core that it used at requests/s (far below 100%: the load or the machine was the\n"
        "limit); single: CPU ms a request, sent one at a time, with words that no entry has; p50, p99: time to the\n"
        "first byte at the rate 'at /s'; more: difference to the upstream without a proxy; late: requests that were\n"
        "sent on unchanged, because the view was not ready in time"
    )
    cold = ", ".join(f"{us:.0f} us after {pause} ms" for pause, us in result.megabyte_us.items())
    print(f"a megabyte is read in {cold}")
    print(f"prompt unchanged at the front: {mean(result.prefix):.1%} on average, {min(result.prefix):.1%} at least")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs; each number is a median over the runs (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each load (5)")
    parser.add_argument("--entries", type=int, default=20_000, help="entries of the space (20000)")
    parser.add_argument("--litellm", type=Path, help="the Python of an environment with litellm[proxy], to measure it")
    options, load = parser.parse_args(), load_average()
    plan = ServePlan(runs=options.runs, seconds=options.seconds, entries=options.entries, litellm=options.litellm)
    try:
        result = serve(plan, print)
    except BenchError as error:
        sys.exit(str(error))
    show(result)
    print_end("serve", {"runs": options.runs, **result.as_json()}, result.targets(), load, options.json)


if __name__ == "__main__":
    main()
