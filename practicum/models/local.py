"""Local models: llama.cpp, through xllamacpp, serves the OpenAI protocol on a loopback port.

The server runs in a child process, which has its own log and can be killed. A server in this process would have these
problems: closing the server would wait forever for a request in flight, exiting without closing the server could crash,
the log and the abort() of llama.cpp would affect this process, and spinning of OpenMP threads could not be limited.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from practicum.core.errors import ModelError
from practicum.core.files import append_private, make_folder
from practicum.core.requirements import pip_install
from practicum.core.subprocesses import environment, python_command

_CACHE_RAM_MIB = 1024
_HTTP_THREADS = 64
_HUB = "local:hf:"


def resolve(name: str, progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the GGUF file of a model named `local`, `local:PATH` or `local:hf:OWNER/REPO/FILE`. The file is downloaded
    if necessary.

    `local:hf:OWNER/REPO/FILE@REVISION` is the file of one commit; without a revision, the newest version of the file is
    used. Raises ModelError if the name is malformed, the download fails, or the file is not a GGUF model.
    """
    if name == "local":
        from practicum.models.download import SMOLLM2, cache_folder, download

        return download(SMOLLM2, cache_folder(), progress)
    kind, _, path = name.partition(":")
    if kind != "local" or not path:
        raise ModelError(
            "model.invalid_name",
            f"{name!r} is not a local model: use local, local:PATH.gguf or local:hf:OWNER/REPO/FILE",
        )
    return _checked(_from_hub(path[3:]) if path.startswith("hf:") else Path(path).expanduser())


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError("model.load_failed", f"cannot read the model {path}: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise ModelError(
            "model.load_failed",
            f"{path} is not a GGUF model: it begins with {magic!r}, and llama.cpp only reads GGUF files",
        )
    return path


def pinned(name: str) -> str:
    """Add the commit of the file to the name of a model on the Hugging Face hub, because the file on the hub may
    later be replaced by a model of another author. The file is downloaded if necessary. Return names of other models,
    and names with a revision, unchanged."""
    if not name.startswith(_HUB) or "@" in name:
        return name
    # huggingface_hub stores each file in a folder that is named after the file's commit.
    folders = _from_hub(name.removeprefix(_HUB)).parts
    return f"{name}@{folders[folders.index('snapshots') + 1]}" if "snapshots" in folders else name


def _from_hub(address: str) -> Path:
    parts = address.partition("@")[0].split("/", 2)
    if len(parts) < 3 or not all(parts) or address.endswith("@"):
        raise ModelError(
            "model.invalid_name", f"local:hf:{address} is incomplete: use local:hf:OWNER/REPO/FILE.gguf@REVISION"
        )
    repository, file, revision = "/".join(parts[:2]), parts[2], address.partition("@")[2] or None
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ModelError("extra.missing", f"local:hf:{address} needs a package: pip install huggingface_hub") from error
    try:
        return Path(hf_hub_download(repository, file, revision=revision, etag_timeout=10))
    # The hub's package raises exceptions of any type, from its transport, the disk and its checks. The advice is the
    # same for all these exceptions.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            "model.download_failed",
            f"cannot download {file} of {repository} from the Hugging Face hub: {reason} "
            f"Check the name and the network, or download the file another way and use local:/path/to/file.gguf",
        ) from error


class LocalServer:
    """Server of one model. The server runs until close() is called or this process ends in any way.

    The server processes `slots` requests concurrently, each with a window of `window` tokens for prompt and answer
    together. Answers to requests without a limit have at most `output_tokens` tokens. The output of llama.cpp is
    appended to `log`. Raises ModelError if the model cannot be loaded.
    """

    url: str
    """Address of the OpenAI protocol; ends in /v1."""
    window: int
    """Window of one slot (tokens): the requested window, but at most the window that the model was trained with."""
    key: str
    """API key that requests must send, because other users of this machine can reach the port, too."""

    def __init__(self, path: Path, *, slots: int = 4, window: int = 4096, output_tokens: int = 1024, log: Path) -> None:
        _require_xllamacpp()
        settings = {
            "path": str(_checked(path).resolve()), "slots": slots, "window": window, "output_tokens": output_tokens,
            "threads": _cores(),
        }  # fmt: skip
        self.key = secrets.token_urlsafe(32)
        child = _start(settings, log)
        # The finalizer also runs when the process ends without a call of close(), and after an exception.
        self._close = weakref.finalize(self, _stop, child)
        try:
            _send_key(child, self.key)
            self.url, self.window = _wait_until_loaded(child, path, log)
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """Stop the server immediately; requests in flight fail. Repeated calls have no effect."""
        self._close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_xllamacpp() -> None:
    from importlib.util import find_spec

    if find_spec("xllamacpp") is None:
        raise ModelError("extra.missing", f"local models need llama.cpp: {pip_install('local')}")


def _start(settings: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    make_folder(log.parent)
    # Environment variables of llama.cpp: the paths of its libraries, and the use of processors.
    compute = ("OMP_", "GOMP_", "KMP_", "GGML_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "VK_")
    variables = environment(*compute, "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    if "OMP_WAIT_POLICY" not in os.environ:
        # Waiting threads that spin stall each other when another process uses a core: 2 tokens per second instead of
        # 40 on two cores. Threads that sleep immediately halve the speed on an idle machine. So they spin briefly, and
        # then sleep.
        variables.setdefault("GOMP_SPINCOUNT", "100000")
    with append_private(log) as stderr:
        return subprocess.Popen(
            python_command(__name__, json.dumps(settings)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=variables,
            # The first Ctrl-C lets requests in flight finish, so the signal must not reach the server.
            start_new_session=True,
        )


def _send_key(child: subprocess.Popen[bytes], key: str) -> None:
    """Send the key through standard input, because all users can see the arguments of a process."""
    assert child.stdin
    with suppress(BrokenPipeError):  # the server has ended; its log has the reason
        os.write(child.stdin.fileno(), f"{key}\n".encode())


def _stop(child: subprocess.Popen[bytes]) -> None:
    # The server has nothing to save, and after a termination signal the server would finish its answers first.
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            pipe.close()


def _wait_until_loaded(child: subprocess.Popen[bytes], path: Path, log: Path) -> tuple[str, int]:
    """Return the server's address and window once the model is loaded."""
    assert child.stdout
    line = child.stdout.readline()
    if not line:
        code = child.wait()
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if " E " in line] or lines
        reason = " / ".join(line.strip()[:160] for line in errors[-2:])
        raise ModelError(
            "model.load_failed",
            f"llama.cpp could not load {path} (exit code {code}); its log {log} ends with: {reason}",
        )
    started = json.loads(line)
    return str(started["url"]), int(started["window"])


def _cores() -> int:
    """Return the number of physical cores that this process may use. A second thread on a core makes llama.cpp
    slower."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1

    def siblings(cpu: int) -> str:
        try:
            return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            return str(cpu)

    return len({siblings(cpu) for cpu in os.sched_getaffinity(0)})


@lru_cache(maxsize=256)
def _grammar(schema: str) -> str:
    import re

    _require_xllamacpp()
    import xllamacpp

    # Forbid white space: builds of llama.cpp with llguidance read the key `x-guidance` of the schema; the grammars of
    # other builds have a rule named `space`, which is emptied below.
    compact = {"x-guidance": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}}
    try:
        grammar = str(xllamacpp.json_schema_to_grammar(json.loads(schema) | compact))
    except RuntimeError as error:
        raise ModelError(
            "output.unsupported_schema", f"llama.cpp cannot convert the schema {schema[:200]} to a grammar: {error}"
        ) from error
    return re.sub(r"^space ::= .*$", 'space ::= ""', grammar, flags=re.MULTILINE)


def compact_grammar(schema: dict[str, Any]) -> str:
    """Return a grammar for the JSON of `schema` without white space between tokens, for the request's field `grammar`.

    With white space, small models spend up to half of their output on indentation. A schema that llama.cpp does not
    support raises ModelError here or gets status 400 from the server, depending on the build.
    """
    return _grammar(json.dumps(schema))


def _serve(settings: dict[str, Any]) -> None:
    """Run the child process: serve until the parent closes standard input, which also happens when the parent is
    killed."""
    parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library's output goes to the log too
    from urllib.request import Request, urlopen

    import xllamacpp

    key = sys.stdin.readline().strip()

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_parallel = settings["slots"]
    params.n_predict = settings["output_tokens"]
    params.n_ctx = settings["slots"] * settings["window"]  # llama.cpp divides the window among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.cors_origins = "http://localhost"  # web pages in the user's browser must not call the server
    params.n_threads_http = _HTTP_THREADS  # each open connection occupies one thread
    params.cache_ram_mib = _CACHE_RAM_MIB
    server = xllamacpp.Server(params)
    url = server.listening_address.rstrip("/")
    with urlopen(Request(f"{url}/props", headers={"Authorization": f"Bearer {key}"}), timeout=30) as response:
        # llama.cpp limits a slot to the window that the model was trained with.
        window = int(json.load(response)["default_generation_settings"]["n_ctx"])
    print(json.dumps({"url": f"{url}/v1", "window": window}), file=parent, flush=True)
    sys.stdin.read()
    os._exit(0)  # the library's shutdown may wait forever


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
