"""OpenTelemetry traces of a run, following the semantic conventions for generative AI.

Each step and each evaluation is a trace: `step 3` > `attempt` > `0.t17` > `chat gpt-4.1-mini`. The span of a model call
is sent when the call ends. The spans that contain it (step or evaluation, attempt, task) are sent when the step or the
evaluation ends. The start time of a containing span is the start time of the model call that ended first within it.
Calls that a resume reads from the journal are not sent again.
https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from practicum.core.counts import Count
from practicum.core.types import Score, Task
from practicum.core.visible import visible_line
from practicum.engine.loop import StepReport
from practicum.engine.state import ModelCall
from practicum.models.otlp import (
    NANO,
    counting_exporter,
    first_set,
    model_attributes,
    require_spans,
    resource,
    usage_attributes,
)
from practicum.plugins.trackers.tracker import PATIENCE, log
from practicum.session.result import Evaluation, Progress, Result, RunInfo, Watch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable (defined by the conventions) that adds prompts and outputs of models to the spans."""

QUEUE = 100_000
"""Maximum number of spans in the send queue. The maximum is high because the end of an evaluation adds the spans of all
tasks of the evaluation at once."""

Path = tuple[str, ...]


class Otel(Watch):
    """Tracker that sends a span for each model call over OTLP (HTTP, protobuf), configured by the variables OTEL_*.

    `exporter` replaces the OTLP exporter with another exporter of the OpenTelemetry SDK. The first failure to send is
    logged, and all lost spans are counted. Raises UsageError if a package is missing, or if, without `exporter`, the
    variables OTEL_* request a protocol other than HTTP with protobuf.
    """

    def __init__(self, exporter: SpanExporter | None = None, *, name: str | None = None, group: str | None = None):
        require_spans(exporter)
        self.name, self.group = name, group
        self._configured = exporter
        self._content = os.environ.get(CONTENT, "").lower() in ("true", "span_only", "span_and_event")

    def began(self, run: RunInfo) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._run, self._exporter = run, counting_exporter(self._configured, log, "the run continues without them")
        self._provider = TracerProvider(resource=resource())
        size = int(first_set("OTEL_BSP_MAX_QUEUE_SIZE") or QUEUE)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, max_queue_size=size))
        self._tracer = self._provider.get_tracer("practicum")
        self._open: dict[Path, dict[Path, Span]] = {}
        self._ends: dict[Path, int] = {}
        common = {"practicum.run": self.name or run.folder.name, "practicum.method": run.config.method}
        self._common = common | ({"practicum.group": self.group} if self.group else {})

    def called(self, call: ModelCall) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        end, path = time.time_ns(), _path(call.place)
        start, unit = end - int(call.seconds * NANO), _unit(path)
        spans = self._open.setdefault(unit, {})
        # Start from an empty context, so that a span of another tracer in this process does not become the parent of
        # this run's spans.
        parent = Context()
        for part in [path[:n] for n in range(len(unit), len(path))] or [unit]:
            if part not in spans:
                attributes = self._attempt(part[-1]) if _evaluates(unit) and len(part) == len(unit) + 1 else {}
                attributes |= {**self._common, "practicum.place": "/".join(part)}
                name = visible_line(part[-1])
                spans[part] = self._tracer.start_span(name, parent, attributes=attributes, start_time=start)
            parent, self._ends[part] = set_span_in_context(spans[part], Context()), end
        attributes = {**self._common, "practicum.role": call.role, "practicum.place": call.place}
        attributes |= call_attributes(call)
        if self._content:
            attributes |= contents(call)
        name = f"chat {attributes['gen_ai.request.model']}"
        span = self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes, start_time=start)
        if call.error is not None:
            span.set_status(Status(StatusCode.ERROR, call.error if self._content else None))
        span.end(end)

    def scored(self, task: Task, score: Score | None) -> None:
        for unit, spans in self._open.items():
            if _evaluates(unit) and (span := spans.get((*unit, task.id))):
                span.set_attributes(self._score(score))

    def stepped(self, report: StepReport, progress: Progress) -> None:
        for unit, spans in [*self._open.items()]:
            if unit[-1] == f"step {report.step}":
                for attempt in (attempt for first in report.attempts for attempt in first.group):
                    if (span := spans.get(_path(attempt.place))) is not None:
                        span.set_attributes(self._attempt(attempt.task.id) | self._score(attempt.score))
                context, score = report.context, progress.score
                attributes = {"practicum.entries": len(context), "practicum.version": context.version}
                spans[unit].set_attributes(attributes | ({} if score is None else {"practicum.score": score}))
                self._end(unit)
            elif _evaluates(unit):
                self._end(unit)

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        for unit in filter(_evaluates, [*self._open]):
            if score is not None:
                self._open[unit][unit].set_attribute("practicum.score", score)
            self._end(unit)

    def ended(self, result: Result | Evaluation | None) -> None:
        for unit in [*self._open]:
            self._end(unit)

    async def flush(self) -> None:
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, PATIENCE)
        self._run.counts[Count.UNTRACKED_RECORDS] += self._exporter.lost

    def _attempt(self, task: str) -> dict[str, Any]:
        """Return the attributes of an attempt. The conventions call an attempt an invocation of an agent."""
        agent = self._run.config.agent
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, "practicum.task": task}

    def _score(self, score: Score | None) -> dict[str, Any]:
        """Return the attributes of a score. The conventions call a score an evaluation."""
        if score is None:
            return {}
        attributes = {"name": self._run.config.scorer or "score", "score.value": score.value}
        attributes["score.label"] = "correct" if score.correct else "wrong"
        return {f"gen_ai.evaluation.{name}": value for name, value in attributes.items()}

    def _end(self, unit: Path) -> None:
        """End the span of a step or an evaluation, and all open spans within that span."""
        for path, span in self._open.pop(unit).items():
            span.end(self._ends.pop(path))


def _path(place: str) -> Path:
    """Return the unescaped parts of a place."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in place.split("/"))


def _unit(path: Path) -> Path:
    """Return the path of the step or the evaluation that contains the place at `path`. If none contains the place,
    return the first part of `path`."""
    for n, part in enumerate(path[:-1], 1):
        if part.startswith(("step ", "evaluate ")):
            return path[:n]
    return path[:1]


def _evaluates(unit: Path) -> bool:
    return unit[-1].startswith("evaluate ")


def call_attributes(call: ModelCall) -> dict[str, Any]:
    """Return the attributes of a model call in the conventions: model, options, usage and error."""
    attributes = model_attributes(call.model)
    options = call.options
    values = {"temperature": options.temperature, "seed": options.seed, "max_tokens": options.max_output_tokens}
    attributes |= {f"gen_ai.request.{option}": value for option, value in values.items() if value is not None}
    if call.error is not None:
        return {**attributes, "error.type": "_OTHER"}
    usage = call.usage
    attributes |= usage_attributes(usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return attributes if usage.usd is None else {**attributes, "practicum.usd": usage.usd}


def contents(call: ModelCall) -> dict[str, str]:
    """Return the prompt and the output of a model call, as JSON in the format of the conventions."""

    def message(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    prompt = call.prompt
    turns = [m for turn in prompt.turns for m in (message("user", turn.user), message("assistant", turn.assistant))]
    messages: Mapping[str, Any] = {
        "gen_ai.system_instructions": [{"type": "text", "content": prompt.head}] if prompt.head else [],
        "gen_ai.input.messages": [*turns, message("user", prompt.user)],
        "gen_ai.output.messages": [] if call.error is not None else [message("assistant", call.text)],
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in messages.items() if value}
