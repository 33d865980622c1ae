"""Kills and faults under load: is everything there afterwards that `practicum serve` acknowledged?

A real service runs in front of a simulated upstream. Clients ask models, report scores and right answers, keep notes,
review them, make and delete spaces and keys, and erase users, while the service learns. At random moments a fault
strikes; then the store is compared with what the clients know: an acknowledged write must be there, a refused one must
not, and one that got no answer may be there, but whole. Violations are printed and counted; the exit code is 1 if there
are any.

    python bench/kills_bench.py --store folder --fault process --times 30 --seed 0

After an erasure the learner goes on with other outcomes and other versions, so it asks some of what it asked before.
With --no-erasures no call may be paid twice, unless a kill cut it off.

Faults: `process` kills the service (one kill in four during the start), `size` lets no file grow (RLIMIT_FSIZE),
`immutable` makes all files of a folder unchangeable (chattr +i), `readonly` makes its file system read-only (ext4 in a
loop device, mount -o remount,abort). With PostgreSQL: `process` (with --nodes 2 the other node goes on), `database`
kills the database server, `readonly` sets default_transaction_read_only, `rights` revokes the role's rights, `full`
fills the file system of the tables. `immutable`, `readonly` of a folder and `full` need root.

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
"""Seconds within which a service must answer after a start."""

ENOUGH = 20
"""Requests that are answered while a fault lasts, at least."""

SYSTEM = {"role": "system", "content": "You answer for the campaign."}
"""Begins the requests of clients, which tells them from those of the learner."""

TABLES = ("interactions", "outcomes", "corrections", "sessions")
"""Tables of the service with texts of users."""

Fact = tuple[str, ...]
"""What can be known of the store: ("note", space, text), ("score", space, interaction), ("target", space, interaction),
("key", name), ("space", name), ("user", name)."""

THERE, GONE = "there", ""


# What is known


@dataclass
class Ledger:
    """The states that each fact may have, as the answers of the service say; GONE if it was never heard of."""

    may: dict[Fact, set[str]] = field(default_factory=dict)
    sure: dict[Fact, set[Fact]] = field(default_factory=dict)
    """Of a space or a user that was to be removed last: what was surely there of it."""
    acknowledged: int = 0
    refused: int = 0
    unsure: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Acknowledged writes, by what they were."""

    def violated(self, law: str, what: object) -> None:
        self.violations[law] += 1
        print(f"  VIOLATION {law}: {what}", flush=True)

    def settle(self, actual: dict[Fact, str]) -> None:
        """Compare facts with the store, and go on from there."""
        for fact, may in self.may.items():
            state = actual.get(fact, GONE)
            if fact[0] == "user":
                continue
            if state not in may:
                law = "lost" if len(may) == 1 and state == GONE else "wrong state"
                self.violated(law, f"{fact} is {state or 'not there'}, and may be {sorted(may)}")
            self.may[fact] = {state}
        for fact in actual.keys() - self.may.keys():
            self.violated("unknown", fact)
            self.may[fact] = {actual[fact]}


# The store


class FolderStore:
    """The store as a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        self.url = str(self.folder)

    def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.folder / 'practicum.sqlite'}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def damaged(self) -> list[Path]:
        """Databases that are not intact."""
        found = []
        for path in self.folder.rglob("*.sqlite"):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                try:
                    intact = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                except sqlite3.DatabaseError:
                    intact = False
            found += [] if intact else [path]
        return found

    def having(self, marks: set[str]) -> Iterator[str]:
        """Each mark that is in some file, with the file."""
        for path in filter(Path.is_file, self.folder.rglob("*")):
            with suppress(FileNotFoundError):
                raw = path.read_bytes()
                yield from (f"{mark} in {path.name}" for mark in marks if mark.encode() in raw)


class PostgresStore:
    """The store as a PostgreSQL database, which its own role uses."""

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

    def having(self, marks: set[str]) -> Iterator[str]:
        for table in TABLES:
            texts = "\n".join(text for (text,) in self.rows(f"SELECT t::text FROM {table} AS t"))
            yield from (f"{mark} in {table}" for mark in marks if mark in texts)


def facts(store: FolderStore | PostgresStore) -> dict[Fact, str]:
    """What the store has."""
    found: dict[Fact, str] = {}
    names = dict(store.rows("SELECT space, name FROM spaces WHERE state = 'live'"))
    notes: dict[tuple[str, str], Fact] = {}
    for id, applied in store.rows("SELECT space, applied FROM corrections ORDER BY space, version"):
        for done in EDITS.validate_json(applied):
            if isinstance(done.edit, Add):
                notes[id, done.id] = "note", names.get(id, f"no space {id}"), done.edit.text
            found[notes[id, done.id]] = "live" if isinstance(done.edit, Add) else "rejected"
    for id, state, data in store.rows("SELECT space, state, data FROM reviews WHERE id LIKE 'c%'"):
        fact = "note", names.get(id, f"no space {id}"), json.loads(data)["edits"][0]["text"]
        found.setdefault(fact, {"pending": "waiting"}.get(state, state))
    found = {fact: state for fact, state in found.items() if fact[2].startswith("Lost ")}
    for of, id, data in store.rows("SELECT space, id, data FROM outcomes"):
        said, space = json.loads(data), names.get(of, f"no space {of}")
        for name in ("score", "target"):
            if (value := said["own"].get(name, said["user"].get(name))) is not None:
                found[name, space, id] = str(value)
    found.update({("key", name): THERE for (name,) in store.rows("SELECT name FROM keys")})
    return found


# A service as a process


@dataclass
class Node:
    """A service at a port, with its clients. `up` lets them work."""

    port: int
    http: aiohttp.ClientSession
    command: list[str]
    errors: Path
    up: asyncio.Event = field(default_factory=asyncio.Event)
    parked: int = 0
    asked: int = 0
    """Requests to models that were answered."""
    limited: bool = False
    process: subprocess.Popen[bytes] | None = None

    async def send(self, method: str, path: str, body: Any = None, key: str = KEY, **headers: str) -> tuple[int, Any]:
        """The status of the answer, and its JSON. `headers` are written with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()} | {"authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.http.request(method, url, json=body, headers=named) as response:
            raw = await response.read()
            try:
                said = json.loads(raw)
            except ValueError:
                raise AssertionError(f"{method} {path}: {response.status} {raw[:300]!r}") from None
            if isinstance(said, dict) and "x-practicum-interaction" in response.headers:
                said["interaction"] = response.headers["x-practicum-interaction"]
            return response.status, said

    def launch(self) -> None:
        # What it says is no part of the store, and stays.
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.DEVNULL, stderr=errors, env=environment(), cwd=self.errors.parent
            )

    async def ready(self) -> float | None:
        """Seconds until it answers; None if it ended, or took too long."""
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
    def said(self) -> str:
        return self.errors.read_text(errors="replace").strip()


# Clients


@dataclass
class Client:
    """One client: it sends one request after the other, and knows what it may find. What it names is its own."""

    number: int
    node: Node
    ledger: Ledger
    rng: Random
    aim: Callable[[], None]
    """Called when something long begins, in which a kill is worth more."""
    erases: bool = True
    user: str = ""
    made: int = 0
    doing: str = ""
    notes: list[tuple[str, int]] = field(default_factory=list)
    """Notes that wait or hold, and their numbers."""
    of_users: dict[str, set[Fact]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def space(self) -> str:
        return f"own{self.number}"

    def word(self) -> str:
        """A text that there is once."""
        self.made += 1
        return f"zq{self.number}x{self.made}w{self.rng.randrange(10**9)}"

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
        self, what: str, changes: dict[Fact, str], method: str, path: str, body: Any, **headers: str
    ) -> Any:
        """Send a write that changes facts; returns its answer if it was acknowledged."""
        before = {fact: self.ledger.may.get(fact, {GONE}) for fact in changes}
        for of in [fact for fact in changes if fact[0] == "space"]:
            # What was in a space of this name before is not in the one that is made now.
            self.ledger.sure.pop(of, None)
        for of in [fact for fact, state in changes.items() if fact[0] in ("space", "user") and state == GONE]:
            self.ledger.sure[of] = {fact for fact in changes if GONE not in before[fact]} - {of}
        self.ledger.may.update({fact: before[fact] | {state} for fact, state in changes.items()})
        try:
            status, said = await self.node.send(method, path, body, **headers)
        except (aiohttp.ClientError, TimeoutError):
            self.ledger.unsure += 1
            raise
        if status < 300:
            self.ledger.may.update({fact: {state} for fact, state in changes.items()})
            self.ledger.acknowledged += 1
            self.ledger.kinds[what] += 1
            return said
        if "\n" in said["error"]["message"] or status not in (404, 409, 503, 507):
            self.ledger.violated("wrong refusal", f"{what}: {status} {said['error']['message']}")
        self.problems[f"{what}: {status}"] += 1
        if status in (503, 507):
            self.ledger.refused += 1
            # Nobody hammers a service that cannot write.
            await asyncio.sleep(0.02)
        # What is refused is not there, unless it takes several transactions: that is finished later.
        if status in (404, 409) or (status == 507 and what not in ("space made", "space deleted", "user erased")):
            self.ledger.may.update(before)
        return None

    async def ask(self, text: str, **headers: str) -> str:
        """Ask a model; returns the interaction, or "" if it went on unchanged and is not known."""
        body = {"messages": [SYSTEM, {"role": "user", "content": text}]}
        status, said = await self.node.send("POST", "/v1/chat/completions", body, **headers)
        # The simulated upstream shares a process with the clients, and may close an idle connection when it is busy.
        self.problems["upstream"] += status in (502, 504)
        if status not in (200, 502, 504):
            self.ledger.violated("a request failed", f"{status} {said}")
        self.node.asked += 1
        return str(said.get("interaction", ""))

    async def report(self) -> None:
        user = self.user = self.user or self.word()
        of = {"x_practicum_user": user} if self.rng.random() < 0.5 else {}
        mark = user if of else self.word()
        interaction = await self.ask(f"Which team of office {self.number} handles {mark} today?", **of)
        if not interaction:
            return
        name, value = ("score", self.rng.randrange(100) / 100)
        if self.rng.random() < 0.6:
            name, value = "target", f"the {mark} team {self.word()}"
        fact = (name, "default", interaction)
        if of:
            self.of_users.setdefault(user, set()).add(fact)
        await self.change(
            "feedback", {fact: str(value)}, "POST", "/v1/feedback", {"interaction": interaction, name: value}
        )

    async def note(self) -> None:
        word, own = self.word(), self.rng.random() < 0.5
        space = self.space if self.ledger.may.get(("space", self.space)) == {THERE} and own else "default"
        of = {"x_practicum_user": self.user} if self.user and self.rng.random() < 0.4 and space == "default" else {}
        text = f"Lost {word} of {self.user if of else 'nobody'} go to room {self.made}."
        fact = ("note", space, text)
        if of:
            self.of_users.setdefault(self.user, set()).add(fact)
        body, state = {"text": text, "about": f"lost {word}"}, "waiting" if of else "live"
        said = await self.change("note", {fact: state}, "POST", "/v1/notes", body, x_practicum_space=space, **of)
        if said and space == "default":
            self.notes.append((text, int(said["id"][1:])))

    async def review(self) -> None:
        if not self.notes:
            return
        text, number = self.notes.pop(self.rng.randrange(len(self.notes)))
        fact = ("note", "default", text)
        approve = self.ledger.may.get(fact) == {"waiting"} and self.rng.random() < 0.7
        decision, state = ("approve", "live") if approve else ("reject", "rejected")
        body = {"id": f"c{number}", "decision": decision}
        said = await self.change("decision", {fact: state}, "POST", "/v1/review", body)
        if said and approve:
            self.notes.append((text, number))

    async def make_space(self) -> None:
        self.aim()
        await self.change("space made", {("space", self.space): THERE}, "POST", "/v1/spaces", {"name": self.space})

    async def delete_space(self) -> None:
        if self.ledger.may.get(("space", self.space), {GONE}) == {GONE}:
            return
        inside = [fact for fact in self.ledger.may if fact[0] in ("note", "key") and fact[1] == self.space]
        gone = dict.fromkeys((("space", self.space), *inside), GONE)
        self.aim()
        await self.change("space deleted", gone, "DELETE", "/v1/spaces", {"name": self.space})

    async def make_key(self) -> None:
        name = f"key{self.number}.{self.rng.randrange(4)}"
        if self.ledger.may.get(("key", name), {GONE}) == {GONE}:
            body = {"name": name, "roles": ["ask"]}
            await self.change("key made", {("key", name): THERE}, "POST", "/v1/keys", body)

    async def delete_key(self) -> None:
        name = f"key{self.number}.{self.rng.randrange(4)}"
        if self.ledger.may.get(("key", name)) == {THERE}:
            await self.change("key deleted", {("key", name): GONE}, "DELETE", "/v1/keys", {"name": name})

    async def erase(self) -> None:
        user = self.user
        if not user or not self.of_users.get(user):
            return
        self.user = ""
        gone = dict.fromkeys(self.of_users[user], GONE) | {("user", user): GONE}
        self.ledger.may["user", user] = {THERE}
        self.aim()
        said = await self.change("user erased", gone, "DELETE", "/v1/user", {"user": user})
        if said and said.get("left"):
            self.ledger.violated("erasure left something", said)

    async def learn(self) -> None:
        self.aim()
        await self.node.send("POST", "/v1/learn", {})


# What the learner pays for


@dataclass
class Paid:
    """Calls of the learner, by what was asked, with when each was answered."""

    calls: dict[str, list[float]] = field(default_factory=dict)
    kills: list[float] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> str:
        if SYSTEM in body.get("messages", ()):
            return TEXT
        asked = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.calls.setdefault(asked, []).append(time.monotonic())
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return TEXT if schema is None else json.dumps(fill(schema, int(asked[:8], 16)))

    def twice(self) -> int:
        """Calls that were paid for again, though their first answer was not under way when the service was killed."""
        return sum(
            not any(first <= kill <= first + 1.0 for kill in self.kills)
            for times in self.calls.values()
            for first in times[:-1]
        )


# Faults


@dataclass
class Campaign:
    """A store, the services on it, and their clients."""

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
    """Strikes without an alarm about the store."""
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
            print(f"  waited in vain while clients do this: {[client.doing for client in self.clients]}", flush=True)
            raise

    async def moment(self) -> None:
        """Wait for a moment to strike: after some writes, and every second time during something long."""
        goal = self.ledger.acknowledged + self.rng.randrange(20, 100)
        await self.until(lambda: self.ledger.acknowledged >= goal)
        if self.rng.random() < 0.6:
            self.aimed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await self.aimed.wait()
            await asyncio.sleep(self.rng.uniform(0, 0.3))

    async def rest(self) -> None:
        """No client works."""
        for node in self.nodes:
            node.up.clear()
        each = len(self.clients) // len(self.nodes)
        await self.until(lambda: all(node.parked == each for node in self.nodes), 120)

    def kill(self, node: Node) -> None:
        node.kill()
        self.paid.kills.append(time.monotonic())

    async def start(self, node: Node) -> None:
        """Start a service. One that does not start is reported, and what keeps it from that is put aside."""
        if self.strikes % 4 == 3 and self.starts:
            node.launch()
            await asyncio.sleep(self.rng.uniform(0, 1.3 * max(self.starts[-3:])))
            self.kill(node)
        node.launch()
        took = await node.ready()
        if took is None:
            self.failed_starts += 1
            self.ledger.violated("failed start", node.said[-300:])
            self.begin_anew()
            node.launch()
            took = await node.ready()
            assert took is not None, node.said
        self.starts.append(took)

    def begin_anew(self) -> None:
        """Put the store aside that a service does not start with, and forget what was in it."""
        assert isinstance(self.store, FolderStore)
        self.store.folder.rename(self.store.folder.with_name(f"failed{self.failed_starts}"))
        self.ledger.may.clear()
        for client in self.clients:
            client.notes.clear()
            client.of_users.clear()
            client.user = ""

    async def during(self, kind: int | None) -> None:
        """While a fault lasts: requests are answered, and with `kind` writes are refused by this status."""
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
    """A fault that lasts for a while, and ends with or without a restart of the service."""
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
        # Not SQLite's shared memory, which is a file too: the kernel would end the process that writes to it.
        paths = [at.store.folder, *(path for path in at.store.folder.rglob("*") if not path.name.endswith("-shm"))]
        subprocess.run(["chattr", "+i", *map(str, paths)], stderr=subprocess.DEVNULL)

    def end() -> None:
        subprocess.run(["chattr", "-R", "-i", folder], stderr=subprocess.DEVNULL)

    async with lasting(at, begin, end, at.strikes % 2 == 0):
        yield


@asynccontextmanager
async def read_only(at: Campaign) -> AsyncIterator[None]:
    """A file system that turned read-only has to be mounted again, which takes a restart."""
    assert isinstance(at.store, FolderStore)
    place = at.store.folder.parent

    def end() -> None:
        subprocess.run(["umount", str(place)], check=True)
        mount(place.with_suffix(".img"), place)

    # At this moment ext4 itself may acknowledge an fsync of what it loses, so no write is under way.
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


# What must be so afterwards


async def check(at: Campaign) -> None:
    """Compare what clients know with the store, and with what the service says of it."""
    ledger, node = at.ledger, at.nodes[0]
    for path in at.store.damaged():
        ledger.violated("damaged", path)
    # What was on its way is written once this is answered.
    await node.send("GET", "/v1/interactions")
    await check_erased(at)
    await check_spaces(at)
    actual = facts(at.store) | {("space", "default"): THERE}
    ledger.may["space", "default"] = {THERE}
    for space in (await node.send("GET", "/v1/spaces"))[1]["spaces"]:
        actual["space", space] = THERE
    ledger.settle(actual)
    known = {(space, id) for space, id in at.store.rows("SELECT space, id FROM interactions")}
    for space, id in at.store.rows("SELECT space, id FROM outcomes"):
        if (space, id) not in known:
            ledger.violated("half-written", f"an outcome of {id} without its interaction")
    canaries = at.store.rows("SELECT space FROM rollouts WHERE state = 'canary'")
    if len(canaries) != len(set(canaries)):
        ledger.violated("half-written", "two canaries of one space")
    await check_shown(at)


async def check_erased(at: Campaign) -> None:
    """Nothing is left of a user who was erased; an erasure that got no answer was done as a whole, or not at all."""
    ledger, node, actual = at.ledger, at.nodes[0], facts(at.store)
    for client in at.clients:
        for user in [user for user in client.of_users if ledger.may.get(("user", user)) == {THERE, GONE}]:
            mine = client.of_users[user]
            kept = ledger.sure["user", user]
            there, left = kept & actual.keys(), [*at.store.having({user})]
            if kept and (0 < len(there) < len(kept) or (left and not there)):
                ledger.violated("half-erased", f"{len(there)} of {len(kept)} facts of {user}, {left[:3]}")
            # Asked again, it is finished, or there is nothing left of it. It may have to wait for a node that learns.
            status, said = 409, None
            for _ in range(200):
                status, said = await node.send("DELETE", "/v1/user", {"user": user})
                if status != 409:
                    break
                await asyncio.sleep(0.5)
            if status not in (200, 404):
                ledger.violated("erasure that cannot be finished", f"{status} {said}")
            ledger.may.update({fact: {GONE} for fact in (("user", user), *mine)})
    erased = {fact[1] for fact, may in ledger.may.items() if fact[0] == "user" and may == {GONE}}
    for left in at.store.having(erased):
        ledger.violated("erased, but there", left)
    # Each is looked for once more with the next strike, and then no more.
    for user in erased & at.looked_for:
        del ledger.may["user", user]
    at.looked_for = erased


async def check_spaces(at: Campaign) -> None:
    """A space is whole, or not there; whichever it is, it can be made and deleted."""
    ledger, node, actual = at.ledger, at.nodes[0], facts(at.store)
    spaces = (await node.send("GET", "/v1/spaces"))[1]["spaces"]
    for client in at.clients:
        fact, there = ("space", client.space), client.space in spaces
        inside = [f for f in ledger.may if f[0] == "note" and f[1] == client.space]
        if ledger.may.get(fact) == {THERE, GONE}:
            lost = [f for f in ledger.sure.get(fact, ()) if f not in actual]
            if there and lost:
                ledger.violated("half-deleted", f"{client.space} is there, without {len(lost)} notes")
            if not there and any(f in actual for f in inside):
                ledger.violated("half-deleted", f"{client.space} is gone, and its notes are there")
            for method in ("POST", "DELETE"):
                status, said = await node.send(method, "/v1/spaces", {"name": client.space})
                if status != 200:
                    ledger.violated("space that cannot be made or deleted", f"{method} {client.space}: {status} {said}")
            ledger.may.update({each: {GONE} for each in (fact, *inside)})
        elif there and (await node.send("GET", "/v1/playbook", x_practicum_space=client.space))[0] != 200:
            ledger.violated("space that cannot be used", client.space)


async def check_shown(at: Campaign) -> None:
    """The service shows notes that hold, and none that was rejected."""
    notes = [(fact, may) for fact, may in at.ledger.may.items() if fact[0] == "note" and fact[1] == "default"]
    for node in at.nodes:
        for fact, may in at.rng.sample(notes, min(6, len(notes))):
            # A space shows nothing while a user's removal is unfinished; another node takes that over within 30 s.
            for _ in range(100):
                status, said = await node.send("POST", "/v1/context", {"input": f"lost {fact[2].split()[1]}"})
                if status != 507:
                    break
                await asyncio.sleep(0.5)
            if status != 200 or (fact[2] in said["text"]) != (may == {"live"}):
                at.ledger.violated("shown wrongly", f"{fact} {may}: {status}")


# The campaign


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def mount(image: Path, place: Path) -> None:
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in a file."""
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
    """A webhook, and what it is sent."""
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
            if "Traceback" in node.said:
                ledger.violated("traceback", node.errors)
    if (twice := paid.twice()) and options.no_erasures:
        ledger.violated("paid twice", twice)
    return at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("folder", "postgres"), default="folder")
    parser.add_argument("--fault", choices=sorted({fault for _, fault in FAULTS}), default="process")
    parser.add_argument("--times", type=int, default=30, help="how often the fault strikes (30)")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="services on the database (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where files are kept (default: a temporary folder)")
    parser.add_argument("--no-erasures", action="store_true", help="erase no user; then no call may be paid twice")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    if (options.store, options.fault) not in FAULTS or (options.store == "folder" and options.nodes > 1):
        parser.error(f"there is no fault {options.fault} of {options.nodes} nodes on a {options.store}")
    before = load_average()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="practicum-kills-")))
        folder.mkdir(exist_ok=True)
        at = asyncio.run(run(options, folder, stack.enter_context(store_of(options.store, options.fault, folder))))
    found = {
        "store": options.store, "fault": options.fault, "nodes": options.nodes, "seed": options.seed,
        "strikes": at.strikes, "acknowledged": at.ledger.acknowledged, "kinds": dict(at.ledger.kinds),
        "asked": sum(node.asked for node in at.nodes), "refused": at.ledger.refused, "unsure": at.ledger.unsure,
        "failures of the upstream": sum(client.problems["upstream"] for client in at.clients),
        "longest start": max(at.starts), "strikes without an alarm": at.silent,
        "violations": dict(at.ledger.violations), "calls of the learner": sum(map(len, at.paid.calls.values())),
        "paid twice": at.paid.twice(),
    }  # fmt: skip
    print(found)
    targets = [
        Target(name="violations", value=at.ledger.violations.total(), bound=0),
        Target(name="longest start (s)", value=max(at.starts), bound=BOUND),
    ]
    print_end("kills", found, targets, before, options.json)


if __name__ == "__main__":
    main()
