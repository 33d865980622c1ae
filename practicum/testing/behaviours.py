"""Behaviours of real model servers, by name: refused parameters, errors, answers with thoughts or without text.

Each behaviour is a line of `BEHAVIOURS`: what it does, and either an error for a request or a change of the answer. The
bodies have the form that a named provider sends. `server.ServerOptions.behaviours` switches them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Refusal = tuple[int, Any]
"""A status and the body of an error."""

_INVALID = "invalid_request_error"
_THOUGHT = 'The user asks something. A draft would be {"answer": "draft"}. I will answer now.'
"""Thoughts hold a draft, so that a reader that takes the first JSON object of a text reads the wrong one."""


@dataclass(frozen=True)
class Behaviour:
    """`refuse` gives the error for a request (its body), or None for a request that is answered. `change` edits a
    completion before it is sent."""

    about: str
    refuse: Callable[[Body], Refusal | None] | None = None
    change: Callable[[Body], None] | None = None


def openai_error(
    status: int, message: str, code: str | int | None = None, kind: str = _INVALID, /, **more: Any
) -> Refusal:
    """An error in the form of OpenAI's; `more` are further fields of the error object."""
    return status, {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def _always(refusal: Refusal) -> Callable[[Body], Refusal | None]:
    return lambda body: refusal


def _with(name: str, refusal: Refusal) -> Callable[[Body], Refusal | None]:
    """Refuses requests that have the parameter."""
    return lambda body: refusal if body.get(name) is not None else None


def _unsupported(name: str, message: str, code: str = "unsupported_parameter") -> Callable[[Body], Refusal | None]:
    """OpenAI's refusal of a parameter."""
    return _with(name, openai_error(400, message, code, param=name))


def _extra(*names: str) -> Callable[[Body], Refusal | None]:
    """Mistral's refusal of parameters that it does not know."""

    def refuse(body: Body) -> Refusal | None:
        extra = [name for name in names if body.get(name) is not None]
        said = "Extra inputs are not permitted"
        detail = [
            {"type": "extra_forbidden", "loc": ["body", name], "msg": said, "input": body[name]} for name in extra
        ]
        error = {"object": "error", "message": {"detail": detail}, "type": _INVALID, "param": None, "code": None}
        return (422, error) if extra else None

    return refuse


def _unknown_name(name: str) -> Callable[[Body], Refusal | None]:
    """Gemini's refusal of a parameter: its body is a list."""
    said = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    return _with(name, (400, [{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}]))


def _refuse_temperature(body: Body) -> Refusal | None:
    if body.get("temperature") in (None, 1):
        return None
    said = (
        f"Unsupported value: 'temperature' does not support {body['temperature']:g} with this model. Only the default "
        f"(1) value is supported."
    )
    return openai_error(400, said, "unsupported_value", param="temperature")


def _refuse_system(body: Body) -> Refusal | None:
    said = "Unsupported value: 'messages[0].role' does not support 'system' with this model."
    refused = any(message.get("role") in ("system", "developer") for message in body["messages"])
    return openai_error(400, said, "unsupported_value", param="messages[0].role") if refused else None


def _refuse_format(*kinds: str) -> Callable[[Body], Refusal | None]:
    def refuse(body: Body) -> Refusal | None:
        kind = (body.get("response_format") or {}).get("type")
        said = f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this model."
        return openai_error(400, said, param="response_format") if kind in kinds else None

    return refuse


def _azure_filter() -> Refusal:
    said = (
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please "
        "modify your prompt and retry."
    )
    kinds = {"violence": {"filtered": True, "severity": "medium"}}
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": kinds}
    return openai_error(400, said, "content_filter", param="prompt", status=400, innererror=inner)


def _message(completion: Body) -> Body:
    message: Body = completion["choices"][0]["message"]
    return message


def _text(completion: Body) -> str:
    return _message(completion).get("content") or ""


def _content(make: Callable[[str], Any]) -> Callable[[Body], None]:
    """Replaces the content of the answer by a function of its text."""

    def change(completion: Body) -> None:
        _message(completion)["content"] = make(_text(completion))

    return change


def _set(finish: str | None = None, **fields: Any) -> Callable[[Body], None]:
    """Sets fields of the message, and how it finished."""

    def change(completion: Body) -> None:
        _message(completion).update(fields)
        if finish is not None:
            completion["choices"][0]["finish_reason"] = finish

    return change


def _edit(make: Callable[[str], str], finish: str | None = None) -> Callable[[Body], None]:
    """Replaces the text of the answer, or the arguments of the tool that it calls."""

    def change(completion: Body) -> None:
        message = _message(completion)
        if calls := message.get("tool_calls"):
            calls[0]["function"]["arguments"] = make(calls[0]["function"]["arguments"])
        else:
            message["content"] = make(_text(completion))
        if finish is not None:
            completion["choices"][0]["finish_reason"] = finish

    return change


def _error_in_200(completion: Body) -> None:
    raw = {"raw": "upstream error", "provider_name": "Simulated"}
    error = {"message": "Provider returned error", "code": 502, "metadata": raw}
    completion.clear()
    completion.update(error=error, user_id="user_sim")


_thinking = [{"type": "text", "text": _THOUGHT}]

BEHAVIOURS: Mapping[str, Behaviour] = {
    # Answers
    "thoughts": Behaviour(
        "thoughts between <think> and </think> before the answer",
        change=_content(lambda text: f"<think>\n{_THOUGHT}\n</think>\n\n{text}"),
    ),
    "thoughts-unopened": Behaviour(
        "thoughts that end with </think>, whose opening tag is missing",
        change=_content(lambda text: f"{_THOUGHT}\n</think>\n\n{text}"),
    ),
    "thoughts-unclosed": Behaviour(
        "thoughts that begin with <think> and are cut at the output limit, so that there is no answer",
        change=_set("length", content=f"<think>\n{_THOUGHT}"),
    ),
    "reasoning-content": Behaviour(
        "thoughts in the field `reasoning_content` beside the answer (DeepSeek, vLLM, llama.cpp)",
        change=_set(reasoning_content=_THOUGHT),
    ),
    "reasoning": Behaviour(
        "thoughts in the field `reasoning` beside the answer (OpenRouter, Groq, Ollama)",
        change=_set(reasoning=_THOUGHT),
    ),
    "only-reasoning-content": Behaviour(
        "no answer: thoughts in `reasoning_content` up to the output limit",
        change=_set("length", content=None, reasoning_content=_THOUGHT),
    ),
    "only-reasoning": Behaviour(
        "no answer: thoughts in `reasoning` up to the output limit",
        change=_set("length", content="", reasoning=_THOUGHT),
    ),
    "empty": Behaviour("answers without text", change=_set(content="")),
    "null-content": Behaviour("answers whose content is null", change=_set(content=None)),
    "refusal": Behaviour(
        "a refusal in place of an answer (OpenAI)", change=_set(content=None, refusal="I can't help with that.")
    ),
    "filtered": Behaviour("an answer that a content filter removed", change=_set("content_filter", content="")),
    "list-content": Behaviour(
        "the content is a list of text parts", change=_content(lambda text: [{"type": "text", "text": text}])
    ),
    "list-content-thinking": Behaviour(
        "the content is a list of a thinking part and a text part (Mistral)",
        change=_content(lambda text: [{"type": "thinking", "thinking": _thinking}, {"type": "text", "text": text}]),
    ),
    "only-thinking-content": Behaviour(
        "no answer: the content is a list of one thinking part",
        change=_set("length", content=[{"type": "thinking", "thinking": _thinking}]),
    ),
    "cut": Behaviour(
        "the answer ends in its middle, at the output limit",
        change=_edit(lambda text: text[: len(text) // 2], "length"),
    ),
    "garbage": Behaviour(
        "no JSON: words around the answer", change=_edit(lambda text: "Sure! {here you are: " + text[::-1])
    ),
    "no-choices": Behaviour("a completion without choices", change=lambda completion: completion.update(choices=[])),
    "error-in-200": Behaviour("status 200 with an `error` object (OpenRouter)", change=_error_in_200),
    # Parameters
    "refuses-temperature": Behaviour("refuses a temperature other than 1 (OpenAI)", _refuse_temperature),
    "refuses-max-tokens": Behaviour(
        "refuses `max_tokens` and wants `max_completion_tokens` (OpenAI)",
        _unsupported(
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
        ),
    ),
    "refuses-max-completion-tokens": Behaviour(
        "refuses `max_completion_tokens` (Mistral)", _extra("max_completion_tokens")
    ),
    "refuses-system": Behaviour("refuses the system role (OpenAI)", _refuse_system),
    "refuses-json-schema": Behaviour(
        "refuses a JSON schema as `response_format`; JSON without a schema is accepted (OpenAI)",
        _refuse_format("json_schema"),
    ),
    "refuses-response-format": Behaviour(
        "refuses every `response_format`", _refuse_format("json_schema", "json_object")
    ),
    "refuses-seed": Behaviour("refuses `seed` (Gemini)", _unknown_name("seed")),
    "refuses-extra": Behaviour("refuses `seed`, `stop` and `top_p` (Mistral)", _extra("seed", "stop", "top_p")),
    # Errors about one request
    "content-filter": Behaviour("refuses the prompt by a content filter (Azure OpenAI)", _always(_azure_filter())),
    "context-window": Behaviour(
        "the prompt exceeds the context window (vLLM)",
        _always(
            openai_error(400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
                         400, "BadRequestError")
        ),
    ),
    "unprocessable": Behaviour(
        "refuses the input as unprocessable", _always(openai_error(422, "The input could not be processed."))
    ),
    "unknown-400": Behaviour("a status 400 that says nothing", _always(openai_error(400, "Bad request"))),
    # Errors about one sample
    "json-validate-failed": Behaviour(
        "the model did not write valid JSON (Groq)",
        _always(
            openai_error(
                400, "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details.",
                "json_validate_failed", failed_generation='{"answer": '
            )
        ),
    ),
    "tool-use-failed": Behaviour(
        "the model did not write a valid call of a tool (Groq)",
        _always(
            openai_error(
                400, "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
                "tool_use_failed", failed_generation="<function=answer{",
            )
        ),
    ),
    # Errors about all requests
    "401": Behaviour(
        "a wrong key (OpenAI)",
        _always(openai_error(401, "Incorrect API key provided (simulated).", "invalid_api_key")),
    ),
    "403": Behaviour(
        "a key without permission (OpenAI)",
        _always(openai_error(403, "You do not have access to this model (simulated).", "permission_denied")),
    ),
    "404": Behaviour(
        "an unknown model (OpenAI)",
        _always(openai_error(404, "The model does not exist (simulated).", "model_not_found")),
    ),
    "context": Behaviour(
        "the prompt exceeds the context window (OpenAI)",
        _always(openai_error(400, "The maximum context length is 8192 tokens.", "context_length_exceeded")),
    ),
    "no-credit": Behaviour(
        "no credit is left (OpenAI)",
        _always(
            openai_error(
                429, "You exceeded your current quota, please check your plan and billing details.",
                "insufficient_quota", "insufficient_quota",
            )
        ),
    ),
    # Errors that pass
    "html": Behaviour("a page in place of an answer"),
    "hang": Behaviour("nothing, until the client goes away"),
    "drop": Behaviour("the connection is closed"),
    "429": Behaviour(
        "a rate limit",
        _always(openai_error(429, "Rate limit reached (simulated).", "rate_limit_exceeded", "requests")),
    ),
    "500": Behaviour(
        "an error of the server",
        _always(openai_error(500, "The server had an error (simulated).", None, "server_error")),
    ),
}  # fmt: skip
