"""OpenAPI 3.1 document of the service, generated from its operations: for client programs, and for tests."""

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
"""Version of the API. The version is increased when clients must change."""

ABOUT = """\
Learning proxy between agents and their model server. The paths of OpenAI's and Anthropic's protocols, and other paths
below /v1 that call models, pass through to the upstream: the service adds learned context to requests, and adds the
headers x-practicum-interaction and x-practicum-version to answers. The operations listed here belong to the service.

If no key is configured, the service only accepts requests from its own machine. Each operation names the role that the
key of a request needs; a key with the role admin may do everything."""

ERRORS = {
    "400": "The request is invalid.", "401": "The key is missing, wrong or expired.",
    "403": "The key does not permit the operation.", "404": "The item or the space does not exist.",
    "405": "The path does not support this method.", "409": "The item was changed or decided already, or is busy.",
    "413": "The body is too large.", "429": "Too many requests: see Retry-After.",
    "503": "The database is unavailable: see Retry-After.", "507": "The data cannot be written.",
}  # fmt: skip

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "x-practicum-key": {"type": "apiKey", "in": "header", "name": "x-practicum-key"},
}

HEADERS = {
    "x-practicum-space": "Space, if the key is for all spaces (default: the first space of the service).",
    "x-practicum-session": "Name of the conversation or ticket that the request belongs to.",
    "x-practicum-user": "End user who sends the text. The text is recorded as text of this user.",
}

SEEN = {
    "x-practicum-interaction": "Id of the interaction, for reports.",
    "x-practicum-version": "Version of the learned context that the request was shown.",
}


def document() -> dict[str, Any]:
    """Return the document as plain values."""
    paths: dict[str, dict[str, Any]] = {path: {"post": _passed(path)} for path in PROTOCOLS}
    own: list[type[Answer]] = [answers.Health, answers.Ready, answers.Error]
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((operation.answer, "serialization") for operation in OPERATIONS.values()),
        *((operation.form, "validation") for operation in OPERATIONS.values()),
        *((answer, "serialization") for answer in own),
    ]
    _, shared = models_json_schema([*dict.fromkeys(models)], ref_template="#/components/schemas/{model}")
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _described(operation, shared["$defs"])
    ready = {
        "200": _answered("The service is ready.", _ref("Ready")),
        "503": _answered("The service is not ready; `status` is the reason.", _ref("Ready")),
    }
    metrics = _answered("Metrics in the format of Prometheus.", {"type": "string"}, "text/plain")
    paths |= {
        "/health": {
            "get": _open(
                "health",
                {
                    "200": _answered(
                        "The service runs. With a key for all spaces, the response has all fields.", _ref("Health")
                    )
                },
            )
        },
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
    """Return the description of an operation. A GET request sends the fields of the form in the query, any other
    request in the body."""
    form, whole = operation.form.__name__, ", for all spaces" if operation.whole else ""
    fields = schemas[form]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.about}\n\nRequired role of the key: {operation.role}{whole}.",
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
    """Return the description of a path of a model protocol. The upstream defines the requests and answers."""
    anything: dict[str, Any] = {}
    answered = {
        "description": "The upstream's answer.",
        "headers": {name: {"description": text, "schema": {"type": "string"}} for name, text in SEEN.items()},
        "content": {"application/json": {"schema": anything}, "text/event-stream": {"schema": anything}},
    }
    return {
        "operationId": PROTOCOLS[path],
        "description": f"The request passes through to {path} of the upstream.\n\nRequired role of the key: ask.",
        "security": _security("ask"),
        "parameters": [_ref(name, "parameters") for name in HEADERS],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {"200": answered, "default": {"description": "Error of the service or of the upstream."}},
    }


def _open(name: str, responses: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a path that needs no key."""
    refused = {status: _ref(status, "responses") for status in ("401", "403", "405", "429")}
    return {"operationId": name, "security": [], "responses": {**refused, **responses}}


def _security(role: str) -> list[dict[str, Any]]:
    return [{scheme: [role]} for scheme in SCHEMES]
