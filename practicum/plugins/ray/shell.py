"""The process of a worker, as Ray starts it. Its code travels by value, so that it can say what the worker lacks even
where practicum itself cannot be imported there."""

from __future__ import annotations

from typing import Any


class Shell:
    """Runs the jobs that it is given, many at once. Everything that crosses is pickled bytes, and what a worker lacks
    is told as the name of the module and the error."""

    def __init__(self, paths: list[str]) -> None:
        import os
        import sys

        # After what the worker has itself: folders of the driver that are on this machine too.
        sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]

    async def ready(self) -> tuple[str, str]:
        """The id of the node, and its address."""
        import ray

        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    async def load(self, cargo: str, refs: list[Any], threads: int) -> tuple[str, str] | None:
        """Load what jobs are about: the agent or the scorer. Returns the module that is missing, and the error."""
        try:
            from practicum.plugins.ray import worker
        except ImportError as error:
            return error.name or str(error), str(error)
        found: tuple[str, str] | None = await worker.load(cargo, refs, threads)
        return found

    async def begin(self, key: str, cargo: str, job: bytes) -> bytes:
        """Begin a job; what it asks for first, or how it ended."""
        from practicum.plugins.ray import worker

        said: bytes = await worker.begin(key, cargo, job)
        return said

    async def answer(self, key: str, answer: bytes) -> bytes:
        """Go on with a job, given the answer to what it asked for; what it asks for next, or how it ended."""
        from practicum.plugins.ray import worker

        said: bytes = await worker.answer(key, answer)
        return said

    async def cancel(self, key: str) -> None:
        """End a job that nobody waits for any more."""
        from practicum.plugins.ray import worker

        await worker.cancel(key)
