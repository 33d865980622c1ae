"""A simulated OpenAI-compatible model server, for speed benchmarks and tests of durability.

It answers chat completions after a latency that follows a simple law, with content that is a function of the
request alone, and keeps an idealised prefix cache, so that calls, repeats and reuse can be counted exactly.
It can be told to misbehave. Run `python -m practicum.testing.server`, or use `serve` or `start_process`.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TextIO
from urllib.request import ProxyHandler, build_opener

from aiohttp import web

from practicum.testing.fill import Completion, TokenUsage, answer

Body = dict[str, Any]

CHARS_PER_TOKEN = 4
BLOCK_TOKENS = 16
_BLOCK_CHARS = BLOCK_TOKENS * CHARS_PER_TOKEN
_LABEL_CHARS = 40
_MAX_BODY_BYTES = 64 * 2**20
_BACKLOG = 4096  # a benchmark may open a thousand connections in one go

_INVALID = "invalid_request_error"
_ERRORS = {  # status, error type, error code, message
    "429": (429, "requests", "rate_limit_exceeded", "Rate limit reached (simulated)."),
    "500": (500, "server_error", None, "The server had an error (simulated)."),
    "401": (401, _INVALID, "invalid_api_key", "Incorrect API key provided (simulated)."),
    "404": (404, _INVALID, "model_not_found", "The model does not exist (simulated)."),
    "context": (400, _INVALID, "context_length_exceeded", "The maximum context length is 8192 tokens."),
}
_SPOILED_ANSWERS = ("cut", "garbage")
FAULT_KINDS = (*_ERRORS, "html", "hang", "drop", *_SPOILED_ANSWERS)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How the server behaves; seconds for the latencies, (kind, every) for the faults."""

    port: int = 0
    latency: float = 0.2
    per_1k_prompt: float = 0.02
    per_output: float = 0.002
    output_tokens: int | None = None
    tail: float = 0.0
    seed: int = 0
    faults: Sequence[tuple[str, int]] = ()
    log: str | Path | None = None
    responder: Callable[[Body], str | None] | None = None

    def __post_init__(self) -> None:
        for kind, every in self.faults:
            if kind not in FAULT_KINDS or every < 1:
                raise ValueError(f"unknown fault {kind}:{every}: give KIND:EVERY with one of {', '.join(FAULT_KINDS)}")

    def latency_of(self, digest: str, prompt_tokens: int, output_tokens: int) -> float:
        mean = self.latency + self.per_1k_prompt * prompt_tokens / 1000 + self.per_output * output_tokens
        if not self.tail:
            return mean
        normal = Random(f"{self.seed}:{digest}").gauss(0, 1)
        return mean * math.exp(self.tail * normal - self.tail**2 / 2)  # the mean stays what it was

    def fault_of(self, number: int) -> str | None:
        """The fault of the number-th request, if any; the first that applies."""
        return next((kind for kind, every in self.faults if number % every == 0), None)


_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("port", "output_tokens", "seed"), int),
    **dict.fromkeys(("latency", "per_1k_prompt", "per_output", "tail"), float),
    "log": str,
}


@dataclass
class Tally:
    """What answered calls used."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, usage: TokenUsage) -> None:
        self.calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.output_tokens += usage.output_tokens


@dataclass
class Stats(Tally):
    """Everything counted since the start or the last reset."""

    faults: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    latency_sum: float = 0.0
    received: int = 0
    repeats: int = 0
    by_label: dict[str, Tally] = field(default_factory=dict)

    def enter(self) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)


class PrefixCache:
    """An idealised prefix cache: unbounded, filled on arrival, in blocks chained by their hashes."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def admit(self, prompt: str) -> int:
        """Remember the prompt, and return how many of its leading tokens were known before."""
        known, chain = 0, 0
        for index in range(len(prompt) // _BLOCK_CHARS):
            chain = hash((chain, prompt[index * _BLOCK_CHARS : (index + 1) * _BLOCK_CHARS]))
            known += known == index and chain in self._seen
            self._seen.add(chain)
        return known * BLOCK_TOKENS


@dataclass(frozen=True)
class ChatRequest:
    """What the server needs to know of a request."""

    body: Body
    turns: list[tuple[str, str]]  # role and text
    digest: str

    @classmethod
    def of(cls, raw: bytes) -> "ChatRequest":
        """Raises ValueError where the body is not a chat completion request that the server can answer."""
        body = json.loads(raw)
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise ValueError("the body has no list of messages")
        if body.get("stream"):
            raise ValueError("streaming is not simulated")
        turns = [(message.get("role", ""), _text(message.get("content"))) for message in body["messages"]]
        return cls(body, turns, _digest(body))

    def prompt(self) -> str:
        return "".join(role + text for role, text in self.turns)

    def prompt_tokens(self) -> int:
        return _tokens(sum(len(text) for _, text in self.turns))

    def label(self) -> str:
        return next((text for role, text in self.turns if role == "system"), "")[:_LABEL_CHARS]


def _digest(body: Body) -> str:
    """The identity of a request: its messages, and whatever gives its answer a shape."""
    shape = [body.get(key) for key in ("messages", "response_format", "tools", "tool_choice")]
    return sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()


class SimulatedServer:
    """The handlers, and what they count."""

    def __init__(self, options: ServerOptions, log: TextIO | None) -> None:
        self.url = ""
        self._options = options
        self._log = log
        self._stats = Stats()
        self.reset()

    def reset(self) -> None:
        """Forget what was counted and cached; calls in flight stay in flight."""
        now = self._stats.in_flight
        self._stats = Stats(in_flight=now, max_in_flight=now)
        self._digests: set[str] = set()
        self._cache = PrefixCache()

    def stats(self) -> dict[str, Any]:
        return asdict(self._stats)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._get_models)
        app.router.add_get("/stats", self._get_stats)
        app.router.add_post("/reset", self._post_reset)
        return app

    async def _get_models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": "sim", "object": "model", "owned_by": "practicum"}]})

    async def _get_stats(self, request: web.Request) -> web.Response:
        return _json(self.stats())

    async def _post_reset(self, request: web.Request) -> web.Response:
        self.reset()
        return _json({})

    async def _chat(self, request: web.Request) -> web.Response:
        self._stats.enter()
        try:
            return await self._reply(request, asyncio.get_running_loop().time())
        finally:
            self._stats.in_flight -= 1

    async def _reply(self, request: web.Request, arrived: float) -> web.Response:
        try:
            ask = ChatRequest.of(await request.read())
        except ValueError as error:
            return _error(400, _INVALID, None, str(error))
        fault = self._received(ask.digest)
        if fault is None or fault in _SPOILED_ANSWERS:
            return await self._answered(ask, arrived, fault)
        return await _misbehave(fault, request)

    def _received(self, digest: str) -> str | None:
        """Note a request on its arrival, before anything can go wrong with it; return its fault, if any."""
        if self._log is not None:
            self._log.write(digest + "\n")
            self._log.flush()
        self._digests.add(digest)
        stats = self._stats
        stats.received += 1
        stats.repeats = stats.received - len(self._digests)
        fault = self._options.fault_of(stats.received)
        stats.faults += fault is not None
        return fault

    async def _answered(self, ask: ChatRequest, arrived: float, fault: str | None) -> web.Response:
        given = self._given(ask)
        usage = self._usage(ask, given)
        latency = self._options.latency_of(ask.digest, usage.prompt_tokens, usage.output_tokens)
        answered = _json((given.spoiled(fault) if fault else given).completion(ask.body, ask.digest, usage))
        if latency:
            # From the arrival on, so that the server's own work does not add to the simulated time.
            await asyncio.sleep(arrived + latency - asyncio.get_running_loop().time())
        if fault is None:
            self._stats.latency_sum += latency
            self._stats.add(usage)
            self._stats.by_label.setdefault(ask.label(), Tally()).add(usage)
        return answered

    def _usage(self, ask: ChatRequest, given: Completion) -> TokenUsage:
        prompt_tokens = ask.prompt_tokens()
        cached_tokens = min(self._cache.admit(ask.prompt()), prompt_tokens)  # roles are no tokens
        forced = self._options.output_tokens
        return TokenUsage(prompt_tokens, cached_tokens, _tokens(len(given.text)) if forced is None else forced)

    def _given(self, ask: ChatRequest) -> Completion:
        scripted = self._options.responder(ask.body) if self._options.responder else None
        return answer(ask.body, int(ask.digest[:16], 16)) if scripted is None else Completion(scripted)


async def _misbehave(kind: str, request: web.Request) -> web.Response:
    if kind == "hang":
        await asyncio.Event().wait()  # until the handler is cancelled
    if kind == "drop" and request.transport is not None:
        request.transport.abort()
    if kind in ("html", "drop"):
        return web.Response(text="<html><body>Sign in (simulated)</body></html>", content_type="text/html")
    return _error(*_ERRORS[kind])


def _error(status: int, kind: str, code: str | None, message: str) -> web.Response:
    error = {"message": message, "type": kind, "param": None, "code": code}
    response = _json({"error": error}, status)
    if status == 429:
        response.headers["Retry-After"] = "0"
    return response


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


@asynccontextmanager
async def serve(options: ServerOptions | None = None) -> AsyncIterator[SimulatedServer]:
    """Run a server inside this event loop, for as long as the block lasts."""
    options = options or ServerOptions()
    # The log is opened once, before anything is served.
    with nullcontext() if options.log is None else Path(options.log).open("a", encoding="ascii") as log:  # noqa: ASYNC230
        server = SimulatedServer(options, log)
        # A hung call ends when its client goes away, or soon after the server is told to stop.
        runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", options.port, backlog=_BACKLOG).start()
            server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            yield server
        finally:
            await runner.cleanup()


@dataclass(frozen=True)
class ServerProcess:
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[str]

    def stats(self) -> dict[str, Any]:
        return dict(self._call("/stats", None))

    def reset(self) -> None:
        self._call("/reset", b"")

    def _call(self, path: str, data: bytes | None) -> Any:
        opener = build_opener(ProxyHandler({}))  # the environment's proxy is not for this machine
        with opener.open(self.url.removesuffix("/v1") + path, data) as response:
            return json.load(response)


@contextmanager
def start_process(module: str = "practicum.testing.server", **options: Any) -> Iterator[ServerProcess]:
    """Run a server in a process of its own, for as long as the block lasts; takes what `ServerOptions` takes. Another
    `module` is one that calls `main` with a responder of its own."""
    command = [sys.executable, "-m", module, *_arguments(ServerOptions(**options))]
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            ready = process.stdout.readline() if process.stdout else ""
            if not ready:
                raise RuntimeError("the simulated server did not start")
            yield ServerProcess(ready.split()[-1], process)
        finally:
            process.terminate()


def _arguments(options: ServerOptions) -> list[str]:
    """The command line that gives these options."""
    if options.responder is not None:
        raise ValueError("a responder cannot be sent to another process")
    given = ((name, getattr(options, name)) for name in _PARSERS)
    faults = [f"--fault={kind}:{every}" for kind, every in options.faults]
    return [f"{_flag(name)}={value}" for name, value in given if value is not None] + faults


def _options(arguments: Sequence[str] | None) -> ServerOptions:
    """The options that a command line gives."""
    parser = argparse.ArgumentParser(prog="python -m practicum.testing.server", description=__doc__)
    for name, parse in _PARSERS.items():
        parser.add_argument(_flag(name), type=parse, default=getattr(ServerOptions, name))
    parser.add_argument("--fault", dest="faults", metavar="KIND:EVERY", type=_fault, action="append", default=[])
    try:
        return ServerOptions(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        parser.error(str(error))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _fault(text: str) -> tuple[str, int]:
    kind, _, every = text.partition(":")
    return kind, int(every)


async def _serve_until_stopped(options: ServerOptions) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(options) as server:
        print(f"listening on {server.url}", flush=True)
        await stopped.wait()


def main(arguments: Sequence[str] | None = None, responder: Callable[[Body], str | None] | None = None) -> None:
    options = replace(_options(arguments), responder=responder)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection is an open file
    asyncio.run(_serve_until_stopped(options))


if __name__ == "__main__":
    main()
