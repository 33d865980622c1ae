"""Content attacks of the robustness bench: no order of a stranger reaches another user's prompt."""

from __future__ import annotations

import asyncio

import pytest

from practicum.bench import content
from practicum.bench.content import BLANKS, DISGUISES, ORDER, WAYS, ContentRow
from practicum.core.screen import flags


def test_the_filter_finds_the_order_in_every_disguise() -> None:
    found = {name: {flag.kind for flag in flags(disguise(ORDER))} for name, disguise in DISGUISES.items()}
    assert [name for name, kinds in found.items() if "instruction" not in kinds] == []


@pytest.mark.parametrize("way", WAYS)
def test_an_order_that_is_reported_waits(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "WAYS", {way: WAYS[way]})
    monkeypatch.setattr(content, "BLANKS", BLANKS[:1])
    row, blank = content.content()
    assert (row.attacks, row.shown, blank.attacks) == (len(DISGUISES), (), 1)


def test_the_bench_sees_an_order_that_is_shown() -> None:
    async def told(service: content.Service, order: str) -> None:
        await service.note(content.SPACE, order, content.QUESTION, None)

    assert asyncio.run(content._attacked(told, ORDER))
    (target,) = content.targets([ContentRow("told", 2, ("none",))])
    assert not target.met
