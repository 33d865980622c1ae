"""OpenTelemetry traces of a run, by the semantic conventions for generative AI.

Each step and each evaluation is a trace: `step 3` > `attempt` > `0.t17` > `chat gpt-4.1-mini`. A model call is sent
when it ends, the spans above it when the step or the evaluation does. Calls that a resume finds in the journal are not
sent again. https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from practicum.analysis.monitor.export import NANO
from practicum.analysis.trackers.tracker import PATIENCE, log, require
from practicum.core.counts import Count
from practicum.core.errors import UsageError
from practicum.core.types import Score, Task
from practicum.engine.loop import StepReport
from practicum.engine.state import ModelCall
from practicum.session.evaluate import Evaluation
from practicum.session.result import Progress, Result, RunInfo, Watch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the conventions that lets spans hold what models read and wrote."""

PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

PROVIDERS = {
    "openai-chat": "openai", "openai-responses": "openai", "local": "llama_cpp", "google": "gcp.gemini",
    "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock", "mistral": "mistral_ai",
    "azure": "azure.ai.openai", "grok": "x_ai",
}  # fmt: skip
"""Names of the conventions for the prefixes of models; other prefixes are taken as they are."""

Path = tuple[str, ...]


@dataclass
class _Node:
    """A span above model calls, which is sent when all below it is known; times in nanoseconds."""

    id: int
    start: int
    end: int
    attributes: dict[str, Any] = field(default_factory=dict)


class Otel(Watch):
    """Sends a span for each model call over OTLP (HTTP, protobuf), as the variables OTEL_* say.

    `exporter` is another exporter of the OpenTelemetry SDK. What cannot be sent is said once and counted. Raises
    UsageError if a package is missing or the environment asks for another protocol.
    """

    def __init__(self, exporter: SpanExporter | None = None, *, name: str | None = None, group: str | None = None):
        require("otel", "opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        protocol = next(filter(None, map(os.environ.get, PROTOCOLS)), "http/protobuf")
        if exporter is None and protocol != "http/protobuf":
            raise UsageError(f"spans are sent as http/protobuf only, but {PROTOCOLS[1]} asks for {protocol}")
        self.name, self.group = name, group
        self._given = exporter
        self._nodes: dict[Path, dict[Path, _Node]] = {}
        self._began = False
        self._content = os.environ.get(CONTENT, "").lower() in ("true", "span_only", "span_and_event")

    def began(self, run: RunInfo) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Ids(RandomIdGenerator):
            """The ids that were promised to spans which are sent after those below them."""

            trace: int | None = None
            span: int | None = None

            def generate_trace_id(self) -> int:
                return self.trace or super().generate_trace_id()

            def generate_span_id(self) -> int:
                id, self.span = self.span, None
                return id or super().generate_span_id()

        self._run, self._ids = run, Ids()
        # A name from the environment takes precedence over ours.
        resource = Resource({"service.name": "practicum"}).merge(OTELResourceDetector().detect())
        self._provider: TracerProvider = TracerProvider(resource=resource, id_generator=self._ids)
        self._exporter = _counting(self._given)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer, self._began = self._provider.get_tracer("practicum"), True
        self._traces: dict[Path, tuple[int, bool]] = {}
        self._scores: dict[str, Score] = {}
        about = {"practicum.run": self.name or run.folder.name, "practicum.method": run.config.method}
        self._about = about | ({"practicum.group": self.group} if self.group else {})

    def called(self, call: ModelCall) -> None:
        from opentelemetry.sdk.trace.sampling import Decision
        from opentelemetry.trace import SpanKind, Status, StatusCode

        end = time.time_ns()
        start = end - int(call.seconds * NANO)
        path = tuple(part.replace("%2F", "/").replace("%25", "%") for part in call.place.split("/"))
        unit = _unit(path)
        nodes = self._nodes.setdefault(unit, {})
        if unit not in self._traces:
            self._ids.trace = None
            trace = self._ids.generate_trace_id()
            decision = self._provider.sampler.should_sample(None, trace, unit[-1]).decision
            self._traces[unit] = trace, decision is Decision.RECORD_AND_SAMPLE
        above = [path[:n] for n in range(len(unit), len(path))] or [unit]
        for each in above:
            node = nodes.setdefault(each, _Node(self._ids.generate_span_id(), start, end))
            node.start, node.end = min(node.start, start), max(node.end, end)
        attributes = {
            **self._about,
            "practicum.role": call.role,
            "practicum.place": call.place,
            **call_attributes(call),
        }
        if self._content:
            attributes |= contents(call)
        span = self._tracer.start_span(
            f"chat {attributes['gen_ai.request.model']}", self._below(unit, nodes[above[-1]]), SpanKind.CLIENT,
            attributes, start_time=start,
        )  # fmt: skip
        if call.error is not None:
            span.set_status(Status(StatusCode.ERROR, call.error if self._content else None))
        span.end(end)

    def scored(self, task: Task, score: Score | None) -> None:
        if score is not None:
            self._scores[task.id] = score

    def stepped(self, report: StepReport, progress: Progress) -> None:
        for unit in [unit for unit in self._nodes if unit[-1] == f"step {report.step}" or _evaluates(unit)]:
            for rollout in (one for tried in report.rollouts for one in tried.group):
                path = tuple(part.replace("%2F", "/").replace("%25", "%") for part in rollout.place.split("/"))
                if (node := self._nodes[unit].get(path)) is not None:
                    node.attributes |= self._attempt(rollout.task.id, rollout.score)
            if not _evaluates(unit):
                top = self._nodes[unit][unit].attributes
                top |= {"practicum.entries": len(report.context), "practicum.version": report.context.version}
                top |= {} if progress.score is None else {"practicum.score": progress.score}
            self._end(unit)

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        for unit in filter(_evaluates, [*self._nodes]):
            if score is not None:
                self._nodes[unit][unit].attributes["practicum.score"] = score
            self._end(unit)

    def ended(self, result: Result | Evaluation | None) -> None:
        for unit in [*self._nodes]:
            self._end(unit)

    async def flush(self) -> None:
        if not self._began:
            return  # another watch failed before this one began
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, PATIENCE)
        self._run.counts[Count.UNTRACKED_RECORDS] += self._exporter.lost

    def _attempt(self, task: str, score: Score | None) -> dict[str, Any]:
        """An attempt is the work of an agent, and its score an evaluation, in the words of the conventions."""
        found: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "practicum.task": task}
        found["gen_ai.agent.name"] = self._run.config.agent
        if score is not None:
            found["gen_ai.evaluation.name"] = self._run.config.scorer or "score"
            found["gen_ai.evaluation.score.value"] = score.value
            found["gen_ai.evaluation.score.label"] = "correct" if score.correct else "wrong"
        return found

    def _below(self, unit: Path, node: _Node) -> Any:
        """The context of a span below this node."""
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        trace, sampled = self._traces[unit]
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return set_span_in_context(NonRecordingSpan(SpanContext(trace, node.id, False, flags)))

    def _end(self, unit: Path) -> None:
        """Send the spans above the calls of a step or an evaluation."""
        from opentelemetry.context import Context

        nodes = self._nodes.pop(unit)
        for path, node in nodes.items():
            if _evaluates(unit) and len(path) == len(unit) + 1:
                node.attributes = self._attempt(path[-1], self._scores.get(path[-1]))
            top = path == unit
            # What is set by another tracer in this process is no parent of ours.
            context = Context() if top else self._below(unit, nodes[path[:-1]])
            self._ids.trace, self._ids.span = self._traces[unit][0], node.id
            attributes = {**self._about, "practicum.place": "/".join(path), **node.attributes}
            self._tracer.start_span(path[-1], context, attributes=attributes, start_time=node.start).end(node.end)
        del self._traces[unit]


def _unit(path: Path) -> Path:
    """The step or the evaluation that a place belongs to."""
    for n, part in enumerate(path[:-1], 1):
        if part.startswith(("step ", "evaluate ")):
            return path[:n]
    return path[:1]


def _evaluates(unit: Path) -> bool:
    return unit[-1].startswith("evaluate ")


def call_attributes(call: ModelCall) -> dict[str, Any]:
    """A model call in the words of the conventions: what was asked of which model, what it cost, and how it failed."""
    kind, _, name = call.model.partition(":")
    found: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if kind in ("http", "https"):
        address, _, name = call.model.partition("#")
        kind, url = "openai", urlsplit(address)
        found |= {"server.address": url.hostname or "", **({"server.port": url.port} if url.port else {})}
    found |= {"gen_ai.provider.name": PROVIDERS.get(kind, kind), "gen_ai.request.model": name or call.model}
    options = call.options
    given = {"temperature": options.temperature, "seed": options.seed, "max_tokens": options.max_output_tokens}
    found |= {f"gen_ai.request.{option}": value for option, value in given.items() if value is not None}
    if call.error is not None:
        return {**found, "error.type": "_OTHER"}
    usage = call.usage
    found |= {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    return found if usage.usd is None else {**found, "practicum.usd": usage.usd}


def contents(call: ModelCall) -> dict[str, str]:
    """What a model read and wrote, as JSON in the form of the conventions."""

    def message(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    prompt = call.prompt
    turns = [m for turn in prompt.turns for m in (message("user", turn.user), message("assistant", turn.assistant))]
    found: Mapping[str, Any] = {
        "gen_ai.system_instructions": [{"type": "text", "content": prompt.head}] if prompt.head else [],
        "gen_ai.input.messages": [*turns, message("user", prompt.user)],
        "gen_ai.output.messages": [] if call.error is not None else [message("assistant", call.text)],
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items() if value}


def _counting(given: SpanExporter | None) -> Any:
    """The exporter, or that of OTLP, which says its first failure and counts the spans that it lost."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        lost = 0

        def __init__(self) -> None:
            self._exporter = given or OTLPSpanExporter()

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            with _reasons() as reasons:
                result = self._exporter.export(spans)
            if result is not SpanExportResult.SUCCESS:
                if not self.lost:
                    reason = " ".join(reasons[0].split()) if reasons else "no reason given"
                    log.warning("otel: spans could not be sent, the run goes on without them (%s)", reason)
                self.lost += len(spans)
            return result

        def shutdown(self) -> None:
            self._exporter.shutdown()

    return Counting()


@contextmanager
def _reasons() -> Iterator[list[str]]:
    """What the exporter logs in this thread, which is all it says about a failure, kept off the terminal."""
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    thread, reasons = threading.get_ident(), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        reasons.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        yield reasons
    finally:
        logger.removeFilter(keep)
