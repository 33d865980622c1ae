"""All metrics: name, unit, title and definition of each.

The reports of a run (`practicum space monitor`, its plots, OpenTelemetry, `practicum space dynamics`), experiment
trackers, pages, and the Prometheus endpoint of a service use these names, units and titles. The manual's reference of
metrics is generated from these definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from practicum.core.formats import count, money, percent, seconds
from practicum.core.thoughts import SILENCES

Unit = Literal["share", "seconds", "tokens", "USD", "bytes", "version", "count"]

Kind = Literal["series", "progress", "comparison", "counter", "gauge", "histogram", "summary"]
"""series: one value per step of a run, computed from the store of the run. progress: a value at the end of a step,
reported while the run continues. comparison: one value per variant of a comparison. The other kinds are Prometheus
types of a service."""

UCUM: Mapping[Unit, str] = {
    "share": "1", "seconds": "s", "tokens": "{token}", "USD": "USD", "bytes": "By", "version": "1", "count": "1"
}  # fmt: skip
"""Unit codes for OpenTelemetry (https://ucum.org)."""


_WRITERS: Mapping[Unit, Callable[[float | None], str]] = {"share": percent, "seconds": seconds, "USD": money}


@dataclass(frozen=True, slots=True)
class MetricKind:
    """Definition of a metric. `name` is "group.name". `title` is the metric's name on axes and in tables, and `about`
    describes how the metric is computed. `labels` are the Prometheus labels of its values."""

    name: str
    unit: Unit
    title: str
    about: str
    kind: Kind = "series"
    labels: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def field(self) -> str:
        """Part of the name after the group."""
        return self.name.partition(".")[2]

    @property
    def otel(self) -> str:
        """Name in OpenTelemetry."""
        return f"practicum.{self.name}"

    @property
    def tracker(self) -> str:
        """Name in experiment trackers, which can only sort by a metric if its name has only letters, digits and _."""
        return self.name.replace(".", "_")

    @property
    def prometheus(self) -> str:
        """Name in Prometheus, without the suffix _total of counters."""
        return f"practicum_{self.field}"

    def write(self, value: float | None) -> str:
        """Format a value for people, with its unit."""
        return _WRITERS.get(self.unit, count)(value)


def _series(group: str, *rows: tuple[str, Unit, str, str], kind: Kind = "series") -> list[MetricKind]:
    return [MetricKind(f"{group}.{name}", unit, title, about, kind) for name, unit, title, about in rows]


def _progress(*rows: tuple[str, Unit, str, str]) -> list[MetricKind]:
    return [MetricKind(name, unit, title, about, "progress") for name, unit, title, about in rows]


def _service(kind: Kind, *rows: tuple[str, Unit, str] | tuple[str, Unit, str, str]) -> list[MetricKind]:
    """Return metrics of a service; the fourth item of a row has the labels."""
    return [
        MetricKind(f"service.{name}", unit, name.replace("_", " "), about, kind, tuple(" ".join(labels).split()))
        for name, unit, about, *labels in rows
    ]


_ALL = [
    *_series(
        "success",
        ("rate", "share", "success rate", "first attempts that succeeded, in a window of the last attempts; an "
         "attempt succeeds by its score or, without a score, by the verdict in its feedback"),
        ("low", "share", "lower end", "the lower end of the 95% interval of the rate"),
        ("high", "share", "upper end", "the upper end of the 95% interval of the rate"),
        ("best_of_k", "share", "best of k", "chosen attempts that succeeded, if a task has several attempts"),
        ("attempts", "count", "attempts", "tasks that a step attempted"),
        ("errors", "count", "failed attempts", "first attempts that ended with an error"),
    ),
    *_series(
        "memory",
        ("entries", "count", "memories", "memories in the context after the step"),
        ("successes", "count", "from successes", "memories that were extracted from successful attempts"),
        ("failures", "count", "from failures", "memories that were extracted from failed attempts"),
        ("others", "count", "others", "memories that store neither success nor failure as their outcome"),
    ),
    *_series(
        "retrieval",
        ("similarity", "share", "mean similarity", "cosine similarity of a retrieved entry to the task, mean"),
        ("best", "share", "best similarity", "cosine similarity of a task to the nearest retrieved entry, mean of "
         "the tasks"),
        ("relied_on", "share", "relied on", "retrieved entries that the agent cites in its answer"),
    ),
    *_series(
        "context",
        ("version", "version", "version", "the version of the context after the step"),
        ("entries", "count", "entries", "entries of the context after the step"),
        ("tokens", "tokens", "tokens", "tokens of the whole context, as shown to the agent"),
        ("helpful", "count", "helpful votes", "helpful votes of all entries"),
        ("drift", "share", "distance from the step before", "cosine distance between the mean vectors of the entries "
         "after the step and before it"),
        ("from_first", "share", "distance from the first version", "cosine distance between the mean vectors of the "
         "entries after the step and of the first version that had entries"),
        ("coherence", "share", "coherence", "cosine similarity of the vector of an entry to the mean vector, "
         "mean of the entries"),
    ),
    *_series(
        "contrast",
        ("agreement", "share", "agreement", "attempts at a task with the same answer as the chosen attempt, mean of "
         "the tasks"),
    ),
    *_series("agent", ("actions", "count", "actions of an attempt", "actions that an agent takes in an attempt, mean")),
    *_series(
        "latency",
        ("attempt_seconds", "seconds", "seconds of an attempt", "the duration of an attempt of the agent, mean"),
        ("step_seconds", "seconds", "seconds of a step", "the duration of a step"),
    ),
    *_series("tokens", ("tokens", "tokens", "tokens of a task", "tokens of all calls of a step, divided by its tasks")),
    *_series(
        "dynamics",
        ("current", "share", "current", "tasks that the current checkpoint solves"),
        ("recent", "share", "recently solved", "tasks that any of the last checkpoints solves"),
        ("active", "share", "active instability", "tasks that any of the last checkpoints solves, but the current "
         "checkpoint does not"),
        ("stale", "share", "stale regressions", "tasks that none of the last checkpoints solves, but an earlier "
         "checkpoint does"),
        ("best", "share", "best so far", "tasks that any checkpoint so far solves"),
    ),
    *_progress(
        ("score.mean", "share", "score", "the mean score of all first attempts so far"),
        ("score.best_of_k", "share", "best of k", "the mean score of the chosen attempts so far"),
        ("score.step", "share", "score of the step", "the mean score of the attempts of the step"),
        ("score.validation", "share", "validation", "the score on the validation tasks after the step"),
        ("score.validation_best", "share", "best validation", "the best score on the validation tasks so far"),
        ("learning.lessons", "count", "lessons", "lessons of the step"),
        ("learning.edits", "count", "edits", "edits of the context that were applied in the step"),
        ("learning.refused", "count", "refused edits", "edits that were refused so far"),
        ("cost.calls", "count", "calls", "model calls so far"),
        ("cost.tokens", "tokens", "tokens", "input and output tokens so far"),
        ("cost.input_tokens", "tokens", "input tokens", "input tokens so far"),
        ("cost.cached_tokens", "tokens", "cached tokens", "input tokens that the provider had in its cache, so far"),
        ("cost.cache_write_tokens", "tokens", "cache writes", "input tokens that were written to the cache so far"),
        ("cost.output_tokens", "tokens", "output tokens", "output tokens so far"),
        ("cost.usd", "USD", "cost", "US dollars so far, if all prices are known"),
    ),
    *_series(
        "comparison",
        ("best_of_k", "share", "best of k", "the mean score of the chosen attempts, if a task has several attempts"),
        ("agent_steps", "count", "steps of an attempt", "the actions of the agent (or the moves of a network of "
         "agents) and its answer, mean of the scored attempts"),
        ("calls", "count", "calls", "model calls of a run with its evaluation, mean of the runs"),
        ("learning_calls", "count", "calls to learn", "model calls of a run without its evaluation, mean of the runs"),
        ("tokens", "tokens", "tokens", "input and output tokens of a run with its evaluation, mean of the runs"),
        ("learning_tokens", "tokens", "tokens to learn", "input and output tokens of a run without its evaluation, "
         "mean of the runs"),
        ("cached_share", "share", "cached", "input tokens that the provider had in its cache"),
        ("usd", "USD", "cost", "US dollars of a run with its evaluation, if all prices are known"),
        ("single_run_s", "seconds", "single-run time", "an upper bound on the time that a run takes with no other run "
         "on the machine: L + (W − L) / c, where W is the work, c is the number of calls allowed at once, and L is the "
         "longest chain of calls that wait for each other (Brent's bound)"),
        ("work_s", "seconds", "work", "the sum of the durations of all calls: the least time of a run with one call at "
         "a time"),
        ("wall_s", "seconds", "wall", "the time from start to end while other runs may be in progress; not comparable "
         "between variants"),
        ("context_tokens", "tokens", "context, tokens", "tokens of the learned context"),
        ("entries", "count", "entries", "entries of the learned context"),
        ("helpful", "count", "helpful hits", "helpful votes of the entries of the learned context (Combee, figure 2)"),
        ("tokens_per_test_task", "tokens", "tokens per test task", "input and output tokens of the evaluation, divided "
         "by its tasks: the cost of using the result"),
        ("output_tokens_per_test_task", "tokens", "output tokens per test task", "output tokens of the evaluation, "
         "divided by its tasks"),
        ("learning_tokens_per_point", "tokens", "tokens to learn per point", "tokens to learn, divided by the "
         "percentage points gained over the baseline"),
        ("learning_s_per_point", "seconds", "time to learn per point", "durations of the calls to learn, divided by "
         "the percentage points gained over the baseline"),
        ("task_tokens_per_point", "tokens", "tokens per test task and point", "tokens of a test task minus the tokens "
         "of a test task of the baseline, divided by the percentage points gained over the baseline"),
        kind="comparison",
    ),
    *_service(
        "counter",
        ("requests", "count", "requests that ended. `route` is `chat`, `responses`, `messages`, `upstream` (passed "
         "on), the name of an operation, `health`, `ready`, `metrics`, `openapi.json`, `mcp` or `other`; `status` is "
         "499 if the client disconnected before the end of the answer", "route status"),
        ("input_tokens", "tokens", "input tokens of interactions, if the model server reports them"),
        ("cached_tokens", "tokens", "input tokens of interactions that the model server had in its cache"),
        ("cache_write_tokens", "tokens", "input tokens of interactions that the model server wrote to its cache"),
        ("output_tokens", "tokens", "output tokens of interactions, if the model server reports them"),
        ("interactions", "count", "requests that were answered and stored"),
        ("uncounted_interactions", "count", "requests of clients for titles and summaries, and requests for a "
         "context: stored, and not counted as interactions until an outcome is reported"),
        ("unchanged_requests", "count", "requests that were forwarded without the learned context, because of a "
         "failure or a timeout"),
        ("views_without_a_model", "count", "requests to a space whose method calls a model to choose the "
         "view: the service skips this call, so the view only has the entries that are chosen without a model"),
        ("unread_requests", "count", "requests that do not fit their protocol or are too large to be parsed; they "
         "were forwarded unchanged"),
        ("oversized_requests", "count", "requests too large to be parsed; they were forwarded unchanged"),
        ("oversized_answers", "count", "answers too large to be parsed; they were passed on unchanged"),
        ("unread_answers", "count", "answers with status 200 that could not be parsed completely. They are "
         "stored with the text that could be parsed"),
        ("refused_rows", "count", "rows that the database refused because of their content. They are lost, and an "
         "alarm of the kind `store` is raised, at most once an hour in a space"),
        ("wrong_numbers", "count", "impossible numbers from the model server, such as negative tokens or the "
         "status 999. Such tokens count as unknown, and such a status as a failure"),
        *((key, "count", f"answers of a model that {why.partition(';')[0]}") for key, why in SILENCES.items()),
        ("failed_open", "count", "unforeseen failures while a request was prepared or stored. The client got its "
         "answer; the log has each kind of failure once"),
        ("upstream_failures", "count", "requests that the model server did not answer, answered only in part, or "
         "answered with an error and the status 200"),
        ("upstream_errors", "count", "answers of the model server with an error status; see the label `status` of "
         "practicum_requests_total"),
        ("client_departures", "count", "requests whose client disconnected before the end of the answer"),
        ("refused_requests", "count", "requests to the service itself that were refused, for example for a wrong key"),
        ("refused_pages", "count", "pages that were refused"),
        ("failed_pages", "count", "pages that could not be rendered"),
        ("failed_writes", "count", "requests that failed because the store could not be read or written"),
        ("faults", "count", "requests that failed because of a bug in practicum. The log has each failure"),
        ("mcp_requests", "count", "requests of agents over MCP"),
        ("refused_mcp_requests", "count", "requests over MCP that are not valid requests"),
        ("feedback", "count", "reports that were accepted"),
        ("notes", "count", "notes that were accepted"),
        ("learning_rounds", "count", "rounds of learning that ended"),
        ("learning_failures", "count", "rounds of learning that failed"),
        ("alarms", "count", "alarms that were raised"),
        ("failed_webhooks", "count", "alarms that the webhook did not accept"),
        ("failed_decisions", "count", "decisions about a rollout that could not be made; the decisions are retried"),
        ("failed_polls", "count", "failed reads of changes by other processes; the reads are retried"),
        ("lost_rows", "count", "rows that could not be written"),
        ("late_rows", "count", "rows that were dropped because their space had been deleted"),
    ),
    *_service(
        "gauge",
        ("unwritten_rows", "count", "rows that wait to be written (20,000 and 256 MiB at most)"),
        ("open_spaces", "count", "spaces that are open"),
        ("open_spaces_bytes", "bytes", "approximate memory of open spaces"),
        ("live_version", "version", "the version that all requests see", "space"),
        ("canary_version", "version", "the version that a share of the sessions sees; no value without a canary",
         "space"),
        ("outcomes_waiting", "count", "outcomes that can be learned from", "space"),
        ("corrections_waiting", "count", "corrections and notes that wait for review", "space"),
        ("learning_calls_today", "count", "model calls of learning today (UTC), on all nodes", "space"),
        ("learning_usd_today", "USD", "US dollars of learning today (UTC), on all nodes", "space"),
    ),
    *_service(
        "summary",
        ("score", "share", "the first score of each interaction: `_sum` divided by `_count` is the mean", "space"),
    ),
    *_service(
        "histogram",
        ("request_duration_seconds", "seconds", "time from a request to the end of its answer", "route"),
        ("added_duration_seconds", "seconds", "time from the last byte of a request until it is sent to the model "
         "server: the latency that practicum adds", "route"),
    ),
]  # fmt: skip

METRICS: Mapping[str, MetricKind] = {metric.name: metric for metric in _ALL}
"""All metrics by name."""


def of_kind(kind: Kind) -> Sequence[MetricKind]:
    """Return the metrics of a kind."""
    return [metric for metric in METRICS.values() if metric.kind == kind]
