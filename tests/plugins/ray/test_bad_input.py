"""Refusals without a running Ray: resources, addresses, and objects that cannot be pickled."""

from __future__ import annotations

import socket
import threading
from functools import partial
from typing import Any

import pytest
from helpers import client, make_tasks
from needs import needs
from pydantic import ValidationError
from refusals import refused

import practicum
from practicum.core.context import Context
from practicum.engine.resources import Resources
from practicum.plugins.ray.pickling import pickled

needs("ray")


def evaluated(agent: Any = lambda input, context: "word0", **config: Any) -> practicum.Evaluation:
    parts = practicum.Parts(agent=agent, clients={"agent": client()})
    return practicum.run_sync(practicum.evaluate(make_tasks(1), Context(), parts=parts, engine="ray", **config))


def test_resources_are_read_from_text_and_small_attempts_share_a_process() -> None:
    read = Resources.model_validate("cpu=2, gpu=0.5,memory=4gb,image=lab/agents:3,fpga=1")
    assert read == Resources(cpu=2, gpu=0.5, memory=4 * 10**9, image="lab/agents:3", other={"fpga": 1.0})
    assert read == Resources.model_validate(read.model_dump())
    assert read.demand == {"CPU": 2, "GPU": 0.5, "memory": 4e9, "fpga": 1}
    assert Resources().at_once == 1
    shared = Resources.model_validate("cpu=0.1,memory=100mb")
    assert shared.at_once == 10
    assert shared.demand == {"CPU": 1.0, "memory": 1e9}


def test_invalid_resources_are_refused() -> None:
    for text in ("cpu", "cpu=x", "cpu=0", "memory=4zb", "gpu=-1", "fpga=many", "=1"):
        with pytest.raises(ValidationError):
            Resources.model_validate(text)
    with refused("settings.invalid"):
        evaluated(resources="cpu=0")


def test_a_cluster_without_work_or_at_a_wrong_address_is_refused() -> None:
    with refused("settings.unused"):
        evaluated(None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "nonsense", "ray://127.0.0.1:10001", "127.0.0.1:port"):
        with refused("cluster.unreachable"):
            evaluated(ray_address=address)


def test_an_object_that_cannot_be_pickled_is_refused() -> None:
    held = {"first": threading.Lock()}
    for value in (lambda input, context: str(held), partial(print, held)):
        with refused("cluster.not_portable"):
            pickled(value, "Parts.agent")
    assert pickled(Context(), "Parts.agent")
