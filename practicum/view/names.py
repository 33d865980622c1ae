"""Names of pages: the ids of attempts and entries as parts of an address that are names of files as well."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST = 150
"""Characters of a name; file systems allow 255 bytes."""

_OTHER = re.compile(r"^\.|[^A-Za-z0-9._~-]")


def slug(id: str) -> str:
    """An id as the name of a page. Bytes that an address or a file name cannot hold as they are become =XX."""
    name = _OTHER.sub(lambda c: "".join(f"={byte:02X}" for byte in c.group().encode(errors="surrogatepass")), id)
    return name if len(name) <= LONGEST else f"{name[:100]}=_{sha256(name.encode()).hexdigest()[:32]}"


def unslug(name: str) -> str | None:
    """The id that has this name; None for a name that no id has, or that is too long to tell."""
    parts = re.split(r"((?:=[0-9A-F]{2})+)", name)
    try:
        for i in range(1, len(parts), 2):
            parts[i] = bytes.fromhex(parts[i].replace("=", "")).decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    id = "".join(parts)
    return id if slug(id) == name else None


def run_folder(variant: str, seed: int | str) -> str:
    """The folder of a run of a comparison, relative to that of the comparison."""
    name = re.sub(r"[^\w.=+-]+", "_", variant)
    return f"runs/{name}-{seed}"
