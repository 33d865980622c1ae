"""A mark for tests that run code in the sandbox: skipped, with the reason, where the machine has not its fences."""

from __future__ import annotations

import pytest

from practicum.core.errors import UsageError
from practicum.tasks.sandbox.runner import Sandbox


def _why_not() -> str:
    try:
        Sandbox().require()
    except UsageError as error:
        return str(error)
    return ""


_reason = _why_not()
needs_fences = pytest.mark.skipif(bool(_reason), reason=_reason or "fenced")
