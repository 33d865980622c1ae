"""Alarms: drift of outcomes, of requests and of what is found, by a webhook, in the log and in the store."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import asynchronous, served, serving, until
from sqlalchemy import select

from practicum.serve import tables
from practicum.serve.service import new_id
from practicum.serve.watch import Alarm, Watcher


def direction(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def alarms_of(values: list[tuple[float, float | None]]) -> list[str]:
    """The kinds of the alarms of requests, each by the angle of its vector and the similarity of the best entry."""
    watcher, found = Watcher("s"), list[str]()
    for angle, best in values:
        found += [alarm.kind for alarm in watcher.request(direction(angle), best)]
    return found


def test_requests_of_a_new_kind_raise_an_alarm_and_those_of_known_kinds_none() -> None:
    rng = np.random.default_rng(0)
    known = [(float(rng.choice([0.0, 1.5]) + rng.normal(0, 0.05)), None) for _ in range(1_200)]
    assert alarms_of(known) == []
    new = [(float(3.0 + rng.normal(0, 0.05)), None) for _ in range(100)]
    assert alarms_of([*known, *new]) == ["inputs"]


def test_entries_that_fit_less_well_raise_an_alarm() -> None:
    rng = np.random.default_rng(0)
    fitting = [(0.0, float(rng.uniform(0.6, 0.9))) for _ in range(1_000)]
    assert alarms_of(fitting) == []
    assert alarms_of([*fitting, *((0.0, float(rng.uniform(0.1, 0.4))) for _ in range(100))]) == ["retrieval"]


@asynchronous
async def test_outcomes_that_fall_reach_the_webhook_the_log_and_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    posted: list[Any] = []

    async def hook(scope: Any, receive: Any, send: Any) -> None:
        posted.append(json.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(hook) as url, served(tmp_path, webhook=url) as at:
        space, rng = at.service.spaces["default"], np.random.default_rng(0)
        with caplog.at_level(logging.WARNING, "practicum.serve"):
            for n in range(700):
                score = float(rng.random() < (0.8 if n < 600 else 0.2))
                if (alarm := at.service._watcher("default").outcome(score)) is not None:
                    at.service.alarm(space.id, alarm)
        assert space.rollout is None
        await until(lambda: posted)
        (alarm,) = posted
        assert (alarm["space"], alarm["kind"]) == ("default", "outcomes")
        assert re.search(r"until now 0\.(7|8)\d of 1", alarm["text"])
        assert alarm["text"] in caplog.text
        await until(lambda: at.service.log.rows(select(tables.alarms)))
        assert at.service.log.rows(select(tables.alarms))[0].text == alarm["text"]


@asynchronous
async def test_a_webhook_that_does_not_answer_is_counted(tmp_path: Path) -> None:
    async with served(tmp_path, webhook="http://127.0.0.1:9/") as at:
        at.service.alarm(at.service.spaces["default"].id, Alarm("default", "learning", "it failed"))
        await until(lambda: at.service.counts["webhooks that failed"])
        assert (await at.ask("Still there?")).status == 200


def test_ids_sort_in_the_order_of_asking() -> None:
    ids = [new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert [id[:14] for id in ids] == sorted(id[:14] for id in ids)
