"""ACE, Agentic Context Engineering: a playbook grown by generator, reflector and curator through small edits
(Zhang et al., sections 3.1 and 3.2; METHODS, section 1).

Deviations: refinement is by retry as in the reference code, with the lessons of all rounds kept (it keeps the last);
the next try sees the insight, never the right answer; every edit is applied or refused with a reason; the token budget
is enforced by code.
"""

from __future__ import annotations

from practicum.blocks.update.coverage import Uncovered, accounted
from practicum.engine.loop import Method
from practicum.methods.learning import SECTION, curator
from practicum.methods.primitives import Primitives, assembled


class Settings(Primitives):
    """Settings of ACE; its ablations are among them, and RCL's primitives can be added one by one."""

    uncovered: Uncovered = "keep"
    """A lesson the curator leaves out: keep it as an entry, or drop it as in the paper."""


def method(settings: Settings) -> Method:
    """Generator, reflector, curator on the six seams."""
    s = settings
    update = accounted(curator(s), s.uncovered, SECTION) if s.curator == "edits" else curator(s)
    return assembled(s, "ace", update)
