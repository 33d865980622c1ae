"""The tables of the service: the sums of each hour, and stores of other formats."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from serving import Place, Served, asynchronous, served, serving
from sqlalchemy import select

from practicum.serve import tables
from practicum.serve.identities import add_space
from practicum.serve.log import FolderDatabase, Log
from practicum.serve.protocols import MOST_NAME
from practicum.serve.upstream import LISTED, Upstream

KEYS = ("run_id", "hour", "version", "model")


def summed(at: Served) -> dict[tuple[Any, ...], dict[str, float]]:
    """The sums of each hour, as they are stored."""
    rows = [row._mapping for row in at.service.log.rows(select(tables.hours))]
    return {tuple(row[key] for key in KEYS): {name: row[name] for name in tables.SUMS} for row in rows}


def computed(at: Served) -> dict[tuple[Any, ...], Any]:
    """The same from all that was asked and told."""
    log, found = at.service.log, dict[tuple[Any, ...], dict[str, float]]()
    asked = {(row.run_id, row.id): row for row in log.rows(select(tables.interactions))}

    def add(row: Any, at: float, **numbers: float) -> None:
        key = row.run_id, int(at // 3_600), row.version, json.loads(row.data)["counted"]
        sums = found.setdefault(key, dict.fromkeys(tables.SUMS, 0))
        for name, number in numbers.items():
            sums[name] += number

    for row in asked.values():
        data = json.loads(row.data)
        read, cached, written = data["tokens"]
        add(row, row.at, requests=1, failed=int(data["status"] >= 400), seconds=data["seconds"], input_tokens=read,
            cached_tokens=cached, output_tokens=written)  # fmt: skip
    for told in log.rows(select(tables.outcomes).where(tables.outcomes.c.score.is_not(None))):
        add(asked[told.run_id, told.id], told.at, scored=1, total=told.score)
    return {key: {name: pytest.approx(number) for name, number in sums.items()} for key, sums in found.items()}


async def use(at: Served, seed: int, steps: int = 40) -> None:
    """Ask and report at random: of interactions and sessions, for the first time and again, by the operator and by
    users, of two models, versions and spaces."""
    random, asked = Random(seed), list[tuple[dict[str, str], str]]()
    for n in range(steps):
        where = {"x-practicum-space": random.choice(["default", "other"]), "x-practicum-session": random.choice("abc")}
        if n % 15 == 7:
            what = {"text": f"Rule {n}.", "section": "rules"}
            assert (await at.send("POST", "/v1/playbook", what, where)).status == 200
        if not asked or random.random() < 0.5:
            reply = await at.ask(f"Question {random.randrange(9)}?", where, model=random.choice(["sim", "other"]))
            asked.append((where, reply.interaction))
            continue
        where, id = random.choice(asked)
        about = {"interaction": id} if random.random() < 0.7 else {"session": where["x-practicum-session"]}
        said = random.choice([{"score": random.random()}, {"label": "👎"}, {"target": "x"}, {"comment": f"{n}"}])
        user = {"x-practicum-user": "u"} if random.random() < 0.3 else {}
        assert (await at.report({**where, **user}, **about, **said)).status == 200


@pytest.mark.parametrize("seed", range(3))
@asynchronous
async def test_the_sums_of_hours_are_those_of_all_that_was_asked_and_told(seed: int, place: Place) -> None:
    async with served(**place, spaces=("default", "other")) as at:
        await use(at, seed)
        at.service.log.do(lambda db: None).result()
        assert len(summed(at)) >= 4
        assert summed(at) == computed(at)
        assert sum(sums["scored"] for sums in summed(at).values()) > 3


@asynchronous
async def test_requests_are_counted_under_models_that_the_upstream_has(place: Place) -> None:
    """Any name may be sent, of any length, also one that tells who asks: it is kept with the interaction alone."""
    long = "".join(Random(0).choices("0123456789abcdefghijklmnopqrstuvwxyz", k=9_000))
    sent = ["", "sim", "large", "ANNAMODEL-ft", long, *(f"ANNAMODEL-{n}" for n in range(20))]
    async with served(**place) as at:
        at.service.upstream.models = frozenset({"large"})
        for name in sent:
            reply = await at.ask("Which?", **({"model": name} if name else {}))
            assert (await at.report(interaction=reply.interaction, score=1.0)).status == 200
        h, i = tables.hours, tables.interactions
        counted = {row.model: (row.requests, row.scored) for row in at.service.log.rows(select(h))}
        assert counted == {"sim": (2, 2), "large": (1, 1), "other": (22, 22)}
        kept = at.service.log.rows(select(i.c.data).order_by(i.c.number))
        assert [json.loads(row.data)["model"] for row in kept] == ["sim", *(name[:MOST_NAME] for name in sent[1:])]
        assert b"ANNAMODEL" not in (await at.send("GET", "/metrics")).body


def listing(models: Any) -> Any:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        if models == "moved":
            await send({"type": "http.response.start", "status": 302, "headers": [(b"location", b"/v1/other")]})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(models).encode()})

    return answer


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ({"data": [{"id": "a"}, {"id": "b", "x": 1}]}, ["a", "b"]),
        ({"data": [{"id": f"m{n}"} for n in range(3_000)]}, [f"m{n}" for n in range(LISTED)]),
        ({"data": [{"id": "x" * 9_000}, {"id": 5}, {"id": ""}]}, []),
        ({"data": [{}]}, []), ({"data": 5}, []), ([], []), ("moved", []), ("x" * 2**23, []),
    ],
)  # fmt: skip
@asynchronous
async def test_the_models_of_an_upstream_are_those_that_it_lists(told: Any, known: list[str]) -> None:
    async with serving(listing(told)) as url:
        upstream = Upstream(f"{url}/v1", None)
        await upstream.start()
        try:
            assert await upstream.list_models() == known
        finally:
            await upstream.close()


@asynchronous
async def test_a_row_that_cannot_be_written_takes_no_others_along(tmp_path: Path) -> None:
    log = Log(FolderDatabase(tmp_path))
    try:
        id = log.do(lambda db: add_space(db, "s", "live").run_id).result()
        row = {"run_id": id, "number": 0, "at": 0.0, "kind": "k", "text": "t"}
        rows = [{**row, "number": number, "kind": "\ud800" if number in (0, 3) else "k"} for number in range(7)]
        # The thread of the log waits here, so that all are written with one transaction.
        begun, goes_on = threading.Event(), threading.Event()
        first = log.do(lambda db: (begun.set(), goes_on.wait(30)))
        assert begun.wait(30)
        for one in rows:
            log.post(tables.alarms, one)
        told = log.do(lambda db: 5)
        goes_on.set()
        assert first.result(30)
        assert told.result(30) == 5
        assert [one.number for one in log.rows(select(tables.alarms.c.number))] == [1, 2, 4, 5, 6]
        assert (log.lost, log.unwritten) == (2, 0)
    finally:
        log.close()
