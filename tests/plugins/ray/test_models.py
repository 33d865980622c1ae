"""Local models on the nodes of a real Ray: answers, and a lost actor."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous, make_tasks

import practicum
from practicum.core.counts import Count
from practicum.core.types import Prompt
from practicum.models.client import CallOptions, Reply
from practicum.models.registry import ClientSettings, Models
from practicum.plugins.ray.models import hosted

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("cluster")]

SCHEMA = {"title": "Mood", "type": "object", "properties": {"mood": {"enum": ["glad", "sad"]}}, "required": ["mood"]}
OPTIONS = CallOptions(temperature=0.0, max_output_tokens=8)


@pytest.mark.local
@asynchronous
async def test_a_model_on_two_nodes_answers_and_continues_when_an_actor_is_lost() -> None:
    import ray

    models = Models(ClientSettings(window=1024, host=hosted))
    model: Any = models.open("local")
    assert (model.name, model.window, len(model.clients)) == ("local", 1024, 2)

    async def replies() -> list[Reply]:
        prompts = [Prompt(f"You are role {n} of four.", "Say hello.") for n in range(4)]
        calls = (model.complete("agent", prompt, None, OPTIONS) for prompt in prompts)
        return await asyncio.gather(*calls)

    try:
        reply = await model.complete("agent", Prompt("", "How do you feel?"), SCHEMA, OPTIONS)
        assert json.loads(reply.text)["mood"] in ("glad", "sad")
        assert (reply.usage.calls, reply.usage.usd) == (1, 0.0)
        first, again = await replies(), await replies()
        assert all(reply.text and not reply.changed for reply in (*first, *again))
        cached = [sum(reply.usage.cached_tokens for reply in each) for each in (first, again)]
        assert cached[1] > cached[0]
        calls = asyncio.create_task(replies())
        for _ in range(3):
            await asyncio.sleep(0)  # until they are sent
        lost = max(model.clients, key=lambda server: server.in_flight)
        ray.kill(model.clients[lost].actor, no_restart=False)
        moved = await calls
        assert all(reply.text for reply in moved)
        assert any(Count.MOVED_CALLS in reply.changed for reply in moved)
        # Ray has started it again, and it loads the model at the first call.
        reply = await model.clients[lost].complete("agent", Prompt("", "Say hello."), None, OPTIONS)
        assert reply.text
    finally:
        await models.close()


@pytest.mark.local
def test_a_run_on_a_cluster_has_its_local_models_there(tmp_path: Path) -> None:
    how: dict[str, Any] = {"model": "local", "window": 1024, "max_output_tokens": 8, "reasoning": False}
    result = practicum.run_sync(
        practicum.learn([], test=make_tasks(2), method="none", out=tmp_path / "run", engine="ray", **how)
    )
    assert result.usage.calls == 2
    assert not (tmp_path / "run" / "llama.log").exists()
