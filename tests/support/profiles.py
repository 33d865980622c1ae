"""How many examples hypothesis tries: 25 by default, more with HYPOTHESIS_PROFILE=slow, as in CI."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
DEFAULT_EXAMPLES = 25

hypothesis.settings.register_profile("default", max_examples=DEFAULT_EXAMPLES, deadline=None)
hypothesis.settings.register_profile("slow", max_examples=100, deadline=None)


def cases(values: Iterable[Any], *default: Any) -> list[Any]:
    """Values for `parametrize`: values in `default` are always tried, the others in the slow run."""
    return [value if value in default else pytest.param(value, marks=pytest.mark.slow) for value in values]


def examples(slow: int) -> int:
    """The number for `@settings(max_examples=examples(200))`: `slow` in the slow profile, 25 or fewer by default."""
    return slow if PROFILE == "slow" else min(slow, DEFAULT_EXAMPLES)
