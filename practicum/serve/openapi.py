"""The OpenAPI 3.1 document of the service, made from its operations: for programs that call it, and for tests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from practicum.serve import answers
from practicum.serve.answers import Answer
from practicum.serve.api import Operation
from practicum.serve.operations import OPERATIONS
from practicum.serve.protocols import PROTOCOLS

VERSION = "1"
"""Of the document: another one if a program that reads it has to change."""

ABOUT = """\
Learning between agents and their model server. The paths of OpenAI's and Anthropic's protocols, and others below /v1
that ask models, pass through to the upstream: requests get what was learned, and answers the headers
x-practicum-interaction and x-practicum-version. The operations listed here are the service's own.

Without any key, the service answers to its own machine alone. An operation names the role that its key must have; a key
with the role admin may do everything."""

ERRORS = {
    "400": "What was sent is wrong.", "401": "There is no key, or it is wrong or has expired.",
    "403": "The key is not for this.", "404": "There is no such thing, or no such space.",
    "405": "The method is another one.", "409": "It was changed or decided before, or is busy now.",
    "413": "The body is too large.", "429": "Too many requests: see Retry-After.",
    "503": "The database is away: see Retry-After.", "507": "It cannot be written.",
}  # fmt: skip

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "x-practicum-key": {"type": "apiKey", "in": "header", "name": "x-practicum-key"},
}

HEADERS = {
    "x-practicum-space": "The space, for a key that is for all (default: the service's first one).",
    "x-practicum-session": "The conversation or ticket.",
    "x-practicum-user": "The end user who speaks: what is said is that user's word.",
}

SEEN = {
    "x-practicum-interaction": "The id of the interaction, to report about.",
    "x-practicum-version": "The version that was shown.",
}


def document() -> dict[str, Any]:
    """The document, as plain values."""
    paths: dict[str, dict[str, Any]] = {path: {"post": _passed(path)} for path in PROTOCOLS}
    own: list[type[Answer]] = [answers.Health, answers.Ready, answers.Error]
    given: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((operation.answer, "serialization") for operation in OPERATIONS.values()),
        *((operation.form, "validation") for operation in OPERATIONS.values()),
        *((answer, "serialization") for answer in own),
    ]
    _, shared = models_json_schema([*dict.fromkeys(given)], ref_template="#/components/schemas/{model}")
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _described(operation, shared["$defs"])
    ready = {
        "200": _answered("It can serve.", _ref("Ready")),
        "503": _answered("It cannot, and why.", _ref("Ready")),
    }
    metrics = _answered("What Prometheus reads.", {"type": "string"}, "text/plain")
    paths |= {
        "/health": {"get": _open("health", {"200": _answered("It is there. A key says more.", _ref("Health"))})},
        "/ready": {"get": _open("ready", ready)},
        "/metrics": {"get": {**_open("metrics", {"200": metrics}), "security": _security("ask")}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "practicum", "version": VERSION, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": shared["$defs"],
            "securitySchemes": SCHEMES,
            "parameters": {name: _header(name, text) for name, text in HEADERS.items()},
            "responses": {status: _answered(text, _ref("Error")) for status, text in ERRORS.items()},
        },
    }


def _ref(name: str, kind: str = "schemas") -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string", "maxLength": 200}}


def _answered(text: str, schema: Any, kind: str = "application/json") -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """An operation: a form is the query of a GET, and the body otherwise."""
    form, whole = operation.form.__name__, ", for all spaces" if operation.whole else ""
    fields = schemas[form]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.about}\n\nThe role of its key: {operation.role}{whole}.",
        "security": _security(operation.role),
        "parameters": [_ref(name, "parameters") for name in HEADERS],
        "responses": {
            str(operation.status): _answered("Done.", _ref(operation.answer.__name__)),
            **{status: _ref(status, "responses") for status in ERRORS},
        },
    }
    if operation.verb == "GET":
        described["parameters"] += [
            {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": schema}
            for name, schema in fields["properties"].items()
        ]
    else:
        needed = bool(fields.get("required"))
        described["requestBody"] = {"required": needed, "content": {"application/json": {"schema": _ref(form)}}}
    return described


def _passed(path: str) -> dict[str, Any]:
    """A path of a protocol: what is sent and answered is the upstream's to describe."""
    anything: dict[str, Any] = {}
    answered = {
        "description": "The upstream's answer.",
        "headers": {name: {"description": text, "schema": {"type": "string"}} for name, text in SEEN.items()},
        "content": {"application/json": {"schema": anything}, "text/event-stream": {"schema": anything}},
    }
    return {
        "operationId": PROTOCOLS[path],
        "description": f"Passes through to {path} of the upstream.\n\nThe role of its key: ask.",
        "security": _security("ask"),
        "parameters": [_ref(name, "parameters") for name in HEADERS],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {"200": answered, "default": {"description": "An error, of the service or of the upstream."}},
    }


def _open(name: str, responses: dict[str, Any]) -> dict[str, Any]:
    """What takes no key."""
    refused = {status: _ref(status, "responses") for status in ("401", "403", "405", "429")}
    return {"operationId": name, "security": [], "responses": {**refused, **responses}}


def _security(role: str) -> list[dict[str, Any]]:
    return [{scheme: [role]} for scheme in SCHEMES]
