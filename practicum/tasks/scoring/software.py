"""Measures of small software projects. The files of a project are inspected and run in the sandbox (ChatDev, Qian et
al. 2024).

A project is complete if every Python file parses and contains no placeholder. It is executable if the program exits
with code 0, or asks for more input than the task's `stdin` holds; unlike in ChatDev, a program that never ends is not
executable. The fit of the code to the requirement is measured with embeddings, see `engine.scorers`.

The input of a task is the requirement. The `meta` of a task may hold `entry` (the file to run; by default main.py, or
the only Python file), `args` (a list of strings) and `stdin`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from practicum.core.views import count_tokens
from practicum.tasks.sandbox.runner import ProgramResult, Sandbox

INSPECTION_SCRIPT = Path(__file__).parents[1] / "sandbox" / "inspect_code.py"


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of the inspection of a project's files.

    `gaps` are syntax errors and placeholders, each with its file and line; `code` is the code without comments.
    `measures` are sizes of this code, summed over the files that parse (MAEL, section 3.3): `files`, `lines` (without
    blank lines), `tokens` (estimated), `functions`, and the cyclomatic `complexity` (McCabe 1976) of each function
    and of each file's code outside functions.
    """

    gaps: tuple[str, ...]
    code: str
    measures: Mapping[str, int]


async def inspect_project(files: Mapping[str, str], sandbox: Sandbox) -> Inspection:
    """Inspect a project without running it. Raises UsageError if the sandbox cannot run on this machine."""
    limits = replace(sandbox.limits, output_kb=sandbox.limits.folder_mb * 1024)
    script = {"main.py": INSPECTION_SCRIPT.read_text(encoding="utf-8")}
    result = await sandbox.run(script, stdin=json.dumps(dict(files)), limits=limits)
    if result.reason:
        gap = f"its files could not be read: the look at them {result.reason}"
        return Inspection((gap,), "", dict.fromkeys(("files", "lines", "tokens", "functions", "complexity"), 0))
    inspected: list[dict[str, Any]] = list(json.loads(result.stdout).values())
    parsed = [file for file in inspected if "fault" not in file]
    gaps = [file["fault"] for file in inspected if "fault" in file]
    gaps += [placeholder for file in parsed for placeholder in file["placeholders"]]
    code = "\n\n".join(file["code"] for file in parsed)
    measures = {"files": len(parsed), "lines": sum(file["lines"] for file in parsed), "tokens": count_tokens(code)}
    measures |= {key: sum(file[key] for file in parsed) for key in ("functions", "complexity")}
    return Inspection(tuple(gaps), code, measures)


async def run_project(meta: Mapping[str, Any], files: Mapping[str, str], sandbox: Sandbox) -> ProgramResult:
    """Run a project. A program that asks for more input than `stdin` holds has succeeded: the `reason` of its result
    is empty."""
    python = [name for name in files if name.endswith(".py")]
    entry = meta.get("entry") or ("main.py" if "main.py" in files or len(python) != 1 else python[0])
    result = await sandbox.run(files, entry, meta.get("args", ()), meta.get("stdin", ""))
    wants_input = result.exit_code == 1 and result.reason.startswith("ended with EOFError")
    return replace(result, reason="") if wants_input else result


def software_fault(meta: Mapping[str, Any]) -> str | None:
    """Return the fault of a project's `meta`, phrased to follow "task X"; None if the `meta` is valid."""
    for name in ("entry", "stdin"):
        if not isinstance(meta.get(name, ""), str):
            return f"has a meta.{name} that is not a string; scorer 'software' needs a string"
    args = meta.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return "has a meta.args that is not a list of strings; scorer 'software' needs a list of strings"
    entry = PurePosixPath(meta.get("entry") or "main.py")
    if entry.is_absolute() or ".." in entry.parts or not entry.parts:
        return "has a meta.entry that is not a relative path such as main.py or app/main.py"
    return None
