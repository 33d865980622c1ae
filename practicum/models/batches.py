"""Client that sends its calls in batches, through the batch APIs of OpenAI and Anthropic: for about half the price, and
with answers within a day.

Calls that arrive together are sent as one batch. The batch is noted in the run's journal before anything waits for it,
so a run that was stopped or killed during the wait collects the answers on resume, and sends none of the calls again.
pydantic-ai encodes, sends, reads and decodes the batches.

Neither API has an idempotency key, and pydantic-ai passes no metadata. If the process is killed, or the reply is
lost, between the creation of a batch and its note, the batch is lost: its calls count as spent at their highest cost
after a kill, and are sent again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from practicum.core.errors import PracticumError
from practicum.models.chat import provided_reply
from practicum.models.client import JSON, BatchRecord, CallOptions, Reply, Wait
from practicum.models.provider import ProviderClient, SentRequest
from practicum.models.transport import RefusedReply

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.models.batch import Batch, BatchResult, EncodedBatchRequest

QUIET = 1.0
"""Time (s) without a new call after which the waiting calls are sent."""

FIRST_CHECK, CHECK_GROWTH, LONGEST_CHECK = 1.0, 1.5, 300.0
"""Time (s) from the creation of a batch to the first check of its state, factor by which the time between two checks
grows, and its maximum (s)."""

FAILED_CHECKS = 10
"""Maximum number of failed checks in a row. After more, the calls of the batch fail; a resume checks it again."""

TRANSIENT, OF_ACCOUNT = (408, 409, 425, 429), (401, 402, 403)
"""Statuses below 500 that may be different at the next check, and statuses about the key or the account."""

KEPT = timedelta(days=28)
"""Age of a batch up to which its results are read. Anthropic keeps results for 29 days, OpenAI for 30."""

MAX_RESULTS_MB = 1_000
"""Maximum size (MB) of the file with the results of a batch."""

MAX_IN_FLIGHT = 100_000
"""Maximum number of calls in flight: no run is limited by it."""


@dataclass(eq=False)
class _Job:
    """Batch that is collected, sent or finished, with its requests by key.

    `due` is the time (s, monotonic) at which the batch is sent or checked next, `work` the task that does this, and
    `resumed` whether an earlier process sent the batch. `results` is None until the batch has ended; `error` is the
    reason why it has no results.
    """

    due: float
    size: int = 0
    requests: dict[str, EncodedBatchRequest] = field(default_factory=dict)
    records: dict[str, BatchRecord] = field(default_factory=dict)
    batch: Batch | None = None
    resumed: bool = False
    pause: float = field(default_factory=lambda: FIRST_CHECK)
    failed_checks: int = 0
    work: asyncio.Task[None] | None = None
    results: dict[str, BatchResult] | None = None
    error: Exception | None = None

    @property
    def ended(self) -> bool:
        return self.results is not None or self.error is not None

    def wait(self, model: str) -> Wait:
        """Return the wait until the batch is sent or checked."""
        size, id = (len(self.requests), "") if self.batch is None else (self.batch.request_count, self.batch.id)
        return Wait(model, max(self.due - time.monotonic(), 0.0), 0, 0, id, batch=size)


@dataclass(kw_only=True)
class BatchClient(ProviderClient):
    """Client of a provider's model that sends calls in batches. `CallOptions.timeout` does not apply."""

    slots: int | None = MAX_IN_FLIGHT
    _collecting: dict[str, _Job] = field(default_factory=dict, init=False)
    _resumed: dict[str, _Job] = field(default_factory=dict, init=False)

    def _settings(self, options: CallOptions) -> dict[str, Any]:
        settings = super()._settings(options)
        del settings["timeout"]
        return settings

    async def _ask(self, model: Any, request: SentRequest, options: CallOptions) -> Reply:
        from pydantic_ai.exceptions import ModelAPIError
        from pydantic_ai.models.batch import BatchRequest

        key = options.key or token_hex(16)
        messages, settings, parameters = self._arguments(model, request)
        asked = BatchRequest(
            custom_id=key, messages=messages, model_settings=settings, model_request_parameters=parameters
        )
        result = await self._earlier_result(model, key, options)
        if result is None:
            job = self._join(model, await model.batch_encode(asked), options.record)
            result = await self._result(model, job, key, options)
        if result is None:
            raise ModelAPIError(model.model_name, "the batch ended without a result for the request")
        if result.status == "canceled":
            raise RefusedReply("provider.failed", "the batch was cancelled before it ran the request")
        return provided_reply(model.batch_decode(result, asked))

    async def _earlier_result(self, model: Model, key: str, options: CallOptions) -> BatchResult | None:
        """Return the answer in a batch that an earlier process sent, or None. Other results than answers cost nothing,
        so their requests are sent again."""
        from pydantic import TypeAdapter
        from pydantic_ai.models.batch import Batch

        if options.record is None or (stored := options.record.take_batch(key)) is None:
            return None
        batch = TypeAdapter(Batch).validate_python(stored)
        if datetime.now(UTC) - batch.created_at > KEPT:
            return None
        job = self._resumed.setdefault(batch.id, _Job(time.monotonic(), batch=batch, resumed=True))
        result = await self._result(model, job, key, options)
        return result if result is not None and result.status == "succeeded" else None

    def _join(self, model: Model, encoded: EncodedBatchRequest, record: BatchRecord | None) -> _Job:
        """Add a request to the batch that is collected, or to a new batch if that one is full, or has a request of
        another run with the same key."""
        job, size = self._collecting.get(encoded.group), model.batch_request_size(encoded)
        most_requests, most_bytes = model.batch_max_requests or 1, model.batch_max_bytes or size
        full = job is not None and (len(job.requests) >= most_requests or job.size + size > most_bytes)
        if job is None or full or encoded.custom_id in job.requests:
            job = self._collecting[encoded.group] = _Job(0.0)
        job.requests[encoded.custom_id] = encoded
        if record is not None:
            job.records[encoded.custom_id] = record
        job.size, job.due = job.size + size, time.monotonic() + QUIET
        return job

    async def _result(self, model: Model, job: _Job, key: str, options: CallOptions) -> BatchResult | None:
        """Wait until a batch has ended, and return the result of one of its requests. All calls of the batch wait here,
        and the first call that is due sends or checks the batch for all."""
        try:
            while not job.ended:
                if job.work is None:
                    await options.wait(job.wait(self.name))
                if job.work is None and job.due <= time.monotonic() and not job.ended:
                    job.work = asyncio.create_task(self._advance(model, job))
                if job.work is not None:
                    await asyncio.shield(job.work)
        except BaseException:
            if job.batch is None:
                if job.work is None:
                    job.requests.pop(key, None)
                    job.records.pop(key, None)
                else:  # the batch may exist, so its note is written before the run ends
                    await asyncio.shield(job.work)
            raise
        if job.error is not None:
            raise job.error
        assert job.results is not None
        return job.results.get(key)

    async def _advance(self, model: Model, job: _Job) -> None:
        """Send the batch, or check its state."""
        try:
            if job.batch is None:
                await self._send(model, job)
            else:
                await self._check(model, job, job.batch)
        except PracticumError as error:
            # The calls must not be sent again, for example because the note could not be written.
            job.error = RefusedReply(error.code, str(error))
        except Exception as error:
            job.error = _provider_error(model, error)
        finally:
            job.work = None

    async def _send(self, model: Model, job: _Job) -> None:
        from pydantic import TypeAdapter
        from pydantic_ai.models.batch import Batch

        for group, collecting in [*self._collecting.items()]:
            if collecting is job:
                del self._collecting[group]
        requests = [*job.requests.values()]
        batch = await model.batch_create(requests)
        stored: JSON = TypeAdapter(Batch).dump_python(batch, mode="json")
        for record in {id(record): record for record in job.records.values()}.values():
            await record.note_batch(batch.id, stored, [key for key, own in job.records.items() if own is record])
        job.batch, job.due = batch, time.monotonic() + job.pause

    async def _check(self, model: Model, job: _Job, batch: Batch) -> None:
        try:
            job.batch = await model.batch_status(batch)
            results = await model.batch_results(job.batch) if job.batch.status == "ended" else None
        except Exception as error:
            status = getattr(error, "status_code", None)
            transient = status is None or status in TRANSIENT or status >= 500
            job.failed_checks += 1
            if job.resumed and status == 404:
                job.results = {}  # the provider has deleted the batch
            elif status in OF_ACCOUNT:
                raise
            elif not transient or job.failed_checks > FAILED_CHECKS:
                raise RefusedReply("provider.failed", f"batch {batch.id} cannot be read: {error}") from error
        else:
            job.failed_checks = 0
            if results is not None:
                job.results = {result.custom_id: result for result in results}
        job.pause = min(job.pause * CHECK_GROWTH, LONGEST_CHECK)
        job.due = time.monotonic() + job.pause


def _provider_error(model: Model, error: Exception) -> Exception:
    """Return an error of a provider's library as the error of pydantic-ai that `models.failures` classifies."""
    from pydantic_ai.exceptions import ModelHTTPError

    status = getattr(error, "status_code", None)
    return error if status is None else ModelHTTPError(status, model.model_name, getattr(error, "body", None))
