"""The service behind the proxies of deploy/, with requests that a proxy and the service could read in different ways.

    python bench/proxies_bench.py [nginx] [caddy]

The proxies are programs of the machine, and a proxy that is not installed is skipped. No request may reach another
space or an unlisted path, or become two requests, and a stream must arrive in parts. Prints the number of requests for
each proxy, and exits with 1 at the first violation.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from practicum.serve import lines

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from loads import free_port
from serving import Served, served, until

DEPLOY = Path(__file__).parents[1] / "deploy"
KEY, OTHER = "first-" + "k" * 16, "other-" + "k" * 16
MINE = b"authorization: Bearer " + KEY.encode()
ASK = json.dumps({"messages": [{"role": "user", "content": "Which team handles lost cards?"}]}).encode()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of localhost, and its key, in a new folder."""
    folder.mkdir()
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"]
    new = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", *new, "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def nginx(folder: Path, port: int, service: str, cert: Path, key: Path) -> list[str]:
    """The command of nginx with deploy/nginx.conf, at another port and with another certificate."""
    site = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for old, new in (
        ("server 127.0.0.1:8700;", f"server {service};"), ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("server_name learn.example.com;", "server_name localhost;"),
        ("/etc/ssl/learn.example.com.pem", str(cert)), ("/etc/ssl/private/learn.example.com.key", str(key)),
    ):  # fmt: skip
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    http = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds) + f"include {folder}/site.conf;"
    whole = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {http} }}"
    (folder / "nginx.conf").write_text(whole, encoding="utf-8")
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def caddy(folder: Path, port: int, service: str, cert: Path, key: Path) -> list[str]:
    """The command of Caddy with deploy/Caddyfile, at another port and with another certificate."""
    site = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"
    head = "{$SITE:localhost} {\n"
    assert head in site
    site = options + site.replace(head, f"{head}\ttls {cert} {key}\n")
    site = site.replace("{$SITE:localhost}", f"https://localhost:{port}").replace(
        "{$PRACTICUM:practicum:8700}", service
    )
    (folder / "Caddyfile").write_text(site, encoding="utf-8")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES = {"nginx": nginx, "caddy": caddy}


@dataclass
class Proxy:
    """A proxy at a port, and the log of the requests that reached the service."""

    port: int
    tls: ssl.SSLContext
    log: io.StringIO

    def arrived(self) -> list[tuple[str, int]]:
        """The routes of the requests that the service answered, with the statuses."""
        read = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [(one["route"], one["status"]) for one in read if "route" in one]

    async def sent(self, data: bytes) -> bytes:
        """The bytes of a connection until the proxy closes it, or for a second."""
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=self.tls)
        read = b""
        with suppress(TimeoutError, ConnectionError, ssl.SSLError):
            writer.write(data)
            async with asyncio.timeout(1):
                while more := await reader.read(2**16):
                    read += more
        writer.close()
        return read


@asynccontextmanager
async def behind(name: str, at: Served, folder: Path) -> AsyncIterator[Proxy]:
    """A proxy in front of a service."""
    cert, key = await asyncio.to_thread(certificate, folder)
    port = free_port()
    root, log = logging.getLogger("practicum.requests"), io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(lines.JsonLines())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    command = PROXIES[name](folder, port, at.url.removeprefix("http://"), cert, key)
    home = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "out").open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out, env=home)
        try:
            async with asyncio.timeout(30):
                while True:
                    try:
                        (await asyncio.open_connection("localhost", port))[1].close()
                        break
                    except OSError:
                        assert process.returncode is None, (folder / "out").read_text()
                        await asyncio.sleep(0.05)
            yield Proxy(port, ssl.create_default_context(cafile=str(cert)), log)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
            root.removeHandler(handler)
            root.setLevel(logging.NOTSET)


# Requests that two servers could read in different ways

INNER = b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A body that would be a request if the proxy and the service disagreed on the end of the request before it. Proxies do
not pass this path."""


def head(*headers: bytes, line: bytes = b"POST /v1/chat/completions") -> bytes:
    return b"\r\n".join([line + b" HTTP/1.1", b"host: localhost", *headers, b"", b""])


def whole(*headers: bytes) -> bytes:
    return head(*headers, b"content-length: %d" % len(ASK)) + ASK


def trailed(*headers: bytes, trailer: bytes) -> bytes:
    chunk = b"%x\r\n%s\r\n" % (len(ASK), ASK)
    return head(b"transfer-encoding: chunked", *headers) + chunk + b"0\r\n" + trailer + b"\r\n\r\n"


THEIRS = b"authorization: Bearer " + OTHER.encode()
TRAILERS = (
    b"x-practicum-user: eve", b"x-practicum-space: other", THEIRS, b"x-practicum-key: " + OTHER.encode(),
    b"host: evil.example", b"origin: https://evil.example", b"x-forwarded-for: 6.6.6.6",
)  # fmt: skip
PAIRS = (
    (b"x-practicum-user: anna", b"x-practicum-user: eve"), (b"x-practicum-user: eve", b"x-practicum-user: "),
    (THEIRS, b"x-practicum-user: eve"), (b"host: evil.example", b"x-practicum-user: eve"),
)  # fmt: skip
CODINGS = (
    b"transfer-encoding: chunked", b"transfer-encoding: xchunked", b"transfer-encoding : chunked",
    b"transfer-encoding:\x0bchunked", b"transfer-encoding: gzip, chunked", b"transfer-encoding:\r\n chunked",
    b"transfer-encoding: chunked\r\ntransfer-encoding: identity", b"x: y\ntransfer-encoding: chunked",
)  # fmt: skip
LENGTHS = (
    b"content-length: 0\r\ncontent-length: %d",
    b"content-length: +%d",
    b"content-length: 0, %d",
    b"content-length : %d",
)
CHUNKS = (b"5;x\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n")
PATHS = (
    b"//metrics", b"/./metrics", b"/%6Detrics", b"/metrics/", b"/metrics;x", b"/x/../metrics", b"/%2e/metrics",
    b"http://x//metrics", b"/metrics%00", b"/\\metrics", b"/metrics%3f", b"/x%2f..%2fready", b"/metrics#x",
)  # fmt: skip


def attacks() -> list[bytes]:
    """Requests that may not reach another space, name eve as the user, or become two."""
    odd = [trailed(MINE, trailer=trailer) for trailer in TRAILERS]
    odd += [trailed(MINE, b"trailer: " + trailer.split(b":")[0], trailer=trailer) for trailer in TRAILERS]
    odd.append(trailed(b"x-practicum-user: eve", trailer=MINE))
    odd += [whole(MINE, first, second) for first, second in PAIRS]
    ended, inside = b"0\r\n\r\n" + INNER, b"%x\r\n%s\r\n0\r\n\r\n" % (len(INNER), INNER)
    odd += [head(MINE, coding, b"content-length: %d" % len(ended)) + ended for coding in CODINGS]
    odd += [head(MINE, coding, b"content-length: 4") + inside for coding in CODINGS]
    odd += [head(MINE, length % len(INNER)) + INNER for length in LENGTHS]
    odd += [head(MINE, b"transfer-encoding: chunked") + chunks for chunks in CHUNKS]
    for protocol in (b"h2c", b"websocket"):
        upgrade = b"connection: upgrade", b"upgrade: " + protocol, b"content-length: %d" % len(INNER)
        odd.append(head(MINE, *upgrade) + INNER)
    odd += [head(MINE, line=b"GET " + path) for path in PATHS]
    odd += [head(MINE, line=method + b" /v1/models") for method in (b"TRACE", b"CONNECT", b"PROPFIND")]
    return odd


async def users(at: Served, key: str) -> set[str | None]:
    """The users of the interactions in the space of a key."""
    await until(lambda: not at.service.database.writer.unwritten)
    reply = await at.send("GET", "/v1/interactions?limit=200", None, {"authorization": f"Bearer {key}"})
    return {one["user"] for one in reply.json["interactions"]}


async def measure(name: str, folder: Path) -> int:
    """Send the requests through a proxy and check what arrives. Return the number of requests."""
    spaces = ("mine", "other")
    async with (
        served(folder / "store", keys=(f"mine={KEY}", f"other={OTHER}"), spaces=spaces) as at,
        behind(name, at, folder / "proxy") as proxy,
    ):
        await proxy.sent(whole(MINE, b"connection: x-practicum-user", b"x-practicum-user: anna"))
        assert await users(at, KEY) <= {"anna"}
        tried = attacks()
        answers = await asyncio.gather(*(proxy.sent(data) for data in tried))
        assert all(answer.startswith(b"HTTP/1.1 ") or not answer for answer in answers)
        arrived = proxy.arrived()
        assert not {"metrics", "ready"} & {route for route, _ in arrived}
        assert len(arrived) <= len(tried) + 2
        assert await users(at, KEY) <= {None, "anna"}
        assert await users(at, OTHER) == set()
        # The requests with trailers are good ones without them.
        assert arrived.count(("chat", 200)) >= 2 * len(TRAILERS)
        # A stream passes in parts, and ends with the client.
        left = at.upstream.stats()["left"]
        body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
        reader, writer = await asyncio.open_connection("localhost", proxy.port, ssl=proxy.tls)
        writer.write(head(MINE, b"x-sim-fault: endless", b"content-length: %d" % len(body)) + body)
        async with asyncio.timeout(30):
            await reader.readuntil(b"Sentence 1")
        assert at.upstream.stats()["left"] == left
        # Without waiting for the proxy's goodbye of TLS.
        writer.transport.abort()
        await until(lambda: at.upstream.stats()["left"] == left + 1)
        return len(tried)


def main() -> None:
    for name in sys.argv[1:] or PROXIES:
        if shutil.which(name) is None:
            print(f"{name} is not installed: skipped")
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {asyncio.run(measure(name, Path(folder)))} requests, each read alike; a stream in parts")


if __name__ == "__main__":
    main()
