"""A model on this machine: llama.cpp, through xllamacpp, serving the OpenAI protocol on a loopback port.

It runs in a child process of ours. In our own process, closing it waits for ever on a request in flight,
leaving without closing it can crash, its log and its abort() are ours, and OpenMP cannot be told not to spin
(two threads on two busy cores: 2 tokens a second instead of 40). A child has its own log and can be killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from practicum.core.errors import ModelError

_CACHE_RAM_MIB = 1024
_HTTP_THREADS = 64


# ---- which file


def resolve(name: str, progress: Callable[[int, int], None] | None = None) -> Path:
    """The GGUF file that `local`, `local:PATH` or `local:hf:OWNER/REPO/FILE` means. Raises ModelError."""
    if name == "local":
        from practicum.models.download import SMOLLM2, cache_folder, download

        return download(SMOLLM2, cache_folder(), progress)
    kind, _, rest = name.partition(":")
    if kind != "local" or not rest:
        raise ModelError(f"{name!r} is no local model: local, local:PATH.gguf or local:hf:OWNER/REPO/FILE")
    return _gguf(_from_hub(rest[3:]) if rest.startswith("hf:") else Path(rest).expanduser())


def _gguf(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is no GGUF model: it begins with {magic!r}; llama.cpp reads GGUF files only")
    return path


def _from_hub(address: str) -> Path:
    parts = address.split("/", 2)
    if len(parts) < 3 or not all(parts):
        raise ModelError(f"local:hf:{address} is incomplete: say local:hf:OWNER/REPO/FILE.gguf")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ModelError(f"local:hf:{address} needs a package: pip install huggingface_hub") from error
    try:
        return Path(hf_hub_download(f"{parts[0]}/{parts[1]}", parts[2], etag_timeout=10))
    # The hub lets through what its transport, its disk and its own checks raise; to the user all are one.
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"cannot get {parts[2]} of {parts[0]}/{parts[1]} from the Hugging Face hub: {why} "
            f"Check the name and the network, or get the file another way and say local:/path/to/it.gguf"
        ) from error


# ---- the server


class LocalServer:
    """One model being served. Its memory and its port are freed by close(), or when the process ends.

    `slots` requests are answered at once, each in a window of `window` tokens, prompt and answer together.
    `threads` defaults to the cores this process may use. `log` is added to.
    """

    url: str
    """The address of the OpenAI protocol, with /v1."""
    window: int
    """Tokens in one slot: what was asked for, or what the model was trained on where that is less."""

    def __init__(
        self, path: Path, *, slots: int = 4, window: int = 4096, log: Path, threads: int | None = None
    ) -> None:
        _need_xllamacpp()
        settings = {
            "path": str(_gguf(path).resolve()),
            "slots": slots,
            "window": window,
            "threads": threads or _cores(),
        }
        child = _start(settings, log)
        # finalize() also runs when the process ends, be it by an exception or without any close().
        self._close = weakref.finalize(self, _stop, child)
        try:
            self.url, self.window = _greeting(child, path, log)
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """Ends the server now; requests in flight fail. May be called more than once."""
        self._close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _need_xllamacpp() -> None:
    from importlib.util import find_spec

    if find_spec("xllamacpp") is None:
        raise ModelError("local models need llama.cpp: pip install 'practicum[local]'")


def _start(settings: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folder or os.getcwd() for folder in sys.path),
        # Threads that spin while they wait stall each other as soon as anything else uses a core: 2 tokens
        # a second instead of 40 (two cores, one of them busy). Threads that sleep at once halve the speed of a
        # machine that is otherwise idle. So they spin for a moment, and then sleep.
        **({} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "100000")}),
    }
    with log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            # The first Ctrl-C lets requests in flight finish, so it must not reach the server.
            start_new_session=True,
        )


def _stop(child: subprocess.Popen[bytes]) -> None:
    # It holds nothing worth saving, and asked politely it would first finish what it is writing.
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            pipe.close()


def _greeting(child: subprocess.Popen[bytes], path: Path, log: Path) -> tuple[str, int]:
    """Waits until the model is loaded: the server's address and window."""
    assert child.stdout
    line = child.stdout.readline()
    if not line:
        reason = f"llama.cpp could not load it (code {child.wait()})"
        raise ModelError(f"cannot serve {path}: {reason}; its log {log} ends with: {_last_words(log)}")
    greeting = json.loads(line)
    return str(greeting["url"]), int(greeting["window"])


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if " E " in line] or lines
    return " / ".join(line.strip()[:160] for line in errors[-2:])


def _cores() -> int:
    """Physical cores this process may use: a second thread on one core makes llama.cpp slower."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


# ---- in the child


def _serve(settings: dict[str, Any]) -> None:
    """Serves until the parent closes our stdin, which the system does for it also when it is killed."""
    greeting = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints goes to the log as well
    import xllamacpp

    server = xllamacpp.Server(_parameters(settings))
    url = server.listening_address.rstrip("/")
    print(json.dumps({"url": f"{url}/v1", "window": _true_window(url)}), file=greeting, flush=True)
    sys.stdin.read()
    os._exit(0)  # the library's own shutdown may wait for ever


def _parameters(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["window"]  # llama.cpp divides it among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = False
    params.cors_origins = "http://localhost"  # not for every page in the user's browser
    params.n_threads_http = _HTTP_THREADS  # a connection that is kept alive holds one
    params.cache_ram_mib = _CACHE_RAM_MIB
    return params


def _true_window(url: str) -> int:
    """llama.cpp cuts a slot down to the window that the model was trained on, and tells here."""
    from urllib.request import urlopen

    with urlopen(f"{url}/props", timeout=30) as answer:
        return int(json.load(answer)["default_generation_settings"]["n_ctx"])


# ---- grammars


def compact_grammar(schema: dict[str, Any]) -> str:
    """A grammar for the JSON of `schema` with no white space between tokens.

    Small models otherwise spend up to half of what they write on indenting. Send it as `grammar` in the body
    of a request. A schema that llama.cpp cannot follow raises ModelError here, or is a 400 from the server,
    as the build has it.
    """
    return _grammar(json.dumps(schema))


@lru_cache(maxsize=256)
def _grammar(schema: str) -> str:
    import re

    _need_xllamacpp()
    import xllamacpp

    # Builds of llama.cpp with llguidance take the wish from the schema; the others have a rule of this name.
    wish = {"x-guidance": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}}
    try:
        grammar = str(xllamacpp.json_schema_to_grammar(json.loads(schema) | wish))
    except RuntimeError as error:
        raise ModelError(f"llama.cpp cannot make a grammar of the schema {schema[:200]}: {error}") from error
    return re.sub(r"^space ::= .*$", 'space ::= ""', grammar, flags=re.MULTILINE)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
