"""Errors by their codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from practicum.core.errors import PracticumError


@contextmanager
def refused(code: str, **fields: object) -> Iterator[pytest.ExceptionInfo[PracticumError]]:
    """Expect an error of practicum with this code, and at least these fields, that is one line."""
    with pytest.raises(PracticumError) as caught:
        yield caught
    error = caught.value
    assert (error.code, {**error.fields, **fields}) == (code, {**error.fields}), f"{error.code}: {error}"
    assert "\n" not in str(error)
