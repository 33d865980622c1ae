"""Who may do what: each role at each route, keys that are none any more, and limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving import Reply, Served, asynchronous, served

from practicum.serve.access import add_key

MINE, OTHER = "mine", "other"


QUESTION = "Which team handles lost cards?"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def answered(at: Served, status: int, headers: dict[str, str] | None) -> Reply:
    """Ask until it is answered with this status, which nothing but a change of the stored keys can bring about."""
    async with asyncio.timeout(30):
        while (reply := await at.ask(QUESTION, headers)).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return reply


@asynchronous
async def test_a_service_whose_last_key_has_expired_is_locked_also_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        key = add_key(at.service.log, "only", "", ["admin"], days=1e-9)
        await answered(at, 401, None)
    async with served(tmp_path) as at:
        assert (await at.ask(QUESTION)).status == 401
        assert "the key only has expired" in (await at.ask(QUESTION, bearer(key))).said
