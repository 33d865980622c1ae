"""Coding agents' programs, which call a model with the login of the user: Claude Code (`claude`) and Codex (`codex`).

A model or an agent is named `cli:PROGRAM` or `cli:PROGRAM/MODEL`. A program prints events, one JSON object a line. The
outcome is read from these events. Written against Claude Code 2.1.197 and 2.1.332, and Codex 0.171.0.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from practicum.core.errors import ModelError, ProviderError, UsageError
from practicum.core.subprocesses import CAPTURE_VARIABLE, Finished, environment
from practicum.core.types import Usage
from practicum.core.words import one_line

CLI = "cli:"
"""Prefix of the names of models and agents that use a program."""

PLAN_PAUSE = 3600.0
"""Pause (s) to request after the limit of a plan is reached; clients wait for their longest pause instead."""

M = TypeVar("M", bound=BaseModel)

_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that programs need to reach their provider from some networks."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure that a program reported. `status` is the HTTP status that fits the failure, `code` is a code for
    `models.failures`. `login`: the program is not logged in. `plan`: the limit of the user's plan is reached."""

    message: str
    status: int = 503
    code: str = ""
    login: bool = False
    plan: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome that a program reported. `text` is the last message or, if a schema was passed, the JSON. `usage.usd` is
    the cost that the program reported; None: the program reported no cost. `cut`: the model reached its output limit.
    `refused`: the model withheld the answer. `turns_spent`: the program stopped at its limit of turns or of cost."""

    text: str
    usage: Usage
    turns: int = 1
    cut: bool = False
    refused: bool = False
    turns_spent: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A coding agent's program. `provider` is the name of the models' provider in genai-prices. `variables` are the
    environment variables with the program's folder, address and login. Keys are not among them, because the program
    would use a key in place of the login. `settings` are variables with fixed values. `reports_cost`: whether the
    program reports the cost of a call."""

    name: str
    provider: str
    install: str
    login: str
    variables: tuple[str, ...]
    settings: Mapping[str, str]
    reports_cost: bool
    read: Callable[[Sequence[dict[str, Any]]], Outcome | None]

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of the program."""
        return {**environment(*_NETWORK, *self.variables), CAPTURE_VARIABLE: "off", **self.settings}

    def require(self, user: str) -> None:
        """Raise UsageError if the program is not installed. `user` is the part of practicum that needs the program."""
        if shutil.which(self.name) is None:
            raise UsageError(
                "program.missing",
                f"{user} needs the program {self.name}, which is not on the PATH: run {self.install}, then log in "
                f"({self.login})",
            )

    def outcome(self, finished: Finished, name: str) -> Outcome:
        """Return the outcome of a finished program. `name` is the name of the model or agent in messages. Raise
        ModelError if the program is not logged in or does not accept its arguments, and ProviderError if the program
        ended before it reported an outcome."""
        events = read_events(finished.out)
        outcome = self.read(events)
        if outcome is not None and outcome.failure is not None and outcome.failure.login:
            raise ModelError(
                "model.not_logged_in",
                f"{name} is not logged in ({one_line(outcome.failure.message, 200)}): log in ({self.login})",
            )
        if outcome is not None:
            return outcome
        reason = f"{name} ended with exit code {finished.code} and no result: {finished.reason}"
        if events or (finished.code or 0) <= 0:
            raise ProviderError("provider.failed", reason)
        raise ModelError("model.unusable", f"{reason}. If the program is old, update it: {self.install}")


def program_of(name: str) -> tuple[Program, str]:
    """Return the program and the model in a name `cli:PROGRAM/MODEL`. The model is empty if the name has none: the
    program then uses its default. Raise UsageError if the program is unknown."""
    program, slash, model = name.removeprefix(CLI).partition("/")
    if program not in PROGRAMS or (slash and not model):
        raise UsageError(
            "program.unknown",
            f"{name!r} must have the form cli:PROGRAM or cli:PROGRAM/MODEL, with PROGRAM one of {', '.join(PROGRAMS)}",
        )
    return PROGRAMS[program], model


def http_error(failure: Failure, name: str) -> Exception:
    """Return the error that pydantic-ai raises for such a failure of a provider. `name` is the name of the model."""
    from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError

    status = 429 if failure.plan else failure.status
    return ModelHTTPError.for_category(
        ModelRateLimitError if status == 429 else None, status_code=status, model_name=name,
        body={"message": failure.message, "code": failure.code or None},
        retry_after=PLAN_PAUSE if failure.plan else None,
    )  # fmt: skip


def read_events(printed: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects among the lines that a program printed."""
    events = []
    for line in printed.split(b"\n"):
        if line.lstrip().startswith(b"{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a line that was cut when the program was killed, or text of another program
            events.append(event)
    return events


_PLAN = re.compile(
    r"(hit|reached) your\b.{0,40}\blimit|(usage|session|weekly|spend) limit reached|out of .{0,20}usage", re.I
)
"""Pattern of sentences about the limit of the user's plan."""


class _Tokens(BaseModel):
    """Tokens of one model in Claude Code's result."""

    model_config = ConfigDict(alias_generator=to_camel)

    input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    output_tokens: int = 0


class _Result(BaseModel):
    """Last event of Claude Code. A result with `is_error` is a failure, also if its `subtype` is "success"."""

    model_config = ConfigDict(strict=True)

    is_error: bool
    subtype: str = ""
    result: str | None = None
    structured_output: Any = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    errors: list[str] = []
    num_turns: int = 1
    total_cost_usd: float = 0.0
    models: dict[str, _Tokens] = Field(default={}, alias="modelUsage")

    @property
    def usage(self) -> Usage:
        models = self.models.values()
        cached = sum(model.cache_read_input_tokens for model in models)
        written = sum(model.cache_creation_input_tokens for model in models)
        read = cached + written + sum(model.input_tokens for model in models)
        output = sum(model.output_tokens for model in models)
        return Usage(1, read, cached, output, self.total_cost_usd or None, written)


def _read_claude(events: Sequence[dict[str, Any]]) -> Outcome | None:
    result = _last(events, "result", _Result)
    if result is None:
        return None
    text = result.result or ""
    if not result.is_error:
        if result.structured_output is not None:
            text = json.dumps(result.structured_output, ensure_ascii=False)
        return Outcome(text, result.usage, result.num_turns)
    kinds = {event.get("error") for event in events if event.get("type") == "assistant"}
    message = "; ".join(result.errors) or text or result.subtype
    failure: Failure | None = None
    cut, refused = "max_output_tokens" in kinds, result.stop_reason == "refusal"
    spent = result.subtype in ("error_max_turns", "error_max_budget_usd")
    if result.subtype == "error_max_structured_output_retries":
        failure = Failure(message, 400, "output_parse_failed")
    elif not (cut or refused or spent):
        failure = Failure(
            message, result.api_error_status or 503, result.api_error_type or "",
            login="authentication_failed" in kinds or result.api_error_status == 401,
            plan=bool(_PLAN.search(message)) or any(map(_over_limit, events)),
        )  # fmt: skip
    return Outcome("", result.usage, result.num_turns, cut, refused, spent, failure)


def _over_limit(event: Mapping[str, Any]) -> bool:
    info = event.get("rate_limit_info")
    return isinstance(info, dict) and info.get("status") == "rejected" and info.get("resetsAt") is not None


class _Completed(BaseModel):
    """Event of Codex at the end of a turn."""

    class Tokens(BaseModel):
        input_tokens: int = 0
        cached_input_tokens: int = 0
        output_tokens: int = 0

    usage: Tokens = Tokens()


class _Failed(BaseModel):
    """Event of Codex at the end of a turn that failed."""

    class Error(BaseModel):
        message: str

    error: Error


def _read_codex(events: Sequence[dict[str, Any]]) -> Outcome | None:
    failed, completed = _last(events, "turn.failed", _Failed), _last(events, "turn.completed", _Completed)
    if failed is not None:
        message = failed.error.message
        status = re.search(r"\bstatus:? (\d{3})\b", message)
        number = int(status[1]) if status else 400 if message.lstrip().startswith("{") else 503
        return Outcome("", Usage(1), failure=Failure(message, number, "", number == 401, bool(_PLAN.search(message))))
    if completed is None:
        return None
    items = [event.get("item") for event in events if event.get("type") == "item.completed"]
    texts = [str(x.get("text", "")) for x in items if isinstance(x, dict) and x.get("type") == "agent_message"]
    tokens = completed.usage
    usage = Usage(1, tokens.input_tokens, tokens.cached_input_tokens, tokens.output_tokens, None)
    return Outcome(texts[-1] if texts else "", usage)


def _last(events: Sequence[dict[str, Any]], name: str, form: type[M]) -> M | None:
    """Return the last event with this type, or None if no event has this type, or the event has another form."""
    try:
        return next((form.model_validate(event) for event in reversed(events) if event.get("type") == name), None)
    except ValidationError:
        return None


PROGRAMS: Mapping[str, Program] = {
    "claude": Program(
        "claude", "anthropic", "npm install -g @anthropic-ai/claude-code", "run `claude` and type /login",
        ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN",
         "NODE_EXTRA_CA_CERTS"),
        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}, True, _read_claude,
    ),
    "codex": Program(
        "codex", "openai", "npm install -g @openai/codex", "run `codex login`", ("CODEX_HOME",), {}, False, _read_codex
    ),
}  # fmt: skip
"""Programs by name."""
