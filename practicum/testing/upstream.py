"""A simulated upstream of a proxy: chat completions, responses and Anthropic's messages, as JSON and as streams.

An answer is rendered once, and kept as bytes, so that the server takes little of the CPU of a measurement. Streams have
the events of the real APIs. Use `upstream` in this process, or run `python -m practicum.testing.upstream`. (`server` is
a simulated model: it has latencies, a prefix cache and structured outputs, but one protocol and no streams.)

The header `x-sim-fault` of a request, or `fault` of the options for all requests, makes its answer fail or differ;
several are divided by commas:

    429, 500    an error in the form of the protocol; the first with Retry-After
    html        status 200 and a page
    error       status 200 and an error, in a stream after half of the answer
    hang        nothing, until the client goes away
    slow        the answer, but only after `SLOW` seconds
    die         half of the answer, then the connection is closed
    cut         all events of a stream, then the connection is closed without the end of the body
    endless     a stream whose answer does not end until the client leaves; `left` counts these clients
    crlf        the lines of a stream end with CR and LF
    gzip        a compressed answer, also where the client asked for none
    parts       a content that is a list of thinking and text
    odd         a content that is neither a text nor a list

The header `x-sim-request-id` is sent back as `x-request-id`, with the same bytes.
"""

import argparse
import asyncio
import json
import signal
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import uuid4

import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

Body = dict[str, Any]
Answer = str | Mapping[str, Any]
"""A text, or a call of a tool: {"name": its name, "arguments": a mapping}."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TEXT = " ".join(f"Sentence {n} of the answer says what was asked." for n in range(1, 13))
"""The answer where no responder gives one; longer than the chunks of a stream are many."""
SLOW = 1.0
INPUT_TOKENS, CACHED_TOKENS = 120, 64
"""The usage of every answer; its output tokens are the chunks it has as a stream."""
TIME = 1_700_000_000
FAULTS = ("429", "500", "html", "error", "hang", "slow", "die", "cut", "endless", "crlf", "gzip", "parts", "odd")
THOUGHT = "The user wants to know something."
_ID = "0simulated0id0"  # stands in rendered answers for the part of ids that differs
_BACKLOG = 4096


@dataclass(frozen=True, kw_only=True)
class UpstreamOptions:
    """How the upstream answers. `delay` seconds pass before the first byte and `gap` seconds between `chunks`;
    `responder` returns the answer to a parsed body; `keep` keeps what is received; `fault` names one of FAULTS
    or more."""

    port: int = 0
    chunks: int = 60
    delay: float = 0.0
    gap: float = 0.0
    responder: Callable[[Body], Answer] | None = None
    keep: bool = False
    fault: str = ""


@dataclass(frozen=True)
class Received:
    """A request as it arrived. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Upstream:
    """The ASGI app. `url` ends in /v1, and `requests` holds what was received if the options say so."""

    options: UpstreamOptions
    url: str = ""
    requests: list[Received] = field(default_factory=list)
    left: int = 0

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        read = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            read += message.get("body", b"")
            if not message.get("more_body"):
                break
        raw = bytes(read)
        path = scope["path"]
        if self.options.keep:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self.requests.append(Received(path, headers, raw))
        given = dict(scope["headers"])
        fault = given.get(b"x-sim-fault", self.options.fault.encode()).decode("latin-1")
        faults = tuple(filter(None, fault.split(",")))
        if b"x-sim-request-id" in given:
            send = _with_header(send, (b"x-request-id", given[b"x-sim-request-id"]))
        match scope["method"], path:
            case "GET", "/v1/models":
                model = {"id": "sim", "object": "model", "created": TIME, "owned_by": "practicum"}
                await _send_json(send, {"object": "list", "data": [model]})
            case "POST", "/v1/embeddings":
                vector = {"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}
                usage = {"prompt_tokens": 1, "total_tokens": 1}
                await _send_json(send, {"object": "list", "data": [vector], "model": "sim", "usage": usage})
            case "POST", ("/v1/messages/count_tokens" | "/v1/responses/input_tokens"):
                await _send_json(send, {"input_tokens": len(raw) // 4})
            case "POST", ("/v1/chat/completions" | "/v1/completions" | "/v1/responses" | "/v1/messages"):
                await self._answer(path, raw, faults, receive, send)
            case _:
                await _send_error(send, path, 404, "not_found_error", f"nothing is simulated at {path}")

    async def _answer(self, path: str, raw: bytes, faults: tuple[str, ...], receive: Receive, send: Send) -> None:
        try:
            body = json.loads(raw)
            if not isinstance(body, dict) or not body.get(_ASKED.get(path, "messages")):
                raise ValueError("the body has nothing to answer")
            if unknown := {*faults} - {*FAULTS}:
                raise ValueError(f"unknown faults {', '.join(unknown)}: known are {', '.join(FAULTS)}")
        except ValueError as error:
            await _send_error(send, path, 400, "invalid_request_error", str(error))
            return
        if seconds := self.options.delay + SLOW * ("slow" in faults):
            await asyncio.sleep(seconds)
        match faults[0] if faults else "":
            case "429":
                retry = (b"retry-after", b"1")
                await _send_error(send, path, 429, "rate_limit_error", "Rate limit reached (simulated).", retry)
            case "500":
                await _send_error(send, path, 500, "api_error", "The server had an error (simulated).")
            case "html":
                await _start(send, 200, b"text/html")
                await send({"type": "http.response.body", "body": b"<html><body>Sign in (simulated)</body></html>"})
            case "hang":
                while (await receive())["type"] != "http.disconnect":
                    pass
            case _:
                await self._send_answer(path, body, send, faults)
                if "endless" in faults:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    self.left += 1

    async def _send_answer(self, path: str, body: Body, send: Send, faults: tuple[str, ...]) -> None:
        answer = self.options.responder(body) if self.options.responder else TEXT
        call = answer if isinstance(answer, str) else (answer["name"], json.dumps(answer["arguments"]))
        stream, include = bool(body.get("stream")), bool((body.get("stream_options") or {}).get("include_usage"))
        rendered = _render(path, str(body.get("model", "sim")), call, self.options.chunks, stream, include, faults)
        id = uuid4().hex[:24].encode()
        parts = [part.replace(_ID.encode(), id) for part in rendered]
        if body.get("metadata") and path == "/v1/responses":
            metadata = b'"metadata": ' + json.dumps(body["metadata"]).encode()
            parts = [part.replace(b'"metadata": {}', metadata) for part in parts]
        coded = []
        if "gzip" in faults:
            coded = [(b"content-encoding", b"gzip")]
            parts = _gzipped(parts) if stream else [b"".join(_gzipped(parts))]
        if stream:
            await _start(send, 200, b"text/event-stream; charset=utf-8", (b"cache-control", b"no-cache"), *coded)
        else:
            length = (b"content-length", str(sum(map(len, parts))).encode())
            await _start(send, 200, b"application/json", length, *coded)
        if "die" in faults or "endless" in faults:
            parts = parts[: len(parts) // 2] if stream else [parts[0][: len(parts[0]) // 2], b""]
        broken = bool({"die", "endless", "cut"} & {*faults})
        for number, part in enumerate(parts):
            # A sleep of zero seconds ends the turn of the loop, so that each chunk is sent by itself.
            if number:
                await asyncio.sleep(self.options.gap)
            await send({"type": "http.response.body", "body": part, "more_body": stream or broken})
        # uvicorn closes the connection of an app that returns before its answer is complete.
        if stream and not broken:
            await send({"type": "http.response.body"})


_ASKED = {"/v1/responses": "input", "/v1/completions": "prompt"}
"""The field that asks, where it is not `messages`."""


def _with_header(send: Send, header: tuple[bytes, bytes]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], header]
        await send(message)

    return sending


def _gzipped(parts: Sequence[bytes]) -> list[bytes]:
    """The parts of a compressed body, each of which can be read once it is there."""
    packing = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return [*(packing.compress(part) + packing.flush(zlib.Z_SYNC_FLUSH) for part in parts), packing.flush()]


@lru_cache(maxsize=1024)
def _render(
    path: str,
    model: str,
    answer: str | tuple[str, str],
    chunks: int,
    stream: bool,
    include_usage: bool,
    faults: tuple[str, ...],
) -> list[bytes]:
    """The parts of an answer: one if it is JSON, one an event if it is a stream."""
    name, text = ("", answer) if isinstance(answer, str) else answer
    count = max(1, min(chunks, len(text)))
    pieces = [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]
    match path:
        case "/v1/chat/completions":
            whole, events = _chat(model, name, pieces, include_usage)
        case "/v1/completions":
            whole, events = _completion(model, pieces)
        case "/v1/responses":
            whole, events = _responses(model, name, pieces)
        case _:
            whole, events = _messages(model, name, pieces)
    for fault in {"parts", "odd"} & {*faults}:
        whole, events = _changed(whole, fault), [_changed(event, fault) for event in events]
    if "error" in faults:
        whole = {"type": "error", "error": {"type": "api_error", "message": "The server is overloaded (simulated)."}}
        events = [*events[: len(events) // 2], whole]
    if not stream:
        return [json.dumps(whole).encode()]
    end = b"\r\n" if "crlf" in faults else b"\n"
    if "completions" in path:
        lines = [[b"data: " + json.dumps(event).encode()] for event in events] + [[b"data: [DONE]"]]
    else:
        lines = [[f"event: {one['type']}".encode(), f"data: {json.dumps(one)}".encode()] for one in events]
    return [end.join([*each, b"", b""]) for each in lines]


def _changed(value: Any, fault: str) -> Any:
    """An answer, or an event of one, with its texts in parts, or in a shape of no protocol."""
    if isinstance(value, list):
        return [_changed(one, fault) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _changed(one, fault) for name, one in value.items()}
    content = changed.get("content")
    thought: Body = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
    if fault == "odd" and content:
        changed["content"] = {"of": {"no": "protocol"}} if isinstance(content, str) else [7]
    elif isinstance(content, str) and content:
        changed["content"] = [thought, {"type": "text", "text": content}]
    elif content and isinstance(content[0], dict):
        changed["content"] = [thought | {"thinking": THOUGHT}, *content]
    if fault == "odd" and changed.get("type") in ("response.output_text.delta", "content_block_delta"):
        changed["delta"] = 7
    return changed


def _completion(model: str, pieces: Sequence[str]) -> tuple[Body, list[Body]]:
    head = {"id": f"cmpl-{_ID}", "object": "text_completion", "created": TIME, "model": model}

    def of(text: str, finish: str | None) -> Body:
        return {**head, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}

    return of("".join(pieces), "stop"), [*(of(piece, None) for piece in pieces), of("", "stop")]


def _chat(model: str, name: str, pieces: Sequence[str], include_usage: bool) -> tuple[Body, list[Body]]:
    head = {"id": f"chatcmpl-{_ID}", "object": "chat.completion", "created": TIME, "model": model}
    usage = {
        "prompt_tokens": INPUT_TOKENS, "completion_tokens": len(pieces), "total_tokens": INPUT_TOKENS + len(pieces),
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }  # fmt: skip
    text, finish = "".join(pieces), "tool_calls" if name else "stop"
    call: Body = {"id": f"call_{_ID}", "type": "function", "function": {"name": name, "arguments": ""}}
    message: Body = {"role": "assistant", "content": None if name else text, "refusal": None}
    first: Body = {"role": "assistant", "content": None if name else ""}
    if name:
        message["tool_calls"] = [{**call, "function": {"name": name, "arguments": text}}]
        first["tool_calls"] = [{"index": 0, **call}]
        deltas: list[Body] = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    else:
        deltas = [{"content": piece} for piece in pieces]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    chunk = {**head, "object": "chat.completion.chunk", **({"usage": None} if include_usage else {})}

    def event(delta: Body, finish: str | None = None) -> Body:
        return {**chunk, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    events = [event(first), *(event(delta) for delta in deltas), event({}, finish)]
    if include_usage:
        events.append({**chunk, "choices": [], "usage": usage})
    return {**head, "choices": [choice], "usage": usage}, events


def _responses(model: str, name: str, pieces: Sequence[str]) -> tuple[Body, list[Body]]:
    text = "".join(pieces)
    opened, closed = list[Body](), list[Body]()  # the events around the text that is the only part of a message
    if name:
        item: Body = {"type": "function_call", "id": f"fc_{_ID}", "call_id": f"call_{_ID}", "name": name}
        at: Body = {"item_id": item["id"], "output_index": 0}
        empty: Body = {"arguments": ""}
        kind, done = "function_call_arguments", {"name": name, "arguments": text}
        filled: Body = {"arguments": text}
    else:
        item = {"type": "message", "id": f"msg_{_ID}", "role": "assistant"}
        part: Body = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        opened.append({"type": "response.content_part.added", **at, "part": part})
        closed.append({"type": "response.content_part.done", **at, "part": part | {"text": text}})
        at["logprobs"] = []
        kind, done, empty = "output_text", {"text": text}, {"content": []}
        filled = {"content": [part | {"text": text}]}
    begun = {
        "id": f"resp_{_ID}", "object": "response", "created_at": TIME, "status": "in_progress", "error": None,
        "incomplete_details": None, "instructions": None, "max_output_tokens": None, "model": model, "output": [],
        "parallel_tool_calls": True, "previous_response_id": None, "store": True, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": None, "metadata": {},
    }  # fmt: skip
    usage = {
        "input_tokens": INPUT_TOKENS, "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens": len(pieces), "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + len(pieces),
    }  # fmt: skip
    full = item | filled | {"status": "completed"}
    whole = begun | {"status": "completed", "output": [full], "usage": usage}
    events: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item | empty | {"status": "in_progress"}},
        *opened,
        *({"type": f"response.{kind}.delta", **at, "delta": piece} for piece in pieces),
        {"type": f"response.{kind}.done", **at, **done},
        *closed,
        {"type": "response.output_item.done", "output_index": 0, "item": full},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _messages(model: str, name: str, pieces: Sequence[str]) -> tuple[Body, list[Body]]:
    text, stop = "".join(pieces), {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None}
    usage = {
        "input_tokens": INPUT_TOKENS - CACHED_TOKENS, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": CACHED_TOKENS, "output_tokens": len(pieces),
    }  # fmt: skip
    head: Body = {"id": f"msg_{_ID}", "type": "message", "role": "assistant", "model": model}
    if name:
        block: Body = {"type": "tool_use", "id": f"toolu_{_ID}", "name": name, "input": {}}
        full = block | {"input": json.loads(text)}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    else:
        block, full = {"type": "text", "text": ""}, {"type": "text", "text": text}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    none = {"stop_reason": None, "stop_sequence": None}
    begun = head | {"content": [], **none, "usage": usage | {"output_tokens": 1}}
    events: list[Body] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": len(pieces)}},
        {"type": "message_stop"},
    ]
    return head | {"content": [full], **stop, "usage": usage}, events


async def _start(send: Send, status: int, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]})


async def _send_json(send: Send, value: Body, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = json.dumps(value).encode()
    await _start(send, status, b"application/json", (b"content-length", str(len(body)).encode()), *headers)
    await send({"type": "http.response.body", "body": body})


async def _send_error(
    send: Send, path: str, status: int, kind: str, message: str, *headers: tuple[bytes, bytes]
) -> None:
    error = {"type": kind, "message": message}
    if path == "/v1/messages":
        await _send_json(send, {"type": "error", "error": error}, status, headers)
    else:
        await _send_json(send, {"error": {**error, "param": None, "code": None}}, status, headers)


@asynccontextmanager
async def upstream(options: UpstreamOptions | None = None) -> AsyncIterator[Upstream]:
    """Run an upstream inside this event loop, for as long as the block lasts."""
    app = Upstream(options or UpstreamOptions())
    # The parts of uvicorn that its own `serve` puts together, without the signal handlers and the wait at the end.
    config = Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        made: asyncio.Protocol = config.http_protocol_class(config, state, {})  # type: ignore[call-arg]
        return made

    server = await asyncio.get_running_loop().create_server(
        protocol, "127.0.0.1", app.options.port, family=socket.AF_INET, backlog=_BACKLOG
    )
    app.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield app
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        tasks = list(state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is stopped, with the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m practicum.testing.upstream", description=__doc__)
    parser.add_argument("--fault", default="", help="one or more of " + ", ".join(FAULTS))
    for name in ("port", "chunks", "delay", "gap"):
        default = getattr(UpstreamOptions, name)
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = UpstreamOptions(**vars(parser.parse_args(arguments)))

    async def serve_until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with upstream(options) as running:
            print(f"listening on {running.url}", flush=True)
            await stopped.wait()

    uvloop.run(serve_until_stopped())


if __name__ == "__main__":
    main()
