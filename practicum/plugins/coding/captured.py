"""Captured sessions: where they are stored, which project they belong to, and their requests as tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ValidationError

from practicum.core.errors import StoreError, TaskFileError
from practicum.core.files import open_file
from practicum.core.types import Task
from practicum.plugins.coding.capture import CAPTURED
from practicum.plugins.coding.programs import PROGRAMS
from practicum.tasks.stored import TASK
from practicum.tasks.traces import TraceStream

MOST_LINE = 2**16
"""Maximum size of a line (bytes) in the list of captured sessions."""


class Captured(BaseModel):
    """Session that a hook noted. `transcript` is the file of the session, and `folder` the folder of the agent."""

    program: str
    session: str
    transcript: Path
    folder: Path
    time: str


@dataclass
class Project:
    """Project with captured sessions, by program and id; a later note about a session replaces an earlier note.
    `missing` is the number of sessions whose file does not exist."""

    folder: Path
    sessions: dict[tuple[str, str], Captured] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    missing: int = 0

    @property
    def name(self) -> str:
        """Name of the project's space: the name of the folder, with a digest of its path."""
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in self.folder.name)
        return f"{plain.strip('.')[:40] or 'project'}-{blake2b(str(self.folder).encode(), digest_size=4).hexdigest()}"

    @property
    def programs(self) -> list[str]:
        return [*dict.fromkeys(program for program, _ in self.sessions)]

    def tasks(self) -> Iterator[Task]:
        """Yield the requests of the sessions as tasks of others (`foreign`), in the order of the notes. The id of a
        task has a digest of its content, because a session may go on after it was read."""
        for session in self.sessions.values():
            if not session.transcript.is_file():
                self.missing += 1
                continue
            stream = TraceStream(session.transcript)
            try:
                for task in stream:
                    # A request is not learned from again if only the user's next message is new.
                    recorded = task.recorded and replace(task.recorded, later="")
                    content = TASK.dump_json(replace(task, id="", meta={}, recorded=recorded))
                    mark = blake2b(content, digest_size=4).hexdigest()
                    yield replace(task, id=f"{task.id if '/' in task.id else f'{task.id}/1'}.{mark}")
            except TaskFileError as error:
                self.problems.append(str(error))
            else:
                self.problems += map(str, stream.problems)


def read_projects(store: Path) -> tuple[list[Project], int]:
    """Return the projects with captured sessions, and the number of lines that cannot be read."""
    projects, faults = dict[Path, Project](), 0
    for line in _lines(store / CAPTURED):
        try:
            captured = Captured.model_validate_json(line)
        except ValidationError:
            captured = None
        if captured is None or captured.program not in PROGRAMS or not captured.folder.is_absolute():
            faults += 1
            continue
        folder = project_of(captured.folder)
        project = projects.setdefault(folder, Project(folder))
        project.sessions[captured.program, captured.session] = captured
    return [*projects.values()], faults


def _lines(path: Path) -> Iterable[bytes]:
    if not path.exists():
        raise StoreError(
            "store.not_found", f"no captured sessions in {path.parent}: run practicum connect PROGRAM in your project"
        )
    try:
        with open_file(path) as file:
            yield from (line for line in iter(lambda: file.readline(MOST_LINE), b"") if line.strip())
    except OSError as error:
        raise StoreError("store.unreadable", f"cannot read {path}: {error.strerror}") from error


def project_of(folder: Path) -> Path:
    """Return the root of the git repository that a folder is in, or the folder. A worktree belongs to the project of
    its repository."""
    for root in (folder, *folder.parents):
        git = root / ".git"
        if git.is_dir():
            return root
        if git.is_file():
            text = git.read_text(encoding="utf-8", errors="replace").strip()
            main, worktree, _ = text.removeprefix("gitdir: ").partition("/.git/worktrees/")
            return Path(main) if worktree else root
    return folder
