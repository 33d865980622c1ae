"""Commits on a new branch, made in a temporary worktree. The user's files and current branch stay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from practicum.core.errors import PracticumError, UsageError
from practicum.core.files import write_atomic
from practicum.core.words import one_line

AUTHOR = ("-c", "user.name=practicum", "-c", "user.email=practicum@localhost")
PLAIN = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false")
"""Options that run no hooks of the repository and ask for no passphrase."""


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, and return its output. Raises PracticumError if git fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *AUTHOR, *PLAIN, *arguments], env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise UsageError("program.missing", "--branch needs the program git, which is not on the PATH") from error
    if done.returncode:
        raise PracticumError("git.failed", f"git {arguments[0]} failed in {folder}: {one_line(done.stderr, 300)}")
    return done.stdout


@contextmanager
def worktree(project: Path) -> Iterator[Path]:
    """Check out the current commit of a project in a temporary folder."""
    with TemporaryDirectory(prefix="practicum-branch-") as temporary:
        folder = Path(temporary) / "worktree"
        git(project, "worktree", "add", "--detach", str(folder), "HEAD")
        try:
            yield folder
        finally:
            git(project, "worktree", "remove", "--force", str(folder))


def commit(project: Path, name: str, message: str, files: Callable[[Path], Mapping[str, bytes]]) -> str | None:
    """Commit files on a new branch of a project, which begins at the current commit, and return the name of the branch.
    `files` returns the changed files of the folder in which the commit is checked out; without changes, the result is
    None. If the branch exists, a number is appended to the name."""
    with worktree(project) as folder:
        changed = files(folder)
        if not changed:
            return None
        for file, content in changed.items():
            if not (path := (folder / file).resolve()).is_relative_to(folder.resolve()):
                raise PracticumError("git.failed", f"{file} of {project} is a link out of the repository: remove it")
            write_atomic(path, content)
        git(folder, "add", "--force", "--", *changed)
        git(folder, "commit", "--quiet", "--message", message)
        tree = git(folder, "rev-parse", "HEAD^{tree}")
        existing = git(project, "branch", "--list", "--format=%(refname:short)", f"{name}*").split()
        for each in existing:
            if git(project, "rev-parse", f"{each}^{{tree}}") == tree:
                return each
        free = next(each for n in count(1) if (each := name if n == 1 else f"{name}-{n}") not in existing)
        git(project, "branch", free, git(folder, "rev-parse", "HEAD").strip())
        return free
