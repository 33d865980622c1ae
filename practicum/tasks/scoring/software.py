"""Small software projects: the files of an answer looked at and run in the sandbox (ChatDev, Qian et al. 2024; MAEL).

Completeness is 1 where every Python file parses and nothing in it is left open, else 0. Executability is 1 where the
program ends by itself with exit code 0, or asks for more input than it was given, else 0; unlike in ChatDev, one that
runs on without end does not count. How far the code is about what was asked is for embeddings, see `quality`.

A task brings the requirement as its input, and may bring `meta.entry` (the file to run; main.py, or the only one),
`meta.args` (a list of strings) and `meta.stdin` (what is typed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from practicum.core.views import count_tokens
from practicum.tasks.sandbox.runner import Ran, Sandbox

INSPECTOR = Path(__file__).parents[1] / "sandbox" / "inspect_code.py"


@dataclass(frozen=True, slots=True)
class Measures:
    """How large Python code is, without comments and blank lines, as the sum over the files that parse (MAEL, section
    3.3). Complexity is cyclomatic (McCabe 1976), of the functions and of what stands outside of them in each file.
    Tokens are the house's estimate."""

    files: int
    lines: int
    tokens: int
    functions: int
    complexity: int


@dataclass(frozen=True, slots=True)
class Project:
    """What a look at the files of a project shows; `open` is what does not parse or is left to do, with its place."""

    open: tuple[str, ...]
    code: str
    measures: Measures


async def looked_at(files: Mapping[str, str], sandbox: Sandbox) -> Project:
    """Look at a project without running it. Raises UsageError where no code can be run here."""
    limits = replace(sandbox.limits, output_kb=sandbox.limits.folder_mb * 1024)
    script = {"main.py": INSPECTOR.read_text(encoding="utf-8")}
    ran = await sandbox.run(script, stdin=json.dumps(dict(files)), limits=limits)
    if ran.reason:
        return Project((f"its files could not be read: the look at them {ran.reason}",), "", Measures(0, 0, 0, 0, 0))
    found: dict[str, dict[str, Any]] = json.loads(ran.out)
    read = [file for file in found.values() if "fault" not in file]
    faults = [file["fault"] for file in found.values() if "fault" in file]
    left = [what for file in read for what in file["placeholders"]]
    code = "\n\n".join(file["code"] for file in read)
    return Project((*faults, *left), code, _measures(read, code))


def _measures(read: Sequence[Mapping[str, Any]], code: str) -> Measures:
    return Measures(
        files=len(read),
        lines=sum(file["lines"] for file in read),
        tokens=count_tokens(code),
        functions=sum(file["functions"] for file in read),
        complexity=sum(sum(file["complexity"]) for file in read),
    )


async def executed(meta: Mapping[str, Any], files: Mapping[str, str], sandbox: Sandbox) -> Ran:
    """Run a project. One that asks for more input than it was given has run: then, too, there is no `reason`."""
    python = [name for name in files if name.endswith(".py")]
    entry = meta.get("entry") or ("main.py" if "main.py" in files or len(python) != 1 else python[0])
    ran = await sandbox.run(files, entry, meta.get("args", ()), meta.get("stdin", ""))
    asked_for_more = ran.exit == 1 and ran.reason.startswith("ended with EOFError")
    return replace(ran, reason="") if asked_for_more else ran


def software_fault(meta: Mapping[str, Any]) -> str | None:
    """What is wrong with the description of a project, to be read after "task X"; else None."""
    for name in ("entry", "stdin"):
        if not isinstance(meta.get(name, ""), str):
            return f"has a meta.{name} that is not a string, which scorer 'software' needs it to be"
    args = meta.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return "has a meta.args that is not a list of strings, which scorer 'software' needs it to be"
    entry = PurePosixPath(meta.get("entry") or "main.py")
    if entry.is_absolute() or ".." in entry.parts or not entry.parts:
        return "has a meta.entry that is no relative path, as main.py or app/main.py"
    return None
