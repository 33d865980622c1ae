"""Connection to a Ray cluster: joins an existing cluster, or starts and stops Ray on this machine."""

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
from practicum.plugins.ray.pickling import modules_in, own_folders

ANSWERS = 5.0
"""Timeout (s) for a first connection to an address, to check that a server answers there."""

STARTED, JOINED = 120.0, 20.0
"""Timeout (s) for starting Ray on this machine, and for joining a cluster."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}  # fmt: skip
"""Environment variables for Ray: disable Ray's usage statistics, keep the accelerator variables unchanged, and skip all
log lines, because Ray prints the logs of a lost node on the terminal even with `log_to_driver=False`."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster. `offers` has the amounts of the resources that the node offers, by name."""

    id: str
    address: str
    offers: dict[str, float]


def nodes() -> list[ClusterNode]:
    """Return the nodes that are alive."""
    import ray

    return [
        ClusterNode(each["NodeID"], each["NodeManagerAddress"], _own(each["Resources"]))
        for each in ray.nodes()
        if each["Alive"]
    ]


def _own(offered: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in sorted(offered.items()) if not name.startswith("node:")}


def check_room(resources: Resources) -> None:
    """Raise UsageError if no node is large enough for a worker that needs `resources`. The message lists the resources
    of each node."""
    demand, alive = resources.demand, nodes()
    offered = {name for node in alive for name in node.offers}
    if unknown := sorted(resources.other.keys() - offered):
        names = ", ".join(sorted({"cpu", "gpu", "memory", "image"} | offered - {"CPU", "GPU", "object_store_memory"}))
        raise UsageError(
            "cluster.no_room", f"no node of the cluster offers {unknown[0]!r} of `resources`: available are {names}"
        )
    if not any(all(node.offers.get(name, 0.0) >= amount for name, amount in demand.items()) for node in alive):
        offers = "; ".join(f"{node.address} has {shown(node.offers)}" for node in alive)
        shared = f" ({resources.at_once} attempts share one process)" if resources.at_once > 1 else ""
        raise UsageError(
            "cluster.no_room",
            f"no node of the cluster has room for a worker process, which needs {resources}{shared}: {offers}. Reduce "
            "`resources`, or add a node",
        )


@asynccontextmanager
async def joined(address: str | None) -> AsyncIterator[None]:
    """Connect this process to a cluster for the duration of the block.

    `address` is HOST:PORT of the cluster's head, or "auto" for a cluster on this machine. If `address` is None, the
    environment variable RAY_ADDRESS names the cluster; without that variable, Ray is started on this machine and
    stopped after the block. If the caller has already connected this process to Ray, the caller's connection is used
    and stays open.

    Raises UsageError within seconds if Ray is not installed, if no cluster answers, or if the caller's connection is to
    another cluster.
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
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    if address == "local":
        options["include_dashboard"] = False
    else:
        if address != "auto":
            await _check_answers(address)
        modules = [path for folder in own_folders() for path in modules_in(folder)]
        options["runtime_env"] = {"py_modules": [str(Path(__file__).parents[2]), *modules]}
    # Hide Ray's warnings: they concern settings that practicum chose on purpose.
    logging.getLogger("ray").setLevel(logging.ERROR)
    connection, seconds = _Connection(address, options), STARTED if address == "local" else JOINED
    try:
        await asyncio.wait_for(connection.join(), seconds)
    except TimeoutError:
        problem = "Ray did not start on this machine" if address == "local" else f"cannot join a cluster at {address}"
        raise UsageError(
            "cluster.unreachable",
            f"{problem} within {seconds:g} s. Use the address of the cluster's head, as printed by ray start --head",
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        problem = (
            "Ray could not be started on this machine" if address == "local" else f"cannot join a cluster at {address}"
        )
        raise UsageError("cluster.unreachable", f"{problem}: {reason}") from error
    try:
        yield
    finally:
        await connection.leave()


async def _check_answers(address: str) -> tuple[str, int]:
    """Return the IP address and the port of `address`. Raise UsageError if `address` is invalid, or if no server
    answers there."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UsageError(
            "cluster.unreachable",
            f"`ray_address={address}` is not the address of a cluster: use HOST:PORT of the cluster's head (default "
            "port: 6379), or auto. For a ray://... cluster, start the run on the cluster: ray job submit -- practicum "
            "learn ...",
        )
    try:
        async with asyncio.timeout(ANSWERS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, OverflowError) as error:
        reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise UsageError("cluster.unreachable", f"no cluster answers at `ray_address={address}`: {reason}") from error
    ip: str = writer.get_extra_info("peername")[0]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ip, int(port)


async def _check_connected(address: str) -> None:
    """Raise UsageError if the cluster that this process is connected to is not the cluster at `address`."""
    import ray

    connected = ray.get_runtime_context().gcs_address
    here = ray.util.get_node_ip_address()
    requested, joined = [
        (here if ipaddress.ip_address(ip).is_loopback else ip, port)
        for ip, port in (await _check_answers(address), await _check_answers(connected))
    ]
    if requested != joined:
        raise UsageError(
            "cluster.mismatch",
            f"`ray_address={address}` is not the cluster that this process has joined ({connected}): call "
            "ray.shutdown() first, or omit `ray_address`",
        )


class _Connection:
    """Connection to Ray, made in a thread that runs until `leave`, because the processes that Ray starts end with the
    thread that called `ray.init`. The thread is a daemon: this process does not wait for the thread at exit."""

    def __init__(self, address: str, options: dict[str, Any]) -> None:
        self._address, self._options, self._leave = address, options, threading.Event()
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
            ray.init(address=self._address, **self._options)
        except BaseException as error:
            self._settle(self._joined, error)
            return
        self._settle(self._joined)
        self._leave.wait()
        ray.shutdown()
        self._settle(self._left)

    def _settle(self, future: asyncio.Future[None], error: BaseException | None = None) -> None:
        def settle() -> None:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

        # The event loop may be closed already, if the caller stopped waiting for the connection.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle)
