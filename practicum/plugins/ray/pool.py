"""Pool of worker processes on the nodes of a cluster, each with several concurrent attempts.

A worker is an async Ray actor, not a Ray task, so that many attempts that wait for a model or a server share one
process. The run resumes a waiting attempt by a call to the actor. Ray chooses the node of a worker; an attempt goes to
the worker with the fewest attempts. A lost worker is replaced, and the attempts on the lost worker are repeated on
other workers.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any

from practicum.core.errors import AgentError, PracticumError, UsageError
from practicum.engine.resources import Resources, shown
from practicum.plugins.ray import connection
from practicum.plugins.ray.messages import Job, RayAnswer, RayOutcome, RayRequest
from practicum.plugins.ray.pickling import own_paths
from practicum.plugins.ray.shell import Shell

CRASHES = 3
"""Number of worker crashes during an attempt after which the attempt fails, because the attempt may cause the crashes.
The loss of a whole node does not count as a crash."""

IDLE = 30.0
"""Time (s) without an attempt after which a worker is returned to the cluster."""

LOOK = 0.5
"""Interval (s) at which the pool checks whether the budget of a run still allows the run's attempts to wait for a
worker."""

LONG = 5.0
"""Time (s) without any worker after which the pool warns that the cluster is full."""

OVERHEAD = 16
"""Number of concurrent calls that a worker accepts in addition to the calls of its attempts."""

CHECKED = 60.0
"""Timeout (s) for a node to load the agent or the scorer."""


@dataclass(frozen=True)
class Cargo:
    """Pickled agent or scorer: the name for messages, the key (a digest of the bytes), and Ray's reference to the
    bytes."""

    name: str
    key: str
    ref: Any


@dataclass(eq=False)
class Worker:
    """Worker process: its Ray actor, its node, and the number of attempts in progress on it (`jobs`)."""

    actor: Any
    node: str = ""
    address: str = ""
    jobs: int = 0
    loaded: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    lost: bool = False
    retiring: asyncio.TimerHandle | None = None


class Pool:
    """Pool of workers. Each worker needs `resources`."""

    def __init__(self, resources: Resources) -> None:
        import ray
        from ray import cloudpickle

        from practicum.plugins.ray import shell

        cloudpickle.register_pickle_by_value(shell)
        demand = dict(resources.demand)
        # Ray must not restart workers or retry calls: only this process has the answers that a repeated attempt needs.
        options: dict[str, Any] = {
            "num_cpus": demand.pop("CPU"), "num_gpus": demand.pop("GPU", 0), "max_restarts": 0, "max_task_retries": 0,
            "max_concurrency": 2 * resources.at_once + OVERHEAD,
        }  # fmt: skip
        if memory := demand.pop("memory", 0):
            options["memory"] = memory
        if resources.image:
            options["runtime_env"] = {"image_uri": resources.image}
        self.resources, self.at_once = resources, resources.at_once
        self._listeners: list[Callable[[str], None]] = []
        self._class = ray.remote(Shell)
        self._options = {**options, "resources": demand}
        self._paths = own_paths()
        self._workers: list[Worker] = []
        self._starting: dict[asyncio.Task[None], Worker] = {}
        self._waiting: deque[tuple[asyncio.Future[Worker], Callable[[], None]]] = deque()
        self._looking: asyncio.Task[None] | None = None
        self._keys = count()
        self._failures = 0
        self._cargo: dict[str, Cargo] = {}

    @property
    def nodes(self) -> list[str]:
        """Ids of the nodes that have workers."""
        return list(dict.fromkeys(worker.node for worker in self._workers))

    @contextmanager
    def warnings_to(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Send warnings of the pool to `listener` within the block: lost workers, and long waits."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def cargo(self, name: str, data: bytes) -> Cargo:
        """Return the cargo of a pickled agent or scorer. The first call for the same `data` checks and stores the
        cargo. Raises UsageError if a node cannot load the cargo."""
        import ray

        key = sha256(data).hexdigest()
        if key not in self._cargo:
            cargo = Cargo(name, key, ray.put(data))
            await self._check(cargo)
            self._cargo[key] = cargo
        return self._cargo[key]

    async def _check(self, cargo: Cargo) -> None:
        """Load the cargo once on every node that is large enough for a worker. Raise UsageError, with the address of
        the node and the reason, if a node cannot load the cargo."""
        from ray.exceptions import RayActorError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        connection.check_room(self.resources)
        demand = self.resources.demand
        fit = [n for n in connection.nodes() if all(n.offers.get(k, 0) >= v for k, v in demand.items())]
        options = {key: value for key, value in self._options.items() if key == "runtime_env"}

        async def check(node: connection.ClusterNode) -> None:
            strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
            actor = self._class.options(num_cpus=0, scheduling_strategy=strategy, **options).remote(self._paths)
            worker = Worker(actor, node.id, node.address)
            try:
                await asyncio.wait_for(self._load(worker, cargo), CHECKED)
            except RayActorError as error:
                if any(each.id == node.id for each in connection.nodes()):
                    raise UsageError(
                        "cluster.worker_failed",
                        f"a worker on {node.address} ended while it loaded {cargo.name}: {_brief(error)}",
                    ) from error
                # The node left the cluster during the check.
            except TimeoutError:
                raise UsageError(
                    "cluster.worker_failed",
                    f"the node {node.address} did not start a worker within {CHECKED:g} s: check the node's logs, or "
                    "remove the node from the cluster",
                ) from None
            finally:
                self._kill(worker)

        await asyncio.gather(*map(check, fit))

    async def run(
        self, cargo: Cargo, job: Job, answer: Callable[[RayRequest], Awaitable[RayAnswer]], check: Callable[[], None],
        moved: Callable[[str, int], None],
    ) -> Any:  # fmt: skip
        """Run a job on a worker and return the job's result. `answer` answers the requests of the job. `check` is
        called while the job waits for a worker, and raises an error to end the wait. `moved` is called with the node,
        and with 1 when the job starts on this node or -1 when the job ends on this node.

        Raises the error of the job, and AgentError if the worker crashes CRASHES times.
        """
        from ray.exceptions import RayActorError

        data, crashes = pickle.dumps(job), 0
        while True:
            worker = await self._lend(check)
            moved(worker.node, 1)
            try:
                return await self._run_on(worker, cargo, data, answer)
            except RayActorError as error:
                first = not worker.lost
                self._lose(worker)
                alive = any(node.id == worker.node for node in connection.nodes())
                crashes += alive
                if first:
                    event = "a worker process ended on" if alive else "the cluster lost the node"
                    reason = _brief(error, 120)
                    self._warn(f"{event} {worker.address}: the worker's attempts are repeated elsewhere ({reason})")
                if crashes == CRASHES:
                    raise AgentError(
                        "agent.failed",
                        f"the worker process ended {CRASHES} times during this attempt, last on {worker.address}: "
                        f"{_brief(error)}",
                    ) from error
            finally:
                moved(worker.node, -1)
                self._give_back(worker)

    async def close(self) -> None:
        """Stop all workers."""
        for worker in [*self._workers, *self._starting.values()]:
            self._kill(worker)
        tasks = [*self._starting, *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.clear()

    async def _run_on(
        self, worker: Worker, cargo: Cargo, data: bytes, answer: Callable[[RayRequest], Awaitable[RayAnswer]]
    ) -> Any:
        """Run a job on this worker and return the job's result."""
        if cargo.key not in worker.loaded:
            worker.loaded[cargo.key] = asyncio.create_task(self._load(worker, cargo))
        await asyncio.shield(worker.loaded[cargo.key])
        key = f"{next(self._keys)}"
        try:
            message = pickle.loads(await worker.actor.begin.remote(key, cargo.key, data))
            while isinstance(message, RayRequest):
                reply = await answer(message)
                message = pickle.loads(await worker.actor.answer.remote(key, pickle.dumps(reply)))
        except BaseException:
            if not worker.lost:
                worker.actor.cancel.remote(key)
            raise
        assert isinstance(message, RayOutcome)
        if message.error is not None:
            raise message.error
        return message.value

    async def _load(self, worker: Worker, cargo: Cargo) -> None:
        from ray.exceptions import RuntimeEnvSetupError

        try:
            missing = await worker.actor.load.remote(cargo.key, [cargo.ref], self.at_once)
        except RuntimeEnvSetupError as error:
            raise UsageError(
                "cluster.worker_failed", f"a node could not set up the environment of {cargo.name}: {_brief(error)}"
            ) from error
        if missing is not None:
            name, reason = missing
            raise UsageError(
                "cluster.worker_failed",
                f"the node {worker.address} cannot load {cargo.name}: {reason}. Install the package of {name!r} on the "
                "node, or set an image with the package in `resources`",
            )

    # ---- assignment of attempts to workers

    async def _lend(self, check: Callable[[], None]) -> Worker:
        """Return the worker with the fewest attempts. If no worker has a free slot, wait until a worker has one."""
        worker = min((w for w in self._workers if w.jobs < self.at_once), key=lambda w: w.jobs, default=None)
        if worker is None:
            turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, check))
            self._grow()
            try:
                return await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self._give_back(turn.result())
                raise
        return self._taken(worker)

    def _taken(self, worker: Worker) -> Worker:
        worker.jobs += 1
        if worker.retiring is not None:
            worker.retiring.cancel()
            worker.retiring = None
        return worker

    def _give_back(self, worker: Worker) -> None:
        worker.jobs -= 1
        if worker.lost:
            return
        self._serve(worker)
        if not worker.jobs and worker.retiring is None:
            worker.retiring = asyncio.get_running_loop().call_later(IDLE, self._retire, worker)

    def _serve(self, worker: Worker) -> None:
        """Assign the free slots of this worker to the attempts that have waited longest."""
        while self._waiting and worker.jobs < self.at_once:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_result(self._taken(worker))

    def _grow(self) -> None:
        """Start the workers that the waiting attempts need."""
        waiting = sum(not turn.done() for turn, _ in self._waiting)
        for _ in range(-(-waiting // self.at_once) - len(self._starting)):
            worker = Worker(self._class.options(**self._options).remote(self._paths))
            self._starting[asyncio.create_task(self._start(worker))] = worker
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _start(self, worker: Worker) -> None:
        from ray.exceptions import RayActorError, RuntimeEnvSetupError

        try:
            worker.node, worker.address = await worker.actor.ready.remote()
        except (RayActorError, RuntimeEnvSetupError) as error:
            worker.lost = True
            self._failures += 1
            if self._failures >= CRASHES or isinstance(error, RuntimeEnvSetupError):
                self._refuse(
                    UsageError("cluster.worker_failed", f"no worker could start on the cluster: {_brief(error)}")
                )
        finally:
            self._starting = {task: each for task, each in self._starting.items() if each is not worker}
        if not worker.lost:
            self._failures = 0
            self._workers.append(worker)
            worker.retiring = asyncio.get_running_loop().call_later(IDLE, self._retire, worker)
            self._serve(worker)

    def _refuse(self, error: Exception) -> None:
        """Fail all attempts that wait for a worker, with this error."""
        for turn, _ in self._waiting:
            if not turn.done():
                turn.set_exception(error)

    async def _look(self) -> None:
        """While attempts wait for a worker, fail the attempts whose check raises, and warn once if no worker
        starts."""
        began, warned = time.monotonic(), False
        while self._waiting:
            await asyncio.sleep(LOOK)
            verdicts: dict[Callable[[], None], Exception | None] = {}
            for turn, check in self._waiting:
                if check not in verdicts:
                    verdicts[check] = _raised(check)
                if (error := verdicts[check]) is not None and not turn.done():
                    turn.set_exception(error)
            self._waiting = deque(each for each in self._waiting if not each[0].done())
            self._grow()
            if self._workers:
                began, warned = time.monotonic(), False
            elif time.monotonic() - began > LONG and not warned:
                warned = True
                await self._warn_full()

    async def _warn_full(self) -> None:
        offers = "; ".join(
            f"{node.address} has {shown(node.offers)}" for node in await asyncio.to_thread(connection.nodes)
        )
        self._warn(f"attempts wait for the cluster: a worker needs {self.resources}, and no node has room: {offers}")

    def _warn(self, text: str) -> None:
        for listener in self._listeners:
            listener(text)

    def _lose(self, worker: Worker) -> None:
        if not worker.lost:
            worker.lost = True
            self._workers = [each for each in self._workers if each is not worker]
            self._kill(worker)

    def _retire(self, worker: Worker) -> None:
        worker.retiring = None
        if not worker.jobs:
            self._lose(worker)

    @staticmethod
    def _kill(worker: Worker) -> None:
        import ray

        worker.lost = True
        if worker.retiring is not None:
            worker.retiring.cancel()
        ray.kill(worker.actor)


def _raised(check: Callable[[], None]) -> Exception | None:
    try:
        check()
    except PracticumError as error:
        return error
    return None


def _brief(error: BaseException, most: int = 300) -> str:
    """Return Ray's error message in one line, without its indented lines, which name Ray's internal objects."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return " ".join(lines)[:most]
