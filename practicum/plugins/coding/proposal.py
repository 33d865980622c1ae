"""Files of a project that hold learned entries: practicum's part of CLAUDE.md or AGENTS.md, and skills.

Entries that were imported from a skill change the files of this skill. All other entries are in practicum's part of
the instruction files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from practicum.core import instructions
from practicum.core.bounded import clean
from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Delete, Delta, Entry
from practicum.core.errors import ContextFileError, PracticumWarning
from practicum.core.skills import file_of, imported_parts, imported_skill, is_skills, read_skills
from practicum.core.visible import visible_to_model
from practicum.plugins.coding.programs import PROGRAMS
from practicum.session.amend import apply_edits
from practicum.session.review import Present, Review, approve, read_reviews
from practicum.session.skills import skills_of
from practicum.store.database import Store
from practicum.store.snapshot import read_context

Files = Mapping[str, bytes]
"""Content of files by their path in a project."""


@dataclass(frozen=True)
class Target:
    """Files of a project that are read and changed: the instruction files and the folder of skills of its programs. An
    empty `skills` means that no skills are read."""

    project: Path
    files: tuple[str, ...]
    skills: str

    @classmethod
    def of(cls, project: Path, programs: Iterable[str]) -> Target:
        """Return the files that these programs read in a project. Links out of the project are left out with a
        warning: the author of a repository could select any file of the user."""
        files = list[str]()
        for program in programs:
            names = PROGRAMS[program].instructions
            name = next((name for name in names if (project / name).exists()), names[0])
            files += [path.name if (path := (project / name).resolve()).parent == project.resolve() else name]
        claude = project / "CLAUDE.md"
        if "AGENTS.md" in files and is_inside(claude, project) and b"@AGENTS.md" in _content(claude):
            # CLAUDE.md includes the other file.
            files = [name for name in files if name != "CLAUDE.md"]
        folders = [PROGRAMS[program].skills for program in programs]
        skills = next((folder for folder in folders if (project / folder).is_dir()), folders[0])
        for name in {*files, skills}:
            if not is_inside(project / name, project):
                text = f"{project / name} is a link out of the project: it is neither read nor changed"
                warnings.warn(PracticumWarning(text), stacklevel=2)
        files = [name for name in files if is_inside(project / name, project)]
        return cls(project, tuple(dict.fromkeys(files)), skills if is_inside(project / skills, project) else "")

    def seed(self) -> Context:
        """Return the instruction files and the skills as a context. Skills that are not valid are left out with a
        warning."""
        contexts = [instructions.load(path) for path in self._instructions() if _content(path).strip()]
        folder = self.project / self.skills
        try:
            contexts += [read_skills(folder)] if self.skills and is_skills(folder) else []
        except ContextFileError as error:
            warnings.warn(PracticumWarning(f"the skills are left out: {error}"), stacklevel=2)
        adds = [Add(e.section, e.text, e.key, e.data, sources=e.sources) for each in contexts for e in each]
        return initial_context(adds, [f"e{number}" for number in range(len(adds))])

    def _instructions(self) -> list[Path]:
        return [self.project / name for name in self.files]

    def follow(self, store: Store) -> None:
        """Replace the text of instruction files in a space, if the user changed the files."""
        before = [entry for entry in read_context(store) if instructions.is_outside(entry)]
        after = [entry for entry in self.seed() if instructions.is_outside(entry)]
        if [entry.content for entry in before] == [entry.content for entry in after]:
            return
        deletes = (Delete(entry.id, reason="the file was changed") for entry in before)
        adds = (Add(e.section, e.text, data=e.data, sources=e.sources) for e in after)
        apply_edits(store, lambda context: Delta((*deletes, *adds)))

    def approve_merged(self, store: Store) -> list[Review]:
        """Approve the waiting entries that are in practicum's part of an instruction file: the user merged them."""
        written = {
            entry.text for path in self._instructions() if _content(path).strip()
            for entry in instructions.load(path) if file_of(entry) is None
        }  # fmt: skip
        merged = [
            review for review in read_reviews(store, corrections=False)
            if all(isinstance(edit, Add) and _written(edit.text) in written for edit in review.edits)
        ]  # fmt: skip
        why = {review.id: "it is in the instruction file" for review in merged}
        return [*approve(store, merged, why).approved] if merged else []

    async def changed(self, context: Context, seed: Context, now: Mapping[str, bytes] | None = None) -> Files:
        """Return the files that change when they hold the entries of a context. `now` replaces the current content of
        files. A skill that the user changed since the `seed` stays."""
        names = {*imported_parts(context)}
        of_skills = [entry for entry in context if entry.section in names or (file_of(entry) or ("",))[0] in names]
        own = {entry.id for entry in of_skills}
        others = [entry for entry in context if entry.id not in own]
        new = dict[str, bytes]()
        for name in self.files:
            content = self._now(name, now)
            shown = any(not entry.hidden and not instructions.is_outside(entry) for entry in others)
            if shown or instructions.BEGIN.encode() in content:
                new[name] = instructions.with_entries(content, others, self.project / name, self.files)
        for skill in await skills_of(of_skills) if self.skills else []:
            files = {f"{self.skills}/{skill.name}/{file}": content for file, content in skill.files.items()}
            if all(self._now(file, now) in _versions(file, skill.name, (seed, context)) for file in files):
                new |= files
        return {name: content for name, content in new.items() if content != self._now(name, now)}

    def _now(self, name: str, now: Mapping[str, bytes] | None) -> bytes:
        return now[name] if now is not None and name in now else _content(self.project / name)

    def diff(self, files: Files) -> str:
        """Return the changes of files as a unified diff."""
        lines = list[str]()
        for name, content in files.items():
            old = _content(self.project / name).decode(errors="replace").splitlines()
            new = content.decode(errors="replace").splitlines()
            lines += unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
        return "".join(f"{line}\n" for line in lines)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is in a folder, also if links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


def _versions(file: str, skill: str, contexts: Sequence[Iterable[Entry]]) -> list[bytes]:
    """Return the contents that a file of a skill has in some contexts, without added entries."""
    versions = list[bytes]()
    for context in contexts:
        parts = imported_parts(context).get(skill)
        files = imported_skill(skill, parts).files if parts is not None else {}
        versions += [content for name, content in files.items() if file.endswith(f"/{skill}/{name}")]
    return versions


def _written(text: str) -> str:
    """Return the text of an entry as an instruction file holds it."""
    return visible_to_model(clean(text))


def _content(path: Path) -> bytes:
    return instructions.read(path) if path.exists() else b""


def waiting(store: Store, *, flagged: bool) -> tuple[Context, list[Review]]:
    """Return the context after the approval of the waiting edits that can be applied, and their reviews. Without
    `flagged`, flagged edits are left out."""
    present, reviews = Present(store), list[Review]()
    context = present.context
    for review in read_reviews(store, corrections=False):
        if (flagged or not review.held.flags) and not present.problem(review, context):
            context = context.apply(Delta(review.edits)).context
            reviews.append(review)
    return context, reviews


def sources_of(review: Review) -> list[str]:
    """Return the requests that the edits of a review were learned from, as SESSION/NUMBER."""
    sources = {source for edit in review.edits for source in getattr(edit, "sources", ())}
    return sorted(s.removeprefix("task:").rpartition(".")[0] for s in sources if s.startswith("task:"))
