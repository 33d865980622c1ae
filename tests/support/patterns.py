"""What a regular expression may cost, by its form: a measured time depends on the machine."""

from __future__ import annotations

import re
import re._constants as op
import re._parser as parser
from typing import Any


def bounded(pattern: re.Pattern[str]) -> bool:
    """Whether every repetition in a pattern has a bound, so that the time of a search grows with the text alone."""

    def holds(node: Any) -> bool:
        if isinstance(node, tuple) and node and node[0] in (op.MAX_REPEAT, op.MIN_REPEAT):
            return node[1][1] is not op.MAXREPEAT and holds(node[1][2])
        return not isinstance(node, tuple | list | parser.SubPattern) or all(map(holds, node))

    return holds(parser.parse(pattern.pattern))
