"""The tables of the service: the sums of each hour, and stores of other formats."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from serving import Place, Served, asynchronous, served, serving
from sqlalchemy import select

from practicum.serve import tables
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
