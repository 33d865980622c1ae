"""What does not fit a cluster is refused in one line, before anything is paid for, without a Ray being started."""

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


def evaluated(**config: Any) -> practicum.Evaluation:
    parts = practicum.Parts(agent=lambda input, context: "word0", clients={"agent": client()})
    return practicum.run_sync(practicum.evaluate(make_tasks(1), Context(), parts=parts, **config))


def test_resources_are_read_as_they_are_typed() -> None:
    read = Resources.model_validate("cpu=2, gpu=0.5,memory=4gb,image=lab/agents:3,fpga=1")
    assert read == Resources(cpu=2, gpu=0.5, memory=4 * 10**9, image="lab/agents:3", other={"fpga": 1.0})
    assert read == Resources.model_validate(read.model_dump())
    assert read.demand == {"CPU": 2, "GPU": 0.5, "memory": 4e9, "fpga": 1}
    assert Resources().at_once == 1


def test_attempts_that_take_less_than_a_processor_share_a_process() -> None:
    shared = Resources.model_validate("cpu=0.1,memory=100mb")
    assert shared.at_once == 10
    assert shared.demand == {"CPU": 1.0, "memory": 1e9}


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=0", "memory=4zb", "gpu=-1", "fpga=many", "=1"])
def test_resources_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate(text)
    with refused("settings.invalid"):
        evaluated(engine="ray", resources=text)


def test_a_cluster_is_refused_where_there_is_no_work_to_move() -> None:
    parts = practicum.Parts(clients={"agent": client()})
    with refused("settings.unused"):
        practicum.run_sync(practicum.evaluate(make_tasks(1), Context(), parts=parts, engine="ray"))


def test_an_address_at_which_no_cluster_answers_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with refused("cluster.unreachable"):
        evaluated(engine="ray", ray_address=f"127.0.0.1:{port}")
    for address in ("nonsense", "ray://127.0.0.1:10001", "127.0.0.1:port"):
        with refused("cluster.unreachable"):
            evaluated(engine="ray", ray_address=address)


class Client:
    """Cannot be pickled, as clients cannot."""

    def __init__(self) -> None:
        self.locks = {"first": threading.Lock()}


def test_what_cannot_be_pickled_is_named_with_its_path() -> None:
    held = Client()

    def agent(input: str, context: str) -> str:
        return str(held)

    with refused("cluster.not_portable"):
        pickled(agent, "Parts.agent")
    with refused("cluster.not_portable"):
        pickled(partial(print, held), "Parts.agent")
    assert pickled(Context(), "Parts.agent")
