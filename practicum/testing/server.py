"""A simulated OpenAI-compatible model server, for speed benchmarks and tests of durability.

It answers chat completions with content that is a function of the request alone, after a latency that follows from the
tokens. It keeps an idealised prefix cache and counts calls, repeats and cached tokens exactly. It can be made to fail,
to refuse parameters, and to answer as real servers do (`testing.behaviours`). It streams if a request asks for it.
Run `python -m practicum.testing.server`, or use `serve` or `start_process`.
"""

import argparse
import asyncio
import json
import math
import re
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TextIO
from urllib.request import ProxyHandler, build_opener

from aiohttp import web

from practicum.core.files import allow_many_files
from practicum.core.subprocesses import environment, python_command
from practicum.testing.behaviours import BEHAVIOURS, Refusal, openai_error
from practicum.testing.fill import fill, pseudo_words

Body = dict[str, Any]

CHARS_PER_TOKEN = 4
BLOCK_TOKENS = 16
_BLOCK_CHARS = BLOCK_TOKENS * CHARS_PER_TOKEN
_LABEL_CHARS = 40
_MAX_BODY_BYTES = 64 * 2**20
_BACKLOG = 4096  # a benchmark may open a thousand connections at once

_SPOILED_ANSWERS = {"cut", "garbage"}
"""Answers that are not counted as calls."""
_BROKEN = ("html", "hang", "drop")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How the server behaves. `latency`, `per_1k_prompt` and `per_output` are in seconds; `tail` is the standard
    deviation of the latency's logarithm. `responder` returns the content of an answer, or None for a simulated one.

    A behaviour (name, n) happens at every n-th request, and (name, text) at requests whose messages contain the text.
    Raises ValueError for an unknown name."""

    port: int = 0
    latency: float = 0.2
    per_1k_prompt: float = 0.02
    per_output: float = 0.002
    output_tokens: int | None = None
    tail: float = 0.0
    seed: int = 0
    behaviours: Sequence[tuple[str, int | str]] = ()
    log: str | Path | None = None
    responder: Callable[[Body], str | None] | None = None

    def __post_init__(self) -> None:
        for name, when in self.behaviours:
            if name not in BEHAVIOURS or when == "" or (isinstance(when, int) and when < 1):
                raise ValueError(
                    f"behaviour {name}:{when} is unknown: give NAME, NAME:EVERY or NAME:TEXT with one of "
                    f"{', '.join(BEHAVIOURS)}"
                )

    def latency_of(self, digest: str, prompt_tokens: int, output_tokens: int) -> float:
        """Seconds until the request with this digest is answered; the tail does not change their mean."""
        mean = self.latency + self.per_1k_prompt * prompt_tokens / 1000 + self.per_output * output_tokens
        if not self.tail:
            return mean
        normal = Random(f"{self.seed}:{digest}").gauss(0, 1)
        return mean * math.exp(self.tail * normal - self.tail**2 / 2)


_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("port", "output_tokens", "seed"), int),
    **dict.fromkeys(("latency", "per_1k_prompt", "per_output", "tail"), float),
    "log": str,
}
"""The options of the command line; `--behaviour` is another."""


class SimulatedServer:
    """The handlers, and what they count. `options` and `log` are as in `serve`."""

    def __init__(self, options: ServerOptions, log: TextIO | None) -> None:
        self.url = ""
        self._options = options
        self._log = log
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Forget what was counted and cached; calls in flight stay in flight."""
        self._counts: Counter[str] = Counter()
        self._by_label: dict[str, Counter[str]] = {}
        self._max_in_flight = self._in_flight
        self._latency_sum = 0.0
        self._digests: set[str] = set()
        self._cached_blocks: set[int] = set()

    def stats(self) -> dict[str, Any]:
        """Everything counted since the start or the last reset. Calls and tokens are those of answered calls."""
        names = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "faults", "received")
        counts: dict[str, Any] = {name: self._counts[name] for name in names}
        counts |= {"in_flight": self._in_flight, "max_in_flight": self._max_in_flight, "latency_sum": self._latency_sum}
        by_label = {label: dict(counted) for label, counted in self._by_label.items()}
        return {**counts, "repeats": counts["received"] - len(self._digests), "by_label": by_label}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._get_models)
        app.router.add_get("/stats", self._get_stats)
        app.router.add_post("/reset", self._post_reset)
        return app

    async def _get_models(self, request: web.Request) -> web.Response:
        model = {"id": "sim", "object": "model", "owned_by": "practicum"}
        return web.json_response({"object": "list", "data": [model]})

    async def _get_stats(self, request: web.Request) -> web.Response:
        return web.json_response(self.stats())

    async def _post_reset(self, request: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        try:
            return await self._reply(request, asyncio.get_running_loop().time())
        finally:
            self._in_flight -= 1

    async def _reply(self, request: web.Request, arrived: float) -> web.StreamResponse:
        try:
            body = json.loads(await request.read())
            if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
                raise ValueError("the body has no list of messages")
        except ValueError as error:
            status, said = openai_error(400, str(error))
            return web.json_response(said, status=status)
        # The messages, and what gives the answer a shape.
        asked = [body.get(key) for key in ("messages", "response_format", "tools", "tool_choice")]
        digest = sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        # A request is counted and logged on its arrival, before it can fail.
        if self._log is not None:
            self._log.write(digest + "\n")
            self._log.flush()
        self._digests.add(digest)
        self._counts["received"] += 1
        active = self._active(body)
        refusal = next((refused for name in active if (refused := _refusal(name, body))), None)
        broken = next((name for name in active if name in _BROKEN), None)
        changed = [name for name in active if BEHAVIOURS[name].change is not None]
        self._counts["faults"] += bool(refusal or broken or changed)
        if refusal is not None:
            status, said = refusal
            return web.json_response(said, status=status, headers={"Retry-After": "0"} if status == 429 else None)
        if broken is not None:
            return await _break(broken, request)
        return await self._answer(request, body, digest, arrived, changed)

    def _active(self, body: Body) -> list[str]:
        """The behaviours that happen at this request, which was counted."""
        number, texts = self._counts["received"], "\n".join(_text(turn.get("content")) for turn in body["messages"])
        return [
            name
            for name, when in self._options.behaviours
            if (when in texts if isinstance(when, str) else number % when == 0)
        ]

    def _admit(self, prompt: str) -> int:
        """Put a prompt into the prefix cache, which is unbounded and holds blocks chained by their hashes; returns how
        many of its leading tokens were there before."""
        known, chain = 0, 0
        for index in range(len(prompt) // _BLOCK_CHARS):
            chain = hash((chain, prompt[index * _BLOCK_CHARS : (index + 1) * _BLOCK_CHARS]))
            known += known == index and chain in self._cached_blocks
            self._cached_blocks.add(chain)
        return known * BLOCK_TOKENS

    async def _answer(
        self, request: web.Request, body: Body, digest: str, arrived: float, changed: Sequence[str]
    ) -> web.StreamResponse:
        scripted = self._options.responder(body) if self._options.responder else None
        text, tool = _answer(body, int(digest[:16], 16)) if scripted is None else (scripted, None)
        turns = [(turn.get("role", ""), _text(turn.get("content"))) for turn in body["messages"]]
        prompt_tokens = _tokens(sum(len(content) for _, content in turns))
        cached_tokens = self._admit("".join(role + content for role, content in turns))
        usage = Counter(
            calls=1,
            prompt_tokens=prompt_tokens,
            cached_tokens=min(cached_tokens, prompt_tokens),  # roles are no tokens
            output_tokens=_tokens(len(text)) if self._options.output_tokens is None else self._options.output_tokens,
        )
        latency = self._options.latency_of(digest, prompt_tokens, usage["output_tokens"])
        completion = _completion(body, digest, text, tool, usage, changed)
        if latency:
            # From the arrival on, so that the server's own work does not add to the simulated time.
            await asyncio.sleep(arrived + latency - asyncio.get_running_loop().time())
        if _SPOILED_ANSWERS.isdisjoint(changed):
            self._latency_sum += latency
            self._counts.update(usage)
            label = next((content for role, content in turns if role == "system"), "")[:_LABEL_CHARS]
            self._by_label.setdefault(label, Counter()).update(usage)
        return await _stream(request, body, completion) if body.get("stream") else web.json_response(completion)


def _answer(body: Body, seed: int) -> tuple[str, str | None]:
    """The text of an answer, and the tool whose arguments it is, if the request forces a call of one."""
    if tool := _forced_tool(body):
        return json.dumps(fill(tool.get("parameters", {"type": "object"}), seed)), tool["name"]
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        return json.dumps(fill(form["json_schema"]["schema"], seed)), None
    if (schema := _schema_in_prompt(body)) is not None:
        return json.dumps(fill(schema, seed)), None
    return pseudo_words(Random(seed)), None


def _schema_in_prompt(body: Body) -> Body | None:
    """The first JSON schema of an object in the messages, for clients that ask for JSON in the prompt."""
    for text in (_text(turn.get("content")) for turn in body["messages"]):
        start = text.find("{") if '"properties"' in text else -1
        while start >= 0:
            try:
                value, _ = json.JSONDecoder().raw_decode(text, start)
            except ValueError:
                value = None
            if isinstance(value, dict) and value.get("type") == "object" and "properties" in value:
                return value
            start = text.find("{", start + 1)
    return None


def _forced_tool(body: Body) -> dict[str, Any] | None:
    """The tool to call: the one that is named, or the first on offer that was not called yet, or the last one."""
    choice = body.get("tool_choice")
    tools: list[dict[str, Any]] = [tool["function"] for tool in body.get("tools") or ()]
    if isinstance(choice, dict):
        named = choice.get("function", {}).get("name")
        return next((tool for tool in tools if tool["name"] == named), None)
    if choice != "required" or not tools:
        return None
    calls = (call for message in body["messages"] for call in message.get("tool_calls") or ())
    called = {call["function"]["name"] for call in calls}
    return next((tool for tool in tools if tool["name"] not in called), tools[-1])


def _completion(
    body: Body, digest: str, text: str, tool: str | None, usage: Counter[str], changed: Sequence[str]
) -> dict[str, Any]:
    """The answer as a chat completion; equal for equal requests, except for the cached tokens."""
    finish = "tool_calls" if tool else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool:
        call = {"id": "call_sim", "type": "function", "function": {"name": tool, "arguments": text}}
        message |= {"content": None, "tool_calls": [call]}
    completion = {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body.get("model", "sim"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage["prompt_tokens"], "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["prompt_tokens"] + usage["output_tokens"],
            "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
        },
    }  # fmt: skip
    for name in changed:
        if (change := BEHAVIOURS[name].change) is not None:
            change(completion)
    return completion


def _refusal(name: str, body: Body) -> Refusal | None:
    refuse = BEHAVIOURS[name].refuse
    return refuse(body) if refuse else None


async def _break(kind: str, request: web.Request) -> web.Response:
    if kind == "hang":
        await asyncio.Event().wait()  # until the handler is cancelled
    if kind == "drop" and request.transport is not None:
        request.transport.abort()
    return web.Response(text="<html><body>Sign in (simulated)</body></html>", content_type="text/html")


async def _stream(request: web.Request, body: Body, completion: Body) -> web.StreamResponse:
    """Send a completion as the events of a stream: its text by words, every other field of the message as one event."""
    head = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    events: list[Body] = []
    for choice in completion.get("choices", ()):
        message = dict(choice["message"])
        deltas: list[Body] = [{"role": message.pop("role")}]
        if calls := message.pop("tool_calls", None):
            deltas.append({"tool_calls": [{"index": n, **call} for n, call in enumerate(calls)]})
        content = message.pop("content")
        deltas += [{name: value} for name, value in message.items()]
        words = re.findall(r"\s*\S+\s*", content) if isinstance(content, str) else [content] if content else []
        deltas += [{"content": word} for word in words]
        events += [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if (body.get("stream_options") or {}).get("include_usage") and "usage" in completion:
        events.append({"choices": [], "usage": completion["usage"]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events or [{}]:
        await response.write(f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **event})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


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
        # A hung call ends when its client goes away, or soon after the server is stopped.
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
    """Run a server in a process of its own, for as long as the block lasts. `options` are those of `ServerOptions`
    except `responder`: a `module` of your own calls `main` with one."""
    checked = ServerOptions(**options)
    if checked.responder is not None:
        raise ValueError("a responder cannot be sent to another process: give a module that calls main(responder=...)")
    given = {f"--{name.replace('_', '-')}": getattr(checked, name) for name in _PARSERS}
    flags = [f"{flag}={value}" for flag, value in given.items() if value is not None]
    command = python_command(module, *flags, *(f"--behaviour={name}:{when}" for name, when in checked.behaviours))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            ready = process.stdout.readline() if process.stdout else ""
            if not ready:
                raise RuntimeError("the simulated server did not start")
            yield ServerProcess(ready.split()[-1], process)
        finally:
            process.terminate()


def main(arguments: Sequence[str] | None = None, responder: Callable[[Body], str | None] | None = None) -> None:
    """Serve until the process is stopped, with the options of a command line."""

    def behaviour(text: str) -> tuple[str, int | str]:
        name, colon, when = text.partition(":")
        return name, (int(when) if when.isdecimal() else when) if colon else 1

    async def serve_until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with serve(options) as server:
            print(f"listening on {server.url}", flush=True)
            await stopped.wait()

    width = max(map(len, BEHAVIOURS)) + 2
    parser = argparse.ArgumentParser(
        prog="python -m practicum.testing.server", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="behaviours:\n" + "\n".join(f"  {name:{width}}{each.about}" for name, each in BEHAVIOURS.items()),
    )  # fmt: skip
    for name, parse in _PARSERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=parse, default=getattr(ServerOptions, name))
    parser.add_argument(
        "--behaviour", dest="behaviours", metavar="NAME[:EVERY|:TEXT]", type=behaviour, action="append", default=[],
        help="at all requests, at every so many, or at those whose messages contain the text",
    )  # fmt: skip
    try:
        options = ServerOptions(**vars(parser.parse_args(arguments)), responder=responder)
    except ValueError as error:
        parser.error(str(error))
    allow_many_files()
    asyncio.run(serve_until_stopped())


if __name__ == "__main__":
    main()
