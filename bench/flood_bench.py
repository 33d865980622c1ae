"""Floods from a server or a client of `practicum serve`: memory of the service, and the wait of other requests.

A flood comes from the upstream of the service or from a client; each flood has a new service. During the flood,
another client sends small requests, one after the other. The bench prints a JSON line for each flood: the resident
memory of the service before the flood and at its peak (200 MB at its start), the longest wait of a small request before
and during the flood, the 99th percentile of the latter, and the counts of the service. `nothing` measures without a
flood, as a baseline of the machine. The bench takes about 10 minutes and needs Linux.

    python bench/flood_bench.py [FLOOD ...]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import multiprocessing
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp

from practicum.core.subprocesses import environment, python_command

MB = 2**20
CHAT = "/v1/chat/completions"

FLOODING, QUIET, AFTER = 15.0, 3.0, 0.5
"""Seconds to read an endless answer, and to send small requests before a flood and after it."""

ENDLESS = 400 * MB
"""Size of an endless answer (bytes)."""

ANSWER = b'{"id": "x", "model": "sim", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}}]}'
JSON, EVENTS, GZIP = b"application/json", b"text/event-stream", b"application/json\r\ncontent-encoding: gzip"

Chunks = Iterator[bytes]


def delta(**values: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": values}]}).encode() + b"\n\n"


def repeated(chunk: bytes, size: int = ENDLESS) -> Chunks:
    return (chunk for _ in range(size // len(chunk)))


def large_event() -> Chunks:
    yield b'data: {"choices": [{"delta": {"content": "'
    yield from repeated(b"a" * 65_536, 64 * MB)
    yield b'"}}]}\n\n'


def large_json() -> Chunks:
    yield b'{"choices": ['
    yield from repeated(b"{}," * 20_000, 64 * MB)
    yield b"{}]}"


CALL = delta(tool_calls=[{"function": {"name": "f", "arguments": "aaaa"}}])
ANSWERS: dict[str, tuple[bytes, Callable[[], Chunks]]] = {
    "endless json": (JSON, lambda: repeated(b"1," * 30_000)),
    "endless sse": (EVENTS, lambda: repeated(delta(content="a" * 200) * 250)),
    "endless event": (EVENTS, lambda: repeated(b"data: " + b"a" * 60_000)),
    "event of 64 MB": (EVENTS, large_event),
    "json of 64 MB": (JSON, large_json),
    "tiny events": (EVENTS, lambda: repeated(b"data: {}\n\n" * 6_000, 64 * MB)),
    "tiny deltas": (EVENTS, lambda: repeated(delta(content="a") * 1_000, 64 * MB)),
    "empty lines": (EVENTS, lambda: repeated(b"\n" * 60_000, 64 * MB)),
    "calls of tools": (EVENTS, lambda: repeated(CALL * 100, 8 * MB)),
    "gzip bomb": (GZIP, lambda: iter([PACKED])),
}  # fmt: skip
"""Flood of the upstream → its content type and chunks. The header x-flood of a request has the index of the flood."""

PACKED = b""
"""Bytes of the gzip bomb. The process of the upstream packs them before the first request."""


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            left = int(length[1]) if (length := re.search(rb"content-length: (\d+)", head)) else 0
            while left:
                left -= len(await reader.read(min(left, MB)))
            if (named := re.search(rb"x-flood: (\d+)", head)) is None:
                start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(start % len(ANSWER) + ANSWER)
                continue
            kind, chunks = [*ANSWERS.values()][int(named[1])]
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: " + kind + b"\r\n\r\n")
            for chunk in chunks():
                writer.write(chunk)
                await writer.drain()
                # This process answers the small requests, too.
                await asyncio.sleep(0)
            break
    writer.close()


def upstream(port: Any) -> None:
    """Run the upstream in this process, and send its port to `port`."""
    global PACKED
    PACKED = gzip.compress(b'{"choices": [' + b" " * (256 * MB))

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=4 * MB)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def chat(text: str = "Who handles refunds?", **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def filled(head: bytes, unit: bytes, tail: bytes, size: int) -> bytes:
    return head + b",".join([unit] * (size // (len(unit) + 1))) + tail


def image() -> bytes:
    url = {"type": "image_url", "image_url": {"url": "A" * (7 * MB)}}
    return json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, url]}]}).encode()


def fields(name: str = "", number: int = 600_000) -> bytes:
    many = b"".join(b', "f%d": 1' % n for n in range(number))
    return chat()[:-1] + (b', "%s": {"a": 1%s}}' % (name.encode(), many) if name else many + b"}")


def called(number: int) -> bytes:
    arguments = {f"f{n}": 1 for n in range(number)}
    params = {"name": "recall", "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def steps(number: int) -> bytes:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": f"f{number}", "arguments": "a" * 19_000}}]}
    return json.dumps({"messages": [{"role": "user", "content": f"{number} " + "q" * 19_000}, *[call] * 20]}).encode()


USER, ASSISTANT = b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"abcdef"}'
OPEN = b'{"messages": [' + USER + b","
FEEDBACK = {"interaction": "i", "score": 1.0}
TOOL = b'{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":['
BODIES: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "a million messages": (CHAT, lambda: iter([filled(OPEN, USER, b"]}", 30 * MB)])),
    "a million answers": (CHAT, lambda: iter([filled(OPEN, ASSISTANT, b"]}", 30 * MB)])),
    "answers of 4 MB": (CHAT, lambda: iter([filled(OPEN, ASSISTANT, b"]}", 4 * MB)])),
    "9,000 answers": (CHAT, lambda: iter([filled(OPEN, ASSISTANT, b"]}", 9_000 * len(ASSISTANT))])),
    "parts of 7 MB": (CHAT, lambda: iter([filled(OPEN + b'{"role":"user","content":[', b"{}", b"]}]}", 7 * MB)])),
    "parts of 0.5 MB": (CHAT, lambda: iter([filled(OPEN + b'{"role":"user","content":[', b"{}", b"]}]}", MB // 2)])),
    "arguments of 7 MB": (CHAT, lambda: iter([filled(OPEN + TOOL, b"[]", b"]}}]}]}", 7 * MB)])),
    "a message of 25 MB": (CHAT, lambda: iter([chat("a b. " * (5 * MB))])),
    "a message of 7 MB": (CHAT, lambda: iter([chat("a b.\n " * MB)])),
    "an image of 7 MB": (CHAT, lambda: iter([image()])),
    "nested": (CHAT, lambda: iter([b'{"messages": ' + b"[" * (3 * MB) + b"]" * (3 * MB) + b"}"])),
    "fields": (CHAT, lambda: iter([fields()])),
    "metadata": (CHAT, lambda: iter([fields("metadata")])),
    "user of Claude Code": (
        CHAT, lambda: iter([chat(metadata={"user_id": "user_" + "_session_x" * 8_000 + "\n"})])
    ),
    "models of 25 MB": (CHAT, lambda: (chat(model=f"{n}" + "m" * (25 * MB)) for n in range(12))),
    "forms of 30 MB": (CHAT, lambda: (chat("a" * (30 * MB)) for _ in range(3))),
    "large interactions": (CHAT, lambda: map(steps, range(1_500))),
    "long questions": (CHAT, lambda: (chat(f"{n} " + "ж" * 19_900) for n in range(4_000))),
    "contexts": ("/v1/context", lambda: (json.dumps({"input": f"{n} " + "a" * 10**6}).encode() for n in range(300))),
    "fields of feedback": (
        "/v1/feedback", lambda: iter([json.dumps({**FEEDBACK, **{f"f{n}": 1 for n in range(70_000)}}).encode()])
    ),
    "a text of feedback": (
        "/v1/feedback", lambda: iter([json.dumps({**FEEDBACK, "target": "a. " * 340_000}).encode()])
    ),
    "arguments over MCP": ("/mcp", lambda: iter([called(70_000)])),
}  # fmt: skip
"""Flood of a client → the path, and the bodies that the client sends one after the other."""

HEADERS = {
    "content-type": "application/json", "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-06-18",
}  # fmt: skip


async def flood(url: str, name: str) -> int:
    """Flood a service. Returns the number of bytes received of an answer, or sent."""
    if name == "nothing":
        await asyncio.sleep(5)
        return 0
    size, timeout = 0, aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, headers=HEADERS) as http:
        if name in ANSWERS:
            headers = {"x-flood": str([*ANSWERS].index(name))}
            body, began = chat(stream=ANSWERS[name][0] == EVENTS), time.monotonic()
            async with http.post(url + CHAT, data=body, headers=headers) as response:
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if time.monotonic() - began > FLOODING:
                        break
            return size
        path, bodies = BODIES[name]
        for body in bodies():
            # The client of "forms" sets no type for its bodies, so that they have the type of forms, as with `curl -d`.
            headers = {"content-type": "application/x-www-form-urlencoded"} if name.startswith("forms") else {}
            async with http.post(url + path, data=BytesIO(body), headers=headers) as response:
                await response.read()
            size += len(body)
    return size


def flooding(url: str, name: str, done: Any) -> None:
    """Flood in this process. Sends the number of bytes, or the error, to `done`."""
    try:
        done.send(asyncio.run(flood(url, name)))
    except (aiohttp.ClientError, TimeoutError) as error:
        done.send(f"{type(error).__name__}: {error:.80}")


async def waits(url: str, goes_on: Callable[[], bool]) -> list[float]:
    """Send small requests, one after the other, while `goes_on`. Returns the wait of each (ms)."""
    times, body = list[float](), chat()
    async with aiohttp.ClientSession(headers=HEADERS) as http:
        while goes_on() or not times:
            began = time.perf_counter()
            async with http.post(url + CHAT, data=body) as response:
                await response.read()
            times.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(0.002)
    return times


def within(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


@contextmanager
def service(port: int) -> Iterator[tuple[str, int]]:
    """Start a service on a new store. Yields its address and the id of its process."""
    with tempfile.TemporaryDirectory(prefix="practicum-flood-") as store:
        options = ("--upstream", f"http://127.0.0.1:{port}/v1#sim", store, "--port", "0", "--no-learning")
        command = python_command("practicum.cli.app", "serve", *options)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            try:
                ready = process.stdout.readline() if process.stdout else ""
                if not (match := re.search(r"(http://\S+)/v1:", ready)):
                    raise SystemExit("the service did not start")
                yield match[1], process.pid
            finally:
                process.kill()


def memory(pid: int, name: str) -> int:
    """Return the resident memory of a process (MB): now (VmRSS), or at its peak (VmHWM)."""
    (kilobytes,) = re.findall(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) // 1024


async def measure(url: str, pid: int, name: str) -> dict[str, Any]:
    await waits(url, within(AFTER))
    quiet, before = await waits(url, within(QUIET)), memory(pid, "VmRSS")
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.Process(target=flooding, args=(url, name, sender))
    began = time.monotonic()
    process.start()
    busy = await waits(url, process.is_alive)
    seconds = time.monotonic() - began
    busy += await waits(url, within(AFTER))
    async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as response:
        counts = (await response.json())["counts"]
    size = receiver.recv()
    return {
        "flood": name, "MB": size if isinstance(size, str) else round(size / MB, 1), "seconds": round(seconds, 1),
        "before_mb": before, "peak_mb": memory(pid, "VmHWM"), "quiet_ms": round(max(quiet)),
        "busy_ms": round(max(busy)), "busy_p99_ms": round(sorted(busy)[len(busy) * 99 // 100]),
        "counts": {key: number for key, number in counts.items() if number and key != "interactions"},
    }  # fmt: skip


def main() -> None:
    names = ["nothing", *ANSWERS, *BODIES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("floods", nargs="*", choices=[[], *names], default=[], metavar="FLOOD", help=", ".join(names))
    multiprocessing.set_start_method("spawn")
    receiver, sender = multiprocessing.Pipe()
    behind = multiprocessing.Process(target=upstream, args=(sender,), daemon=True)
    floods = parser.parse_args().floods or names
    behind.start()
    port = receiver.recv()
    for name in floods:
        with service(port) as (url, pid):
            print(json.dumps(asyncio.run(measure(url, pid, name))), flush=True)
    behind.terminate()


if __name__ == "__main__":
    main()
