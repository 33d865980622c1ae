"""The model of an example: `--model NAME`, else the variable PRACTICUM_MODEL, else the small model on this machine.

NAME is any name that practicum knows: `local`, `openai:gpt-4.1-mini`, `http://localhost:8000/v1#my-model`. Examples
that bring their own client use `endpoint()`, which gives the same model as an OpenAI-compatible address.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from practicum.models.local import LocalServer, resolve


def chosen() -> str:
    """Return the name of the model."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--model", default=os.environ.get("PRACTICUM_MODEL", "local"))
    return str(parser.parse_known_args()[0].model)


@dataclass(frozen=True)
class Endpoint:
    """A model as an OpenAI-compatible client needs it."""

    base_url: str
    api_key: str
    name: str
    server: LocalServer | None = None
    """A server that this process started; it ends with the process."""


def endpoint(model: str | None = None) -> Endpoint:
    """Return the address of the model. A local model is loaded and served first."""
    name = model or chosen()
    if name.startswith("local"):
        server = LocalServer(resolve(name), log=Path(mkdtemp()) / "llama.log")
        return Endpoint(server.url, server.key, "local", server)
    key = os.environ.get("OPENAI_API_KEY", "none")
    if name.startswith(("http://", "https://")):
        address, _, served = name.partition("#")
        return Endpoint(address, key, served)
    return Endpoint(os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"), key, name.rpartition(":")[2])
