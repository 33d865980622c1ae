"""Scoring of a part of a task with the scorer of the whole task (MAEL, section 2.2).

A part of a task has no right answer. Some scorers can still score the solution of a part. The other scorers compare a
solution with the right answer to the whole task, so they would score a correct solution of a part as wrong.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import PurePosixPath

from practicum.core.types import Task
from practicum.tasks.scoring.code_blocks import code_blocks, defines_name, project_files, python_code
from practicum.tasks.scoring.coverage import concept_coverage
from practicum.tasks.scoring.registry import meta_fault

_IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)


def task_for_part(scorer: str, whole: Task, part: str, solution: str) -> Task | None:
    """Return the task for scoring the solution of a part, or None if the scorer cannot score the solution.

    The scorer `tests` gets the whole task, if the solution defines the entry point of the tests. `coverage`
    and `commongen` get the part with the concepts that occur in the part. `software` gets the part as the requirement,
    if the solution holds a program that imports only its own files and the standard library.
    """
    if meta_fault(scorer, whole.meta):
        return None
    match scorer:
        case "tests":
            entry = whole.meta.get("entry_point")
            return whole if entry and defines_name(python_code(solution, entry), entry) else None
        case "coverage" | "commongen":
            concepts = [concept for concept in whole.meta["concepts"] if concept_coverage([concept], part).correct]
            return replace(whole, input=part, meta={**whole.meta, "concepts": concepts}) if concepts else None
        case "software":
            if not code_blocks(solution):
                return None
            files = {name: code for name, code in project_files(solution).items() if name.endswith(".py")}
            entry = next(iter(files)) if len(files) == 1 else whole.meta.get("entry") or "main.py"
            paths = [PurePosixPath(name) for name in files]
            importable = sys.stdlib_module_names.union(*({path.stem, path.parts[0]} for path in paths))
            if entry not in files or not importable.issuperset(_IMPORTED.findall("\n".join(files.values()))):
                return None
            return replace(whole, input=part, meta={**whole.meta, "entry": entry})
        case _:
            return None
