"""The model server behind the services of these tests. This is the only file here that uses `practicum.testing`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio.from_thread import start_blocking_portal
from helpers import prompt_of

from practicum.testing import ServerOptions, SimulatedServer, fill, serve

MARK = "x-mark"
"""A header by which a test finds its request among the model server's."""

FAULT = "x-sim-fault"
"""A header that lets the model server fail: 429, 500, html, hang, die, ..."""

WHOLE_BUT_UNFINISHED, ERROR_IN_200 = "unfinished", "error-in-200"
"""Faults: all events of a stream without the end of its body, and an error with the status 200."""

UNKNOWN = "I do not know."
"""The answer to a question for which no test has set one."""

NAME = "sim"


@dataclass(frozen=True)
class Received:
    """A request as it reached the model server. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def prompt(self) -> str:
        """All texts of the request, in the order in which a model reads them."""
        return prompt_of(self.json)


@dataclass
class Model:
    """The model server. `answers` maps words of a prompt to the answer: a text, or a function of the body."""

    server: SimulatedServer
    answers: dict[str, str | Callable[[dict[str, Any]], str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address for `--upstream`."""
        return f"{self.server.url}#{NAME}"

    @property
    def base(self) -> str:
        """The address without /v1, for requests that do not go through the service."""
        return self.server.url.removesuffix("/v1")

    @property
    def left(self) -> int:
        """How many clients left an answer that did not end."""
        return int(self.server.stats()["left"])

    def received(self, mark: str | None = None) -> list[Received]:
        """The requests with this mark, or all, in the order of arrival."""
        # A marked request is one of the last.
        requests = list(self.server.requests) if mark is None else self.server.requests[-200:]
        marked = [one for one in requests if mark is None or one.headers.get(MARK) == mark]
        return [Received(one.path, one.headers, one.body) for one in marked]

    def respond(self, body: dict[str, Any]) -> str:
        text = json.dumps(body, ensure_ascii=False)
        for words, answer in list(self.answers.items()):
            if words in text:
                return answer if isinstance(answer, str) else answer(body)
        if schema := (body.get("response_format") or {}).get("json_schema", {}).get("schema"):
            return json.dumps(fill(schema, 1))
        return UNKNOWN


@contextmanager
def running_model() -> Iterator[Model]:
    """A model server in a thread, for as long as the block lasts."""
    models: list[Model] = []
    server = serve(ServerOptions(responder=lambda body: models[0].respond(body), chunks=8))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server) as running:
        models.append(Model(running))
        yield models[0]


def without_ids(raw: bytes) -> bytes:
    """An answer of the model server without the ids that differ from answer to answer."""
    return re.sub(rb"(chatcmpl-|resp_|msg_|fc_|call_)[0-9a-f]{24}", rb"\1", raw)
