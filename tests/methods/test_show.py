"""Names of sections, as models write them."""

from __future__ import annotations

from helpers import world
from runs import indoors

from practicum.core.counts import Count
from practicum.methods.blocks.show import section_of

NAMES = {
    "Strategy": "strategies", "2. formulas": "facts and formulas", "code to run": "code", "pitfalls!": "pitfalls",
    "": "strategies", "colours": "strategies", "code and checks": "strategies",
}  # fmt: skip
"""The section of a name. A name that fits no section, or several, is of the first section."""


def test_a_section_is_selected_by_its_words() -> None:
    run = indoors(world, profile="full")
    assert {name: section_of(name, run) for name in NAMES} == NAMES
    assert run.counts[Count.UNKNOWN_SECTIONS] == 2
