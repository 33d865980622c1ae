"""Writing files that are whole at any moment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from practicum.core.errors import StoreError


def write_atomic(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as part:
            try:
                part.write(text)
                part.flush()
                os.fsync(part.fileno())
                os.chmod(part.name, 0o644)
                os.replace(part.name, path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
