"""Writing files atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from practicum.core.errors import StoreError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, as a whole or not at all, with its folders. Raises StoreError if it cannot be
    written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
