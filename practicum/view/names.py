"""Page names: ids of attempts and entries, encoded to be valid in a URL and as a file name."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST = 150
"""Maximum number of characters of a name; file systems allow 255 bytes."""

_OTHER = re.compile(r"^\.|[^A-Za-z0-9._~-]")


def slug(id: str) -> str:
    """Encode an id as a page name. Bytes that are not safe in a URL or a file name become =XX. A name that is longer
    than LONGEST is shortened and ends in a hash."""
    name = _OTHER.sub(lambda c: "".join(f"={byte:02X}" for byte in c.group().encode(errors="surrogatepass")), id)
    return name if len(name) <= LONGEST else f"{name[:100]}=_{sha256(name.encode()).hexdigest()[:32]}"


def unslug(name: str) -> str | None:
    """Decode a page name to the id that `slug` encoded; None if the name is not valid, or was shortened."""
    parts = re.split(r"((?:=[0-9A-F]{2})+)", name)
    try:
        for i in range(1, len(parts), 2):
            parts[i] = bytes.fromhex(parts[i].replace("=", "")).decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    id = "".join(parts)
    return id if slug(id) == name else None


def run_folder(variant: str, seed: int | str) -> str:
    """Return the folder of a run of a comparison, relative to the folder of the comparison."""
    name = re.sub(r"[^\w.=+-]+", "_", variant)
    return f"runs/{name}-{seed}"
