"""The cluster that a run joins, or the Ray of this machine that it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install
from practicum.engine.resources import Resources, shown
from practicum.plugins.ray.pickling import modules_beside, own_folders

ANSWERS = 5.0
"""Seconds within which an address must accept a connection."""

STARTED, JOINED = 120.0, 20.0
"""Seconds within which a Ray of this machine must have started, and a cluster let this process join."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}  # fmt: skip
"""What Ray is told by its environment: it reports nothing to its makers, leaves the variables of accelerators as they
are, and keeps off the user's terminal the logs of a node that is lost, which it prints there even with
`log_to_driver=False`."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A machine of the cluster, and what it offers."""

    id: str
    address: str
    offers: dict[str, float]


def nodes() -> list[ClusterNode]:
    """The machines that are alive."""
    import ray

    return [
        ClusterNode(each["NodeID"], each["NodeManagerAddress"], _own(each["Resources"]))
        for each in ray.nodes()
        if each["Alive"]
    ]


def _own(offered: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in sorted(offered.items()) if not name.startswith("node:")}


def check_room(resources: Resources) -> None:
    """Raises UsageError if no node of the cluster could ever hold an attempt, which says what each has."""
    demand, found = resources.demand, nodes()
    offered = {name for node in found for name in node.offers}
    if unknown := sorted(resources.other.keys() - offered):
        known = ", ".join(sorted({"cpu", "gpu", "memory", "image"} | offered - {"CPU", "GPU", "object_store_memory"}))
        raise UsageError(
            "cluster.no_room", f"no node of the cluster offers {unknown[0]!r} of `resources`: known are {known}"
        )
    if not any(all(node.offers.get(name, 0.0) >= amount for name, amount in demand.items()) for node in found):
        has = "; ".join(f"{node.address} has {shown(node.offers)}" for node in found)
        shared = f" ({resources.at_once} attempts share it)" if resources.at_once > 1 else ""
        raise UsageError(
            "cluster.no_room",
            f"no node of the cluster has room for a process of attempts, which takes {resources}{shared}: {has}. Ask "
            "for less with `resources`, or add a node",
        )


@asynccontextmanager
async def joined(address: str | None) -> AsyncIterator[None]:
    """Within the block this process is part of a cluster: the one at the address, "auto" for one of this machine, or
    else a Ray that is started on this machine for the block alone. A connection of the caller's own stays, and is used.

    Raises UsageError within seconds if Ray is not installed, if no cluster answers, or if the caller's own connection
    is to another cluster.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError("extra.missing", f"`engine=ray` needs Ray: {pip_install('ray')}") from error
    if ray.is_initialized():
        if address not in (None, "auto"):
            await _check_connected(address)
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    how: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    if address == "local":
        how["include_dashboard"] = False
    else:
        if address != "auto":
            await _check_answers(address)
        modules = [path for folder in own_folders() for path in modules_beside(folder)]
        how["runtime_env"] = {"py_modules": [str(Path(__file__).parents[2]), *modules]}
    # Its warnings are about what practicum decides itself.
    logging.getLogger("ray").setLevel(logging.ERROR)
    connection, seconds = _Connection(address, how), STARTED if address == "local" else JOINED
    try:
        await asyncio.wait_for(connection.join(), seconds)
    except TimeoutError:
        said = (
            "Ray did not start on this machine" if address == "local" else f"nothing at {address} let this process in"
        )
        raise UsageError(
            "cluster.unreachable",
            f"{said} within {seconds:g} s. The address of a cluster is that of its head, as ray start --head prints it",
        ) from None
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        said = (
            "Ray could not be started on this machine" if address == "local" else f"cannot join a cluster at {address}"
        )
        raise UsageError("cluster.unreachable", f"{said}: {why}") from error
    try:
        yield
    finally:
        await connection.leave()


async def _check_answers(address: str) -> tuple[str, int]:
    """Raises UsageError if nothing listens at the address. Returns the numbers of the host and the port."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UsageError(
            "cluster.unreachable",
            f"`ray_address={address}` is no address of a cluster: give HOST:PORT of its head (6379 is usual), or auto. "
            "What is behind ray://... is joined from inside: ray job submit -- practicum learn ...",
        )
    try:
        async with asyncio.timeout(ANSWERS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, OverflowError) as error:
        why = "it did not answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise UsageError("cluster.unreachable", f"no cluster answers at `ray_address={address}`: {why}") from error
    number: str = writer.get_extra_info("peername")[0]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return number, int(port)


async def _check_connected(address: str) -> None:
    """Raises UsageError if the cluster that this process is part of is not the one at the address."""
    import ray

    connected = ray.get_runtime_context().gcs_address
    here = ray.util.get_node_ip_address()
    asked, joined = [
        (here if ipaddress.ip_address(number).is_loopback else number, port)
        for number, port in (await _check_answers(address), await _check_answers(connected))
    ]
    if asked != joined:
        raise UsageError(
            "cluster.mismatch",
            f"`ray_address={address}` is not the cluster that this process has joined, which is {connected}: call "
            "ray.shutdown() first, or leave `ray_address` out",
        )


class _Connection:
    """Joins in a thread of its own that stays until it leaves: what Ray starts ends with the thread that started it.
    Nothing waits for the thread, not even the exit."""

    def __init__(self, address: str, how: dict[str, Any]) -> None:
        self._address, self._how, self._leave = address, how, threading.Event()
        self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._left: asyncio.Future[None] = self._loop.create_future()

    async def join(self) -> None:
        threading.Thread(target=self._stay, name="Ray", daemon=True).start()
        await self._joined

    async def leave(self) -> None:
        self._leave.set()
        await self._left

    def _stay(self) -> None:
        import ray

        try:
            ray.init(address=self._address, **self._how)
        except BaseException as error:
            self._tell(self._joined, error)
            return
        self._tell(self._joined)
        self._leave.wait()
        ray.shutdown()
        self._tell(self._left)

    def _tell(self, future: asyncio.Future[None], error: BaseException | None = None) -> None:
        def tell() -> None:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

        # The loop may be closed by now, if nobody waited any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)
