"""Entry point of a worker process that Ray starts. This module is pickled by value, so that its code can report missing
modules even if practicum itself cannot be imported on the worker."""

from __future__ import annotations

from typing import Any


class Shell:
    """Ray actor that runs several jobs concurrently. Jobs, requests, answers and outcomes are passed as pickled
    bytes."""

    def __init__(self, paths: list[str]) -> None:
        import os
        import sys

        # `paths` has the folders of the run's process. Add the folders that exist on this machine, after the worker's
        # own paths.
        sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]

    async def ready(self) -> tuple[str, str]:
        """Return the id of the node and its address."""
        import ray

        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    async def load(self, cargo: str, refs: list[Any], threads: int) -> tuple[str, str] | None:
        """Load the agent or the scorer of the jobs. Return None; if a module is missing, return the name of the module
        and the error."""
        try:
            from practicum.plugins.ray import worker
        except ImportError as error:
            return error.name or str(error), str(error)
        missing: tuple[str, str] | None = await worker.load(cargo, refs, threads)
        return missing

    async def begin(self, key: str, cargo: str, job: bytes) -> bytes:
        """Start a job. Return the job's first request, or the job's outcome."""
        from practicum.plugins.ray import worker

        message: bytes = await worker.begin(key, cargo, job)
        return message

    async def answer(self, key: str, answer: bytes) -> bytes:
        """Resume a job with the answer to the job's request. Return the job's next request, or the job's outcome."""
        from practicum.plugins.ray import worker

        message: bytes = await worker.answer(key, answer)
        return message

    async def cancel(self, key: str) -> None:
        """Cancel a job that the run no longer waits for."""
        from practicum.plugins.ray import worker

        await worker.cancel(key)
