"""Packages that some tests need and `pip install '.[dev]'` leaves out."""

from __future__ import annotations

from typing import Any

import pytest


def needs(module: str, extra: str = "") -> Any:
    """Import a module, of the extra of the same name by default. Where it is not installed, the test is skipped, or the
    whole file if this is called at its top; the reason names the extra."""
    return pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[{extra or module}]'")
