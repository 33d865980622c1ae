"""Kills and faults under load: does the store have all writes that `practicum serve` acknowledged?

A real service runs in front of a simulated upstream. Clients ask models, report scores and right answers, store notes,
review them, create and delete spaces and keys, and erase users, while the service learns. At random moments a fault
strikes. Then the bench compares the store with the answers that the clients got: an acknowledged write must be in the
store, a refused write must not, and a write without an answer may be in it, but only as a whole. Violations are printed
and counted; the target is 0.

    python bench/kills_bench.py --store folder --fault process --times 30 --seed 0

After an erasure the learner continues with other outcomes and other versions, so it repeats some of its calls. With
--no-erasures no call may be paid twice, unless a kill interrupted it.

Faults: `process` kills the service (one kill in four during the start), `size` stops all files from growing
(RLIMIT_FSIZE), `immutable` makes all files of a folder unchangeable (chattr +i), `readonly` makes its file system
read-only (ext4 in a loop device, mount -o remount,abort). With PostgreSQL: `process` (with --nodes 2 the other node
continues), `database` kills the database server, `readonly` sets default_transaction_read_only, `rights` revokes the
role's rights, `full` fills the file system of the tables. `immutable`, `readonly` of a folder and `full` need root.

It uses the PostgreSQL server of the tests (tests/support/postgres.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import psycopg
from aiohttp import web
from measure import Target, load_average, print_end
from simulated_upstream import TEXT

from practicum.core.edits import Add
from practicum.core.subprocesses import environment, python_command
from practicum.store.versions import EDITS
from practicum.testing import ServerOptions, fill, serve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from postgres import Server as PostgresServer
from postgres import server_alone

KEY = "the-operators-key-of-the-campaign"
CLIENTS = 6
BOUND = 120.0
"""Time limit for the first answer of a service after its start (s)."""

ENOUGH = 20
"""Minimum number of requests that must be answered during a fault."""

SYSTEM = {"role": "system", "content": "You answer for the campaign."}
"""First message of the clients' requests, which distinguishes them from the learner's requests."""

TABLES = ("interactions", "outcomes", "corrections", "sessions")
"""Tables of the service with texts of users."""

Fact = tuple[str, ...]
"""Address of a fact in the store: ("note", space, text), ("score", space, interaction), ("target", space, interaction),
("key", name), ("space", name) or ("user", name)."""

PRESENT, ABSENT = "there", ""
"""States of a fact. A note has other states, and a score or a target has its value."""


# The ledger


@dataclass
class Ledger:
    """The possible states of each fact, by the answers of the service. A fact that is not in `possible` is absent."""

    possible: dict[Fact, set[str]] = field(default_factory=dict)
    certain: dict[Fact, set[Fact]] = field(default_factory=dict)
    """A space or user → the facts that were certainly in it before its last removal."""
    acknowledged: int = 0
    refused: int = 0
    unsure: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Number of acknowledged writes, by kind."""

    def violated(self, law: str, detail: object) -> None:
        self.violations[law] += 1
        print(f"  VIOLATION {law}: {detail}", flush=True)

    def settle(self, actual: dict[Fact, str]) -> None:
        """Compare the facts with the store, and record the store's states as certain."""
        for fact, possible in self.possible.items():
            state = actual.get(fact, ABSENT)
            if fact[0] == "user":
                continue
            if state not in possible:
                law = "lost" if len(possible) == 1 and state == ABSENT else "wrong state"
                self.violated(law, f"{fact} is {state or 'absent'}, and must be one of {sorted(possible)}")
            self.possible[fact] = {state}
        for fact in actual.keys() - self.possible.keys():
            self.violated("unknown", fact)
            self.possible[fact] = {actual[fact]}


# The store


class FolderStore:
    """A store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        self.url = str(self.folder)

    def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.folder / 'practicum.sqlite'}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def damaged(self) -> list[Path]:
        """Return the databases that are not intact."""
        damaged = []
        for path in self.folder.rglob("*.sqlite"):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                try:
                    intact = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                except sqlite3.DatabaseError:
                    intact = False
            damaged += [] if intact else [path]
        return damaged

    def occurrences(self, marks: set[str]) -> Iterator[str]:
        """Yield each mark that is in a file, with the name of the file."""
        for path in filter(Path.is_file, self.folder.rglob("*")):
            with suppress(FileNotFoundError):
                raw = path.read_bytes()
                yield from (f"{mark} in {path.name}" for mark in marks if mark.encode() in raw)


class PostgresStore:
    """A store in a PostgreSQL database with its own role."""

    def __init__(self, server: PostgresServer, small: Path | None) -> None:
        self.server = server
        self.admin = server.url.render_as_string(hide_password=False)
        for statement in (
            "CREATE ROLE campaign LOGIN PASSWORD 'campaign'",
            *([f"CREATE TABLESPACE small OWNER campaign LOCATION '{small}'"] if small else []),
            f"CREATE DATABASE campaign OWNER campaign {'TABLESPACE small' if small else ''}",
        ):
            self.execute(statement)
        self.url = server.url.set(username="campaign", password="campaign", database="campaign").render_as_string(
            hide_password=False
        )

    def execute(self, *statements: str, database: str = "postgres") -> None:
        url = self.server.url.set(database=database).render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    def rows(self, query: str) -> list[Any]:
        url = self.server.url.set(database="campaign").render_as_string(hide_password=False)
        with psycopg.connect(url, options="-c search_path=practicum") as db:
            return db.execute(query).fetchall()

    def damaged(self) -> list[Path]:
        return []

    def occurrences(self, marks: set[str]) -> Iterator[str]:
        for table in TABLES:
            texts = "\n".join(text for (text,) in self.rows(f"SELECT t::text FROM {table} AS t"))
            yield from (f"{mark} in {table}" for mark in marks if mark in texts)


def facts(store: FolderStore | PostgresStore) -> dict[Fact, str]:
    """Return the state of each fact in the store."""
    states: dict[Fact, str] = {}
    names = dict(store.rows("SELECT space, name FROM spaces WHERE state = 'live'"))
    notes: dict[tuple[str, str], Fact] = {}
    for id, applied in store.rows("SELECT space, applied FROM corrections ORDER BY space, version"):
        for done in EDITS.validate_json(applied):
            if isinstance(done.edit, Add):
                notes[id, done.id] = "note", names.get(id, f"no space {id}"), done.edit.text
            states[notes[id, done.id]] = "live" if isinstance(done.edit, Add) else "rejected"
    for id, state, data in store.rows("SELECT space, state, data FROM reviews WHERE id LIKE 'c%'"):
        fact = "note", names.get(id, f"no space {id}"), json.loads(data)["edits"][0]["text"]
        states.setdefault(fact, {"pending": "waiting"}.get(state, state))
    states = {fact: state for fact, state in states.items() if fact[2].startswith("Lost ")}
    for space_id, id, data in store.rows("SELECT space, id, data FROM outcomes"):
        outcome, space = json.loads(data), names.get(space_id, f"no space {space_id}")
        for name in ("score", "target"):
            if (value := outcome["own"].get(name, outcome["user"].get(name))) is not None:
                states[name, space, id] = str(value)
    states.update({("key", name): PRESENT for (name,) in store.rows("SELECT name FROM keys")})
    return states


# A service as a process


@dataclass
class Node:
    """A service at a port, with its clients. The clients work while `up` is set."""

    port: int
    http: aiohttp.ClientSession
    command: list[str]
    errors: Path
    up: asyncio.Event = field(default_factory=asyncio.Event)
    parked: int = 0
    asked: int = 0
    """Number of answered requests to models."""
    limited: bool = False
    process: subprocess.Popen[bytes] | None = None

    async def send(self, method: str, path: str, body: Any = None, key: str = KEY, **headers: str) -> tuple[int, Any]:
        """Send a request, and return the status of the answer and its JSON. Names of `headers` have _ in place of -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()} | {"authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.http.request(method, url, json=body, headers=named) as response:
            raw = await response.read()
            try:
                answer = json.loads(raw)
            except ValueError:
                raise AssertionError(f"{method} {path}: {response.status} {raw[:300]!r}") from None
            if isinstance(answer, dict) and "x-practicum-interaction" in response.headers:
                answer["interaction"] = response.headers["x-practicum-interaction"]
            return response.status, answer

    def launch(self) -> None:
        # The errors of the service are written outside the store, and stay there after a restart.
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.DEVNULL, stderr=errors, env=environment(), cwd=self.errors.parent
            )

    async def ready(self) -> float | None:
        """Wait for the first answer of the service, and return the seconds. None: it ended, or took too long."""
        began = time.monotonic()
        while time.monotonic() - began < BOUND:
            if self.process is None or self.process.poll() is not None:
                return None
            with suppress(aiohttp.ClientError):
                if (await self.send("GET", "/health"))[0] == 200:
                    return time.monotonic() - began
            await asyncio.sleep(0.02)
        return None

    def kill(self) -> None:
        self.up.clear()
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    @property
    def output(self) -> str:
        return self.errors.read_text(errors="replace").strip()


# Clients


@dataclass
class Client:
    """A client that sends one request after the other, and records the possible states of its writes. No other client
    uses its names."""

    number: int
    node: Node
    ledger: Ledger
    rng: Random
    aim: Callable[[], None]
    """Called when a long operation begins, because a kill during it is a better test."""
    erases: bool = True
    user: str = ""
    created: int = 0
    doing: str = ""
    notes: list[tuple[str, int]] = field(default_factory=list)
    """Notes that are live or wait for review, with their numbers."""
    of_users: dict[str, set[Fact]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def space(self) -> str:
        return f"own{self.number}"

    def word(self) -> str:
        """Return a unique text."""
        self.created += 1
        return f"zq{self.number}x{self.created}w{self.rng.randrange(10**9)}"

    async def work(self) -> None:
        steps = [
            (self.report, 10), (self.note, 5), (self.review, 3), (self.make_space, 1), (self.delete_space, 1),
            (self.make_key, 1), (self.delete_key, 1), (self.erase, int(self.erases)), (self.learn, 1),
        ]  # fmt: skip
        chosen = [step for step, weight in steps for _ in range(weight)]
        while True:
            if not self.node.up.is_set():
                self.node.parked += 1
                await self.node.up.wait()
                self.node.parked -= 1
            try:
                step = self.rng.choice(chosen)
                self.doing = step.__name__
                await step()
            except (aiohttp.ClientError, TimeoutError):
                if self.node.up.is_set():
                    process = self.node.process
                    self.ledger.violated("broken connection", f"{self.number}, {process and process.poll()}")
                    await asyncio.sleep(0.5)

    async def change(
        self, kind: str, changes: dict[Fact, str], method: str, path: str, body: Any, **headers: str
    ) -> Any:
        """Send a write that changes facts. Returns the answer if the write was acknowledged, or None."""
        before = {fact: self.ledger.possible.get(fact, {ABSENT}) for fact in changes}
        for subject in [fact for fact in changes if fact[0] == "space"]:
            # Facts of an earlier space with this name are not in the new space.
            self.ledger.certain.pop(subject, None)
        for subject in [fact for fact, state in changes.items() if fact[0] in ("space", "user") and state == ABSENT]:
            self.ledger.certain[subject] = {fact for fact in changes if ABSENT not in before[fact]} - {subject}
        self.ledger.possible.update({fact: before[fact] | {state} for fact, state in changes.items()})
        try:
            status, answer = await self.node.send(method, path, body, **headers)
        except (aiohttp.ClientError, TimeoutError):
            self.ledger.unsure += 1
            raise
        if status < 300:
            self.ledger.possible.update({fact: {state} for fact, state in changes.items()})
            self.ledger.acknowledged += 1
            self.ledger.kinds[kind] += 1
            return answer
        if "\n" in answer["error"]["message"] or status not in (404, 409, 503, 507):
            self.ledger.violated("wrong refusal", f"{kind}: {status} {answer['error']['message']}")
        self.problems[f"{kind}: {status}"] += 1
        if status in (503, 507):
            self.ledger.refused += 1
            # Real clients wait before they call a service again that cannot write.
            await asyncio.sleep(0.02)
        # A refused write is not in the store, unless it has several transactions: the service finishes it later.
        if status in (404, 409) or (status == 507 and kind not in ("space made", "space deleted", "user erased")):
            self.ledger.possible.update(before)
        return None

    async def ask(self, text: str, **headers: str) -> str:
        """Ask a model. Returns the interaction, or "" if the request was sent on unchanged and is not recorded."""
        body = {"messages": [SYSTEM, {"role": "user", "content": text}]}
        status, answer = await self.node.send("POST", "/v1/chat/completions", body, **headers)
        # The simulated upstream shares a process with the clients, and may close an idle connection when it is busy.
        self.problems["upstream"] += status in (502, 504)
        if status not in (200, 502, 504):
            self.ledger.violated("a request failed", f"{status} {answer}")
        self.node.asked += 1
        return str(answer.get("interaction", ""))

    async def report(self) -> None:
        user = self.user = self.user or self.word()
        headers = {"x_practicum_user": user} if self.rng.random() < 0.5 else {}
        mark = user if headers else self.word()
        interaction = await self.ask(f"Which team of office {self.number} handles {mark} today?", **headers)
        if not interaction:
            return
        name, value = ("score", self.rng.randrange(100) / 100)
        if self.rng.random() < 0.6:
            name, value = "target", f"the {mark} team {self.word()}"
        fact = (name, "default", interaction)
        if headers:
            self.of_users.setdefault(user, set()).add(fact)
        await self.change(
            "feedback", {fact: str(value)}, "POST", "/v1/feedback", {"interaction": interaction, name: value}
        )

    async def note(self) -> None:
        word, own = self.word(), self.rng.random() < 0.5
        space = self.space if self.ledger.possible.get(("space", self.space)) == {PRESENT} and own else "default"
        with_user = self.user and self.rng.random() < 0.4 and space == "default"
        headers = {"x_practicum_user": self.user} if with_user else {}
        text = f"Lost {word} of {self.user if headers else 'nobody'} go to room {self.created}."
        fact = ("note", space, text)
        if headers:
            self.of_users.setdefault(self.user, set()).add(fact)
        body, state = {"text": text, "about": f"lost {word}"}, "waiting" if headers else "live"
        answer = await self.change("note", {fact: state}, "POST", "/v1/notes", body, x_practicum_space=space, **headers)
        if answer and space == "default":
            self.notes.append((text, int(answer["id"][1:])))

    async def review(self) -> None:
        if not self.notes:
            return
        text, number = self.notes.pop(self.rng.randrange(len(self.notes)))
        fact = ("note", "default", text)
        approve = self.ledger.possible.get(fact) == {"waiting"} and self.rng.random() < 0.7
        decision, state = ("approve", "live") if approve else ("reject", "rejected")
        body = {"id": f"c{number}", "decision": decision}
        answer = await self.change("decision", {fact: state}, "POST", "/v1/review", body)
        if answer and approve:
            self.notes.append((text, number))

    async def make_space(self) -> None:
        self.aim()
        await self.change("space made", {("space", self.space): PRESENT}, "POST", "/v1/spaces", {"name": self.space})

    async def delete_space(self) -> None:
        if self.ledger.possible.get(("space", self.space), {ABSENT}) == {ABSENT}:
            return
        inside = [fact for fact in self.ledger.possible if fact[0] in ("note", "key") and fact[1] == self.space]
        removed = dict.fromkeys((("space", self.space), *inside), ABSENT)
        self.aim()
        await self.change("space deleted", removed, "DELETE", "/v1/spaces", {"name": self.space})

    async def make_key(self) -> None:
        name = f"key{self.number}.{self.rng.randrange(4)}"
        if self.ledger.possible.get(("key", name), {ABSENT}) == {ABSENT}:
            body = {"name": name, "roles": ["ask"]}
            await self.change("key made", {("key", name): PRESENT}, "POST", "/v1/keys", body)

    async def delete_key(self) -> None:
        name = f"key{self.number}.{self.rng.randrange(4)}"
        if self.ledger.possible.get(("key", name)) == {PRESENT}:
            await self.change("key deleted", {("key", name): ABSENT}, "DELETE", "/v1/keys", {"name": name})

    async def erase(self) -> None:
        user = self.user
        if not user or not self.of_users.get(user):
            return
        self.user = ""
        removed = dict.fromkeys(self.of_users[user], ABSENT) | {("user", user): ABSENT}
        self.ledger.possible["user", user] = {PRESENT}
        self.aim()
        answer = await self.change("user erased", removed, "DELETE", "/v1/user", {"user": user})
        if answer and answer.get("left"):
            self.ledger.violated("erasure left something", answer)

    async def learn(self) -> None:
        self.aim()
        await self.node.send("POST", "/v1/learn", {})


# The calls of the learner


@dataclass
class Paid:
    """Calls of the learner: digest of the request → the times of its answers."""

    calls: dict[str, list[float]] = field(default_factory=dict)
    kills: list[float] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> str:
        if SYSTEM in body.get("messages", ()):
            return TEXT
        digest = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.calls.setdefault(digest, []).append(time.monotonic())
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return TEXT if schema is None else json.dumps(fill(schema, int(digest[:8], 16)))

    def twice(self) -> int:
        """Return the number of repeated calls whose earlier answer was not in flight when the service was killed."""
        return sum(
            not any(first <= kill <= first + 1.0 for kill in self.kills)
            for times in self.calls.values()
            for first in times[:-1]
        )


# Faults


@dataclass
class Campaign:
    """A store, its services, and their clients."""

    store: FolderStore | PostgresStore
    nodes: list[Node]
    clients: list[Client]
    ledger: Ledger
    rng: Random
    paid: Paid
    alarms: list[dict[str, Any]]
    aimed: asyncio.Event
    starts: list[float] = field(default_factory=list)
    failed_starts: int = 0
    strikes: int = 0
    silent: int = 0
    """Number of strikes without an alarm about the store."""
    looked_for: set[str] = field(default_factory=set)
    work: list[asyncio.Task[None]] = field(default_factory=list)

    async def until(self, reached: Callable[[], object], seconds: float = 60.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not reached():
                    for task in self.work:
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.005)
        except TimeoutError:
            print(f"  timeout; the clients are in the steps {[client.doing for client in self.clients]}", flush=True)
            raise

    async def moment(self) -> None:
        """Wait for a moment to strike: after some writes and, six times of ten, during a long operation."""
        goal = self.ledger.acknowledged + self.rng.randrange(20, 100)
        await self.until(lambda: self.ledger.acknowledged >= goal)
        if self.rng.random() < 0.6:
            self.aimed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await self.aimed.wait()
            await asyncio.sleep(self.rng.uniform(0, 0.3))

    async def rest(self) -> None:
        """Stop the clients, and wait until no client works."""
        for node in self.nodes:
            node.up.clear()
        each = len(self.clients) // len(self.nodes)
        await self.until(lambda: all(node.parked == each for node in self.nodes), 120)

    def kill(self, node: Node) -> None:
        node.kill()
        self.paid.kills.append(time.monotonic())

    async def start(self, node: Node) -> None:
        """Start a service. If it does not start, report a violation, move the store aside and start it again."""
        if self.strikes % 4 == 3 and self.starts:
            node.launch()
            await asyncio.sleep(self.rng.uniform(0, 1.3 * max(self.starts[-3:])))
            self.kill(node)
        node.launch()
        took = await node.ready()
        if took is None:
            self.failed_starts += 1
            self.ledger.violated("failed start", node.output[-300:])
            self.set_store_aside()
            node.launch()
            took = await node.ready()
            assert took is not None, node.output
        self.starts.append(took)

    def set_store_aside(self) -> None:
        """Move the store aside, and clear the records of its facts."""
        assert isinstance(self.store, FolderStore)
        self.store.folder.rename(self.store.folder.with_name(f"failed{self.failed_starts}"))
        self.ledger.possible.clear()
        for client in self.clients:
            client.notes.clear()
            client.of_users.clear()
            client.user = ""

    async def during(self, kind: int | None) -> None:
        """Wait, during a fault, until requests are answered and, unless `kind` is None, a write is refused."""
        goals = [node.asked + ENOUGH for node in self.nodes]
        refused = self.ledger.refused
        await self.until(lambda: all(n.asked >= goal for n, goal in zip(self.nodes, goals, strict=True)), 120)
        if kind is not None:
            await self.until(lambda: self.ledger.refused > refused, 120)

    async def recovered(self) -> None:
        """Wait until writes are acknowledged again."""
        before = self.ledger.acknowledged
        await self.until(lambda: self.ledger.acknowledged >= before + 5, 120)


@asynccontextmanager
async def killed_process(at: Campaign) -> AsyncIterator[None]:
    node = at.rng.choice(at.nodes)
    at.kill(node)
    if len(at.nodes) > 1:
        (other,) = (each for each in at.nodes if each is not node)
        goal = other.asked + ENOUGH
        await at.until(lambda: other.asked >= goal, 120)
    await at.start(node)
    yield


@asynccontextmanager
async def killed_database(at: Campaign) -> AsyncIterator[None]:
    assert isinstance(at.store, PostgresStore)
    if at.rng.random() < 0.5:
        at.store.server.kill()
    else:
        at.store.server._run("pg_ctl", "-D", str(at.store.server._data), "-m", "immediate", "-w", "stop")
    await at.during(503)
    await asyncio.to_thread(at.store.server.start)
    await at.recovered()
    yield


@asynccontextmanager
async def lasting(at: Campaign, begin: Callable[[], Any], end: Callable[[], Any], restart: bool) -> AsyncIterator[None]:
    """Begin a fault, wait for its effects, and end it, with or without a restart of the service."""
    alarms = len(at.alarms)
    await asyncio.to_thread(begin)
    for node in at.nodes:
        node.up.set()
    await at.during(507)
    with suppress(TimeoutError):
        await at.until(lambda: any(one["kind"] == "store" for one in at.alarms[alarms:]), 15)
    at.silent += not any(one["kind"] == "store" for one in at.alarms[alarms:])
    if restart:
        for node in at.nodes:
            at.kill(node)
        await asyncio.to_thread(end)
        for node in at.nodes:
            await at.start(node)
    else:
        await asyncio.to_thread(end)
        await at.recovered()
    yield


@asynccontextmanager
async def small_files(at: Campaign) -> AsyncIterator[None]:
    (node,) = at.nodes
    assert node.process is not None
    assert isinstance(at.store, FolderStore)
    pid, most = node.process.pid, resource.RLIM_INFINITY
    wal = at.store.folder / "practicum.sqlite-wal"
    size = (wal.stat().st_size if wal.exists() else 0) + at.rng.randrange(2**15)
    limit = at.rng.choice([size, size, 4096])

    def begin() -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, most))

    def end() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))

    async with lasting(at, begin, end, at.strikes % 2 == 0):
        yield


@asynccontextmanager
async def immutable(at: Campaign) -> AsyncIterator[None]:
    assert isinstance(at.store, FolderStore)
    folder = str(at.store.folder)

    def begin() -> None:
        # The file of SQLite's shared memory is left out, because the kernel would end a process that writes to it.
        paths = [at.store.folder, *(path for path in at.store.folder.rglob("*") if not path.name.endswith("-shm"))]
        subprocess.run(["chattr", "+i", *map(str, paths)], stderr=subprocess.DEVNULL)

    def end() -> None:
        subprocess.run(["chattr", "-R", "-i", folder], stderr=subprocess.DEVNULL)

    async with lasting(at, begin, end, at.strikes % 2 == 0):
        yield


@asynccontextmanager
async def read_only(at: Campaign) -> AsyncIterator[None]:
    """Make the file system read-only. It must be mounted again afterwards, which needs a restart of the service."""
    assert isinstance(at.store, FolderStore)
    place = at.store.folder.parent

    def end() -> None:
        subprocess.run(["umount", str(place)], check=True)
        mount(place.with_suffix(".img"), place)

    # No write is in flight, because at this moment ext4 itself may acknowledge an fsync of data that it loses.
    await at.rest()
    begin = ["mount", "-o", "remount,abort", str(place)]
    async with lasting(at, lambda: subprocess.run(begin, check=True), end, True):
        yield


def ended_sessions(at: Campaign) -> None:
    assert isinstance(at.store, PostgresStore)
    at.store.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'campaign'")


@asynccontextmanager
async def read_only_database(at: Campaign) -> AsyncIterator[None]:
    assert isinstance(at.store, PostgresStore)
    store = at.store

    def turn(to: str) -> None:
        store.execute(f"ALTER DATABASE campaign SET default_transaction_read_only = {to}")
        ended_sessions(at)

    async with lasting(at, lambda: turn("on"), lambda: turn("off"), at.strikes % 2 == 0):
        yield


@asynccontextmanager
async def without_rights(at: Campaign) -> AsyncIterator[None]:
    assert isinstance(at.store, PostgresStore)
    store = at.store

    def turn(words: str) -> None:
        store.execute(words.format("ALL TABLES IN SCHEMA practicum"), database="campaign")

    async with lasting(
        at, lambda: turn("REVOKE INSERT, UPDATE, DELETE ON {} FROM campaign"),
        lambda: turn("GRANT ALL ON {} TO campaign"), at.strikes % 2 == 0,
    ):  # fmt: skip
        yield


@asynccontextmanager
async def full_tables(at: Campaign) -> AsyncIterator[None]:
    assert isinstance(at.store, PostgresStore)
    filler = at.store.server.folder.parent / "small" / "filler"

    def begin() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    async with lasting(at, begin, filler.unlink, at.strikes % 2 == 0):
        yield


FAULTS: dict[tuple[str, str], Callable[[Campaign], Any]] = {
    ("folder", "process"): killed_process, ("folder", "size"): small_files, ("folder", "immutable"): immutable,
    ("folder", "readonly"): read_only, ("postgres", "process"): killed_process,
    ("postgres", "database"): killed_database, ("postgres", "readonly"): read_only_database,
    ("postgres", "rights"): without_rights, ("postgres", "full"): full_tables,
}  # fmt: skip


# The checks after a fault


async def check(at: Campaign) -> None:
    """Compare the ledger of the clients with the store, and with the answers of the service."""
    ledger, node = at.ledger, at.nodes[0]
    for path in at.store.damaged():
        ledger.violated("damaged", path)
    # The service writes all pending rows before it answers this request.
    await node.send("GET", "/v1/interactions")
    await check_erased(at)
    await check_spaces(at)
    actual = facts(at.store) | {("space", "default"): PRESENT}
    ledger.possible["space", "default"] = {PRESENT}
    for space in (await node.send("GET", "/v1/spaces"))[1]["spaces"]:
        actual["space", space] = PRESENT
    ledger.settle(actual)
    interactions = {(space, id) for space, id in at.store.rows("SELECT space, id FROM interactions")}
    for space, id in at.store.rows("SELECT space, id FROM outcomes"):
        if (space, id) not in interactions:
            ledger.violated("half-written", f"an outcome of {id} without its interaction")
    canaries = at.store.rows("SELECT space FROM rollouts WHERE state = 'canary'")
    if len(canaries) != len(set(canaries)):
        ledger.violated("half-written", "two canaries of one space")
    await check_shown(at)


async def check_erased(at: Campaign) -> None:
    """Check that no data of an erased user is left, and that an erasure without an answer is complete or not begun."""
    ledger, node, actual = at.ledger, at.nodes[0], facts(at.store)
    for client in at.clients:
        for user in [user for user in client.of_users if ledger.possible.get(("user", user)) == {PRESENT, ABSENT}]:
            mine = client.of_users[user]
            certain = ledger.certain["user", user]
            there, left = certain & actual.keys(), [*at.store.occurrences({user})]
            if certain and (0 < len(there) < len(certain) or (left and not there)):
                ledger.violated("half-erased", f"{len(there)} of {len(certain)} facts of {user}, {left[:3]}")
            # A second request finishes the erasure, or finds no data. It may have to wait for a node that learns.
            status, answer = 409, None
            for _ in range(200):
                status, answer = await node.send("DELETE", "/v1/user", {"user": user})
                if status != 409:
                    break
                await asyncio.sleep(0.5)
            if status not in (200, 404):
                ledger.violated("erasure that cannot be finished", f"{status} {answer}")
            ledger.possible.update({fact: {ABSENT} for fact in (("user", user), *mine)})
    erased = {fact[1] for fact, possible in ledger.possible.items() if fact[0] == "user" and possible == {ABSENT}}
    for left in at.store.occurrences(erased):
        ledger.violated("erased, but there", left)
    # Each erased user is checked again after the next strike, and then never again.
    for user in erased & at.looked_for:
        del ledger.possible["user", user]
    at.looked_for = erased


async def check_spaces(at: Campaign) -> None:
    """Check that each space is complete or absent, and that it can be created and deleted in either case."""
    ledger, node, actual = at.ledger, at.nodes[0], facts(at.store)
    spaces = (await node.send("GET", "/v1/spaces"))[1]["spaces"]
    for client in at.clients:
        fact, there = ("space", client.space), client.space in spaces
        inside = [f for f in ledger.possible if f[0] == "note" and f[1] == client.space]
        if ledger.possible.get(fact) == {PRESENT, ABSENT}:
            lost = [f for f in ledger.certain.get(fact, ()) if f not in actual]
            if there and lost:
                ledger.violated("half-deleted", f"{client.space} is there, without {len(lost)} notes")
            if not there and any(f in actual for f in inside):
                ledger.violated("half-deleted", f"{client.space} is absent, and its notes are there")
            for method in ("POST", "DELETE"):
                status, answer = await node.send(method, "/v1/spaces", {"name": client.space})
                if status != 200:
                    detail = f"{method} {client.space}: {status} {answer}"
                    ledger.violated("space that cannot be made or deleted", detail)
            ledger.possible.update({each: {ABSENT} for each in (fact, *inside)})
        elif there and (await node.send("GET", "/v1/playbook", x_practicum_space=client.space))[0] != 200:
            ledger.violated("space that cannot be used", client.space)


async def check_shown(at: Campaign) -> None:
    """Check that the service shows live notes, and no rejected notes."""
    notes = [(fact, states) for fact, states in at.ledger.possible.items() if fact[:2] == ("note", "default")]
    for node in at.nodes:
        for fact, possible in at.rng.sample(notes, min(6, len(notes))):
            # A space shows no notes while a user's removal is unfinished. Another node continues it within 30 s.
            for _ in range(100):
                status, answer = await node.send("POST", "/v1/context", {"input": f"lost {fact[2].split()[1]}"})
                if status != 507:
                    break
                await asyncio.sleep(0.5)
            if status != 200 or (fact[2] in answer["text"]) != (possible == {"live"}):
                at.ledger.violated("shown wrongly", f"{fact} {possible}: {status}")


# The campaign


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def mount(image: Path, place: Path) -> None:
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Mount a new file system in a file, and yield its folder."""
    image = place.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(megabytes * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    place.mkdir()
    mount(image, place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def store_of(kind: str, fault: str, folder: Path) -> Iterator[FolderStore | PostgresStore]:
    if kind == "folder":
        if fault != "readonly":
            yield FolderStore(folder)
            return
        with small_disk(folder / "disk", 512) as place:
            yield FolderStore(place)
        return
    with server_alone() as server:
        if fault != "full":
            yield PostgresStore(server, None)
            return
        with small_disk(server.folder.parent / "small", 96) as place:
            (place / "tables").mkdir()
            shutil.chown(place / "tables", "pgserver")
            yield PostgresStore(server, place / "tables")


@asynccontextmanager
async def alarms_at() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a webhook. Yields its address, and the list of the alarms that it receives."""
    taken: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.json())
        return web.Response()

    app, port = web.Application(), free_port()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}/", taken
    await runner.cleanup()


async def run(options: argparse.Namespace, folder: Path, store: FolderStore | PostgresStore) -> Campaign:
    rng, ledger, paid, aimed = Random(options.seed), Ledger(), Paid(), asyncio.Event()
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(serve(ServerOptions(chunks=8, responder=paid.answer, keep=False)))
        hook, alarms = await stack.enter_async_context(alarms_at())
        http = await stack.enter_async_context(aiohttp.ClientSession())
        nodes = list[Node]()
        for number in range(options.nodes):
            port, own = free_port(), ["--folder", str(folder / f"node{number}")] if options.store == "postgres" else []
            command = [
                *python_command("practicum.cli.app", "serve"), "--upstream", f"{behind.url}#sim",
                store.url, "--port", str(port), "--key", KEY, "--learn-every", "10", "--canary", "0.5",
                "--canary-length", "20", "--judge-share", "0.05", "--webhook", hook, *own,
            ]  # fmt: skip
            nodes.append(Node(port, http, command, folder / f"errors{number}"))
        erases = not options.no_erasures
        clients = [Client(n, nodes[n % len(nodes)], ledger, Random(f"{options.seed} {n}"), aimed.set, erases)
                   for n in range(CLIENTS)]  # fmt: skip
        at = Campaign(store, nodes, clients, ledger, rng, paid, alarms, aimed)
        strike = FAULTS[options.store, options.fault]
        for node in nodes:
            stack.callback(node.kill)
            await at.start(node)
        at.work = [asyncio.create_task(client.work()) for client in clients]
        stack.callback(lambda: [task.cancel() for task in at.work])
        for _ in range(options.times):
            for node in nodes:
                node.up.set()
            await at.moment()
            at.strikes += 1
            async with strike(at):
                await at.rest()
            await check(at)
            print(
                f"{at.strikes} strikes: {ledger.acknowledged} acknowledged, {ledger.refused} refused, "
                f"{ledger.unsure} unsure, start {at.starts[-1]:.1f} s, {dict(ledger.violations)}", flush=True,
            )  # fmt: skip
        for node in nodes:
            health = (await node.send("GET", "/health"))[1]
            print(f"health: counts {health['counts']}, unwritten {health['unwritten']}, lost {health['lost']}")
            if health["lost"]:
                ledger.violated("rows lost", health["lost"])
            if "Traceback" in node.output:
                ledger.violated("traceback", node.errors)
    if (twice := paid.twice()) and options.no_erasures:
        ledger.violated("paid twice", twice)
    return at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("folder", "postgres"), default="folder")
    parser.add_argument("--fault", choices=sorted({fault for _, fault in FAULTS}), default="process")
    parser.add_argument("--times", type=int, default=30, help="number of strikes of the fault (30)")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="services on the database (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="folder of all files (a temporary folder)")
    parser.add_argument("--no-erasures", action="store_true", help="erase no user; then no call may be paid twice")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    if (options.store, options.fault) not in FAULTS or (options.store == "folder" and options.nodes > 1):
        parser.error(f"the fault {options.fault} with {options.nodes} nodes does not exist for a {options.store}")
    before = load_average()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="practicum-kills-")))
        folder.mkdir(exist_ok=True)
        at = asyncio.run(run(options, folder, stack.enter_context(store_of(options.store, options.fault, folder))))
    result = {
        "store": options.store, "fault": options.fault, "nodes": options.nodes, "seed": options.seed,
        "strikes": at.strikes, "acknowledged": at.ledger.acknowledged, "kinds": dict(at.ledger.kinds),
        "asked": sum(node.asked for node in at.nodes), "refused": at.ledger.refused, "unsure": at.ledger.unsure,
        "failures of the upstream": sum(client.problems["upstream"] for client in at.clients),
        "longest start": max(at.starts), "strikes without an alarm": at.silent,
        "violations": dict(at.ledger.violations), "calls of the learner": sum(map(len, at.paid.calls.values())),
        "paid twice": at.paid.twice(),
    }  # fmt: skip
    print(result)
    targets = [
        Target(name="violations", value=at.ledger.violations.total(), bound=0),
        Target(name="longest start (s)", value=max(at.starts), bound=BOUND),
    ]
    print_end("kills", result, targets, before, options.json)


if __name__ == "__main__":
    main()
