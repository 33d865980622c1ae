"""Classification of failures of model servers: a failure concerns one request, one generated answer (a sample), one
parameter of the requests, or all requests.

Servers of the OpenAI protocol use few statuses for many causes, so the code, the type and the sentence of the error are
read, too. Supported are the error bodies of OpenAI, Azure OpenAI, Anthropic, Gemini, Groq, Mistral, vLLM, llama.cpp,
Ollama, SGLang, Together and OpenRouter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai import exceptions

from practicum.core.errors import ModelError, RequestError, WindowError
from practicum.core.words import quantity
from practicum.models.client import WINDOW_ADVICE, causes

NO_SUCH_INTERFACE = (400, 404, 405, 501)
"""Statuses with which servers answer if they do not have the requested endpoint of the protocol."""

Kind = Literal["transient", "filter", "window", "input", "sample", "parameter", "key", "credit", "model", "account"]
"""`transient`: a later try may help. `filter`, `window` and `input` are about one request, `sample` about one answer,
`parameter` about a parameter of the request, and `key`, `credit`, `model` and `account` about all requests."""

_CODES: Mapping[str, Kind] = {
    "token_limit_exceeded": "transient",  # too many tokens of an account's batches wait; the status is 400
    **dict.fromkeys(("json_validate_failed", "tool_use_failed", "output_parse_failed"), "sample"),
    **dict.fromkeys(
        ("context_length_exceeded", "exceed_context_size_error", "context_exceeded", "request_too_large", "3051",
         "string_above_max_length", "model_max_prompt_tokens_exceeded"), "window",
    ),
    **dict.fromkeys(
        ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "invalid_prompt",
         "data_inspection_failed", "content_moderation", "moderation_blocked"), "filter",
    ),
    **dict.fromkeys(("insufficient_quota", "billing_hard_limit_reached", "billing_error"), "credit"),
    **dict.fromkeys(
        ("model_not_found", "model_decommissioned", "model_not_available", "deploymentnotfound", "invalid_model"),
        "model",
    ),
    **dict.fromkeys(("invalid_api_key", "authentication_error"), "key"),
    **dict.fromkeys(
        ("unsupported_country_region_territory", "account_deactivated", "organization_restricted", "permission_error"),
        "account",
    ),
}  # fmt: skip
"""Unambiguous codes and types of errors, in lower case → kind of failure."""

_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("sample", r"failed_generation|failed to (generate json|call a function|parse (the )?tool)|"
               r"(malformed|invalid) (function|tool) call"),
    ("window", r"context (length|window|size|limit)|maximum (prompt|input|model) length|prompt is too long|"
               r"input is too long|longer than the model|too many (input )?tokens|token count .{0,40}exceeds|"
               r"max_new_tokens` must be|must have less than \d+ tokens|too large for model|"
               r"request(_| is )too(_| )large|reduce (the length|your (prompt|message))"),
    ("filter", r"content (management|filter|policy|moderation)|content_filter|usage polic|moderation|flagged|"
               r"safety (system|filter|polic)|prohibited[ _]content|high risk|inappropriate content"),
    ("credit", r"credit balance|insufficient (balance|credit|quota|funds)|out of credits|requires more credits|"
               r"payment required|billing hard limit"),
    ("key", r"(incorrect|invalid|missing|no) (api|auth)[ -_]?(key|credentials)|api key (not valid|is invalid|"
            r"not found|expired)|no auth credentials|unauthorized"),
    ("account", r"location is not supported|country, region|(organization|account|project)( has been| is)? "
                r"(restricted|disabled|deactivated|suspended)"),
    ("model", r"invalid model\b|model\b.{0,80}(does not exist|not found|not a valid model|decommissioned)|"
              r"not a valid model id|no endpoints found for"),
)  # fmt: skip
_SENTENCES = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
"""Patterns of servers' error sentences, tried in this order."""

_STATUSES: Mapping[int, Kind] = {
    **dict.fromkeys((408, 409, 425), "transient"),
    401: "key", 402: "credit", 403: "account", 404: "model", 413: "window",
}  # fmt: skip

_CATEGORIES: tuple[tuple[type[Exception], Kind], ...] = (
    (exceptions.ModelQuotaExceededError, "credit"),
    (exceptions.ModelContextWindowExceededError, "window"),
)
"""Exceptions of pydantic-ai for providers with their own client libraries → kind of failure."""

_ERRORS: Mapping[Kind, tuple[str, str]] = {
    "filter": ("provider.filtered", "the content filter of {name} refused the request"),
    "window": ("window.exceeded", f"the prompt is larger than the window of {{name}}: {WINDOW_ADVICE}"),
    "input": ("provider.refused", "{name} refused the request"),
    "sample": ("output.invalid", "{name} gave no valid output"),
    "parameter": ("provider.refused", "{name} refused the request"),
    "key": (
        "model.key_refused",
        "{name} refused the key: check the environment variable with the key (for a model at an address: "
        "`api_key_env`)",
    ),
    "credit": ("model.no_credit", "the account of {name} has no credit left: add credit, or use another model"),
    "model": (
        "model.not_found", "{name} was not found: check the model's name and the address (most end in /v1)"
    ),
    "account": (
        "model.not_allowed",
        "{name} is not available to this account or key: check the permissions of the key, or use another model",
    ),
}  # fmt: skip
"""Kind of failure → (error code, message)."""

_REFUSES = re.compile(
    r"unsupported|(not|n't) (be |currently |yet )*(support|permitted|allowed|enabled|available|implemented|accepted)|"
    r"unrecogni[sz]ed|"
    r"unknown|unexpected|extra (inputs|fields|param)|unavailable|deprecated|only the default|cannot (both )?be|"
    r"invalid (param|schema)|requires? --|no endpoints found that",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(r"must be|should be|range|between|positive", re.IGNORECASE)
"""`_REFUSES` is the pattern of sentences in which servers refuse a parameter, `_OUT_OF_RANGE` the pattern of sentences
in which servers refuse the value of a parameter."""

SAMPLING = ("temperature", "top_p", "top_k", "stop", "seed")
"""Optional parameters of a request. If a server refuses the value of an optional parameter, later requests omit this
parameter."""

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "response_format": ("json_schema", "json_object", "output_format", "output_config", "text.format", "structured"),
    "tools": ("tool_choice", "tool-choice", "tool choice", "tool use", "function calling"),
    "max_tokens": ("max_output_tokens",),
}
"""Parameter → its other names in error sentences."""

_SYSTEM = re.compile(
    r"messages?\[\d+\]\.role|system (role|message|prompt|instruction)|developer (role|message|instruction)|role:? .?"
    r"(system|developer)|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)
"""Pattern of sentences in which servers refuse system messages."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kind of an error; `parameter` is the name of the refused parameter, if the kind is `parameter`."""

    kind: Kind
    parameter: str = ""


def classify(error: BaseException, sent: Set[str] = frozenset()) -> Refusal:
    """Classify an error. `sent` are the names of the request's parameters, plus "system" if the request had a system
    message; only parameters in `sent` can be the refused parameter. An error that is not a server's answer usually
    counts as transient."""
    if isinstance(error, exceptions.UserError):
        return Refusal("account")
    if not isinstance(error, exceptions.ModelHTTPError):
        return Refusal(_category(error) or "transient")
    status, facts = error.status_code, _facts(error.body)
    text = " ".join(facts.sentences) or str(error.body or "")
    code = next((_CODES[code] for code in facts.codes if code in _CODES), None)
    by_text = code or next((kind for kind, pattern in _SENTENCES if pattern.search(text)), None)
    if status == 429:
        # Sentences about rate limits mention tokens and quotas, too.
        return Refusal("credit" if by_text == "credit" or _category(error) == "credit" else "transient")
    if code or by_text in ("sample", "window", "filter"):
        return Refusal(by_text or "input")
    if status not in (401, 402, 403) and (name := _parameter(facts, text, sent, only_system=status >= 500)):
        return Refusal("parameter", name)
    if by_text is not None and status < 500:
        return Refusal(by_text)
    return Refusal(_category(error) or _STATUSES.get(status) or ("transient" if status >= 500 else "input"))


def _category(error: BaseException) -> Kind | None:
    return next((kind for category, kind in _CATEGORIES if isinstance(error, category)), None)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Parts of an error's body: codes and types in lower case, sentences, and names of parameters."""

    codes: tuple[str, ...]
    sentences: tuple[str, ...]
    parameters: tuple[str, ...]


def _facts(body: object) -> _Facts:
    codes, sentences, parameters = list[str](), list[str](), list[str]()
    for part in _parts(body):
        codes += [str(part[name]).lower() for name in ("code", "type", "error_type") if part.get(name) is not None]
        sentence = next((part[name] for name in ("message", "msg", "detail") if isinstance(part.get(name), str)), "")
        if isinstance(part.get("param"), str):
            parameters.append(part["param"])
        if isinstance(part.get("loc"), list) and part["loc"]:
            parameters.append(str(part["loc"][-1]))
            sentence = f"{part['loc'][-1]}: {sentence}"
        if sentence and not sentence.lstrip().startswith(("{", "[")):
            sentences.append(sentence)
    return _Facts(tuple(codes), tuple(dict.fromkeys(sentences)), tuple(parameters))


_INSIDE = ("error", "errors", "message", "detail", "innererror", "metadata", "raw")
"""Fields of an error that may hold a nested error."""


def _parts(body: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a body, the innermost first: a gateway nests the error of a provider in the gateway's error,
    often as text."""
    if depth > 5:
        return
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            body = json.loads(body)
        except ValueError:
            return
    if isinstance(body, list):
        for part in body[:20]:
            yield from _parts(part, depth + 1)
    elif isinstance(body, dict):
        for name in _INSIDE:
            yield from _parts(body.get(name), depth + 1)
        error = body.get("error")
        yield {**body, "message": error} if isinstance(error, str) and "message" not in body else body


def _parameter(facts: _Facts, text: str, sent: Set[str], only_system: bool) -> str:
    """Return the name of the sent parameter that an error refuses, or an empty text. With `only_system`, only refused
    system messages are recognized."""
    if "system" in sent and _SYSTEM.search(" ".join((text, *facts.parameters))):
        return "system"
    refuses = bool(_REFUSES.search(text))
    if only_system or not (refuses or _OUT_OF_RANGE.search(text)):
        return ""
    named = [name for param in facts.parameters for name in sent if _mentions(param, name) is not None]
    places = {name: place for name in sent if (place := _mentions(text, name)) is not None}
    for name in (*named, *sorted(places, key=lambda name: places[name])):
        if refuses or name in (*SAMPLING, "response_format"):
            return name
    return ""


def _mentions(text: str, name: str) -> int | None:
    """Return the position of a parameter's name in a text, or None."""
    words = "|".join(map(re.escape, (name, *_ALIASES.get(name, ()))))
    match = re.search(rf"(?<![A-Za-z0-9_])({words})", text, re.IGNORECASE)
    return None if match is None else match.start()


def is_unknown_interface(error: BaseException) -> bool:
    """Return whether the error may mean that the server does not support the requested interface."""
    return isinstance(error, exceptions.ModelHTTPError) and error.status_code in NO_SUCH_INTERFACE


def is_rate_limit(error: BaseException) -> bool:
    return isinstance(error, exceptions.ModelRateLimitError)


def is_unreachable(error: BaseException) -> bool:
    """Return whether the error suggests that no model server is at the address: the connection failed, or the reply was
    unreadable."""
    if isinstance(error, exceptions.ModelTimeoutError):
        return bool(_no_connection(error))
    unreadable = isinstance(error, exceptions.UnexpectedModelBehavior) or isinstance(error.__cause__, ValueError)
    return unreadable or isinstance(error, exceptions.ModelConnectionError)


def _no_connection(error: BaseException) -> str:
    """Return the reason for a failed connection; empty if the connection succeeded. The causes of the error are
    searched, because aiohttp's transport reports a refused connection as a timeout."""
    chain = causes(error)
    refused = any(type(cause).__name__.startswith(("Connect", "ClientConnect")) for cause in chain)
    return " ".join(str(chain[-1]).split()) if refused else ""


def unanswered(name: str, error: BaseException, tries: int | None = None) -> str:
    """Return the message for a call that got no answer after `tries` tries. `tries` None: the server has never
    answered."""
    refused = _no_connection(error)
    if refused or (tries is None and isinstance(error, exceptions.ModelConnectionError)):
        often, refused = f" after {quantity(tries, 'try')}" if tries else "", refused or error_summary(error)
        return f"cannot reach {name}{often}: is the server up, and the address right? ({refused})"
    if tries is None:
        return (
            f"{name} does not answer as a model server does: check the address (it ends in /v1) and whether a proxy or "
            f"a login page is in between ({error_summary(error)})"
        )
    summary = error_summary(error).rstrip(".")
    return f"{name} failed {quantity(tries, 'time')}: {summary}; is the server up and not overloaded?"


def permanent_error(name: str, error: BaseException, kind: Kind) -> ModelError | RequestError:
    """Return the error to raise for a failure that no retry can fix. The message of the returned error includes the
    server's sentence."""
    if isinstance(error, exceptions.UserError):
        return ModelError("model.unusable", f"{name} cannot be used ({error_summary(error)})")
    code, message = _ERRORS[kind]
    text = f"{message.format(name=name)} ({error_summary(error)})"
    if kind in ("key", "credit", "model", "account"):
        return ModelError(code, text)
    return (WindowError if kind == "window" else RequestError)(code, text)


def error_summary(error: BaseException) -> str:
    """Return the provider's error sentence on one line, after the HTTP status. If the provider sent no sentence, return
    the text of the error and the text of its cause. The text is cut to 300 characters, because some providers answer
    with pages of HTML."""
    if refused := _no_connection(error):
        return f"no connection: {refused}"
    if isinstance(error, TimeoutError):
        return "the call took longer than `timeout` allows"
    sentences = _facts(getattr(error, "body", None)).sentences
    message = ": ".join(reversed(sentences))
    text = " ".join((f"{getattr(error, 'status_code', '')} {message}" if message else str(error)).split())
    text = text or type(error).__name__
    cause = " ".join(str(error.__cause__ or "").split())
    if cause and not message and cause not in text:
        text = f"{text} ({cause})"
    return text if len(text) <= 300 else text[:300] + "…"
