"""A part of a task as its scorer can take it (MAEL, section 2.2; METHODS, section 6: the metric where that applies).

A part has no label. Some scorers can look at what solves it all the same; the others measure answers to the whole, and
would call a right part wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from practicum.core.types import Task
from practicum.tasks.scoring.code_blocks import blocks, code_for, defines, files_in
from practicum.tasks.scoring.coverage import covered
from practicum.tasks.scoring.rules import meta_fault

_IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)


def as_task(scorer: str, whole: Task, part: str, solution: str) -> Task | None:
    """The task that the solution of a part is to be scored by, or None where the scorer cannot tell.

    `tests`: the whole, where the solution defines what the tests enter. `coverage` and `commongen`: the concepts that
    stand in the part. `software`: the part as the requirement, where the solution holds a program that imports nothing
    but itself and Python's own library.
    """
    if meta_fault(scorer, whole.meta):
        return None
    match scorer:
        case "tests":
            entry = whole.meta.get("entry_point")
            return whole if entry and defines(code_for(solution, entry), entry) else None
        case "coverage" | "commongen":
            asked = [concept for concept in whole.meta["concepts"] if covered([concept], part).correct]
            return replace(whole, input=part, meta={**whole.meta, "concepts": asked}) if asked else None
        case "software":
            return _project(whole, part, solution)
        case _:
            return None


def _project(whole: Task, part: str, solution: str) -> Task | None:
    """What stands alone is run by the task's own file, or by the one it has."""
    if not blocks(solution):
        return None
    files = {name: code for name, code in files_in(solution).items() if name.endswith(".py")}
    entry = whole.meta.get("entry") or "main.py"
    entry = next(iter(files)) if len(files) == 1 else entry
    if entry not in files or not _alone(files):
        return None
    return replace(whole, input=part, meta={**whole.meta, "entry": entry})


def _alone(files: Mapping[str, str]) -> bool:
    """Whether all that these files import is among them, or comes with Python."""
    paths = [PurePosixPath(name) for name in files]
    own = {path.stem for path in paths} | {path.parts[0] for path in paths}
    wanted = {name for code in files.values() for name in _IMPORTED.findall(code)}
    return wanted <= own | sys.stdlib_module_names
