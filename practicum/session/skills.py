"""Export of a context as Agent Skills (agentskills.io): one folder for each topic, with a SKILL.md.

A topic is a section, or a cluster of similar texts if all entries are in one section. Entries that exceed the
recommended size of SKILL.md are written to references/, and SKILL.md says when to read each reference. Entries of an
imported skill stay in the files of this skill (`core.skills`). Entries that were added to its section follow at the end
of its SKILL.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Annotated

from pydantic import Field

from practicum.agents.chat import ChatAgent
from practicum.core.bounded import MaxChars, Output
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import ContextFileError, StoreError, UsageError
from practicum.core.files import read_bytes, read_text, write_atomic
from practicum.core.instructions import is_outside
from practicum.core.playbook import ADVICE
from practicum.core.sections import plain_name
from practicum.core.skill_rules import MOST_DESCRIPTION, MOST_NAME, skill_problems
from practicum.core.skills import IGNORED, MANIFEST, SKILL, SkillFiles, as_items, imported_parts, imported_skill
from practicum.core.types import Instructions
from practicum.core.views import count_tokens
from practicum.core.visible import line_visible_to_model
from practicum.engine.framing import nonce_for
from practicum.engine.run import Run
from practicum.engine.state import RunState, Seat
from practicum.retrieval.topics import characteristic_words, topics
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.session.components import Parts
from practicum.session.config import config_from
from practicum.session.opening import call_options, open_models
from practicum.session.setup import with_defaults
from practicum.store.journal import Journal

MOST_TOKENS, MOST_LINES = 4_000, 400
"""Maximum size of the entries in one file. The specification recommends less than 5,000 tokens and 500 lines for a
SKILL.md; the rest is for the heading and the list of references."""

MOST_REFERENCES = 25
"""Maximum number of references of a topic. If the entries of a topic need more files, the files are larger."""

LONG = 4
"""An entry of more than 1 / LONG of a file is written to a reference."""

SHOWN_ENTRIES = 20
"""Maximum number of entries that a model sees in order to describe a topic."""


@dataclass(frozen=True)
class Topic:
    """Entries that become a skill. `words` characterize the entries. A name is empty until it is chosen."""

    title: str
    entries: Sequence[Entry]
    words: Sequence[str]
    name: str = ""
    description: str = ""


class Described(Output):
    """A model's name and description of a topic."""

    name: Annotated[str, MaxChars(40)] = Field(description="two to four words in lower case, joined by hyphens")
    description: Annotated[str, MaxChars(600)] = Field(description="what the skill does, and when to use it")


async def export_skills(
    folder: Path, context: Context, more: Iterable[Entry] = (), imported: Context | None = None,
    model: str | None = None,
) -> list[SkillFiles]:  # fmt: skip
    """Write a context as skills, one folder each in `folder`, and return the skills. `more` entries, such as
    corrections, follow the entries of the context. `model` is the name of a model that describes the topics and names
    clusters; None: names and descriptions consist of characteristic words.

    An existing folder is replaced as a whole, if it only has unchanged files of an earlier export or of the skills from
    which the context `imported` was read. Raises UsageError for any other folder, and ContextFileError if the context
    has no entries, or if an edited skill breaks a rule of the specification.
    """
    skills = await skills_of([*context, *more], model)
    if not skills:
        raise ContextFileError("playbook.empty", "no entries to export as skills: learn from tasks first")
    for skill in skills:
        text = skill.files[skill.main].decode(errors="replace")
        for rule in skill_problems(text, skill.name):
            raise ContextFileError("skills.invalid", f"{skill.name}/{skill.main}: {rule}")
    source = [imported_skill(name, files) for name, files in imported_parts(imported or ()).items()]
    await asyncio.to_thread(_write, folder, skills, source)
    return skills


async def skills_of(entries: Sequence[Entry], model: str | None = None) -> list[SkillFiles]:
    """Return entries as skills; see `export_skills`."""
    stored = imported_parts(entries)
    placed = {entry.id for files in stored.values() for parts in files.values() for _, entry in parts}
    sections = dict[str, list[Entry]]()
    for entry in entries:
        if not entry.hidden and entry.id not in placed and not is_outside(entry):
            sections.setdefault(entry.section, []).append(entry)
    skills = list[SkillFiles]()
    for name, files in stored.items():
        skill = imported_skill(name, files)
        last, _ = files[skill.main][-1]
        skills.append(_extended(skill, sections.pop(name, []), bool(last.label)))
    chosen = await _topics(sections) if sections else []
    chosen = chosen if model is None else await _described(chosen, model)
    names = {skill.name for skill in skills}
    for topic in chosen:
        name = _free_name(topic.name or topic.title, names)
        names.add(name)
        skills.append(_skill(replace(topic, name=name)))
    return skills


# ---- topics


async def _topics(sections: Mapping[str, Sequence[Entry]]) -> list[Topic]:
    """Return the sections as topics; if there is only one section, clusters of its entries."""
    groups = [*sections.values()]
    if len(groups) == 1:
        labels = topics(await WordLlama().embed([entry.embedded_text for entry in groups[0]]))
        groups = [
            [entry for entry, label in zip(groups[0], labels, strict=True) if label == number]
            for number in range(labels.max() + 1)
        ]
    words = characteristic_words([[entry.text for entry in group] for group in groups], 8)
    if len(sections) > 1:
        return [Topic(*each, name=each[0]) for each in zip(sections, groups, words, strict=True)]
    return [Topic(", ".join(about[:3]) or "lessons", group, about) for group, about in zip(groups, words, strict=True)]


async def _described(chosen: Sequence[Topic], model: str) -> list[Topic]:
    """Return the topics with the descriptions that a model gives; it also names the clusters."""
    config = with_defaults(config_from({"method": "none", "model": model}), Parts())
    with tempfile.TemporaryDirectory(prefix="practicum-skills-") as logs:
        models = open_models(config, Path(logs), Parts(), None)
        try:
            seats = {"curator": Seat(models.open(model), call_options(config))}
            state = RunState(
                Journal(), seats, ChatAgent(), None, Vectors(WordLlama()), profile=config.profile or "full",
                nonce=nonce_for(("skills", model)),
            )  # fmt: skip
            run = Run(state, "export", (), teaches=False)

            async def describe(topic: Topic, at: Run) -> Topic:
                items = "\n".join(as_items(topic.entries[:SHOWN_ENTRIES]))
                parts = [f"# Topic\n{line_visible_to_model(topic.title)}", f"# Notes\n{items}"]
                answer = await at.ask_fitted("curator", DESCRIBE.prompt(at.profile, parts), Described)
                return replace(topic, name=topic.name or answer.name, description=answer.description)

            return await run.gather([(str(n), partial(describe, topic)) for n, topic in enumerate(chosen)])
        finally:
            await models.close()


DESCRIBE = Instructions(
    full="""\
You label a collection of notes that an agent wrote while it worked, so that other agents know when to open it. You \
see its topic and some of its notes.

name: what the notes are about, as two to four English words in lower case joined by hyphens.
description: at most three plain sentences. The first says what the notes help with. The next begins with "Use when" \
and names the tasks, things and words by which an agent recognizes that it needs them."""
)


# ---- files of a topic


def _skill(topic: Topic) -> SkillFiles:
    """Return the files of a topic."""
    heading = line_visible_to_model(topic.title)
    skill = SkillFiles(topic.name)
    first, references = _pages(topic.entries, MOST_TOKENS, MOST_LINES)
    pointers = _add_references(skill, heading, references)
    description = _plain(topic.description) or _plain(_description(topic))
    # A JSON text is a double-quoted scalar of YAML.
    head = f"---\nname: {topic.name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n---\n"
    lead = f"{head}\n# {heading}\n\nLearned from earlier tasks. {ADVICE}"
    text = "\n\n".join(filter(None, (lead, pointers, "\n".join(as_items(first)))))
    # SKILL.md is the first file, also in listings of the skill.
    skill.files = {SKILL: f"{text}\n".encode(), **skill.files}
    skill.entries[SKILL] = [entry.id for entry in first]
    return skill


def _extended(skill: SkillFiles, added: Sequence[Entry], ends_with_item: bool) -> SkillFiles:
    """Return an imported skill with more entries behind the unchanged text of its SKILL.md."""
    if not added:
        return skill
    main, content = skill.main, skill.files[skill.main]
    text = content.decode(errors="replace")
    first, references = _pages(added, MOST_TOKENS - count_tokens(text), MOST_LINES - text.count("\n"))
    pointers = _add_references(skill, skill.name, references)
    block = "\n".join(as_items(first))
    if pointers or not ends_with_item:
        block = "\n\n".join(filter(None, ("\n## Learned from earlier tasks", pointers, block)))
    skill.files[main] = content + b"\n" * (not content.endswith(b"\n")) + f"{block}\n".encode()
    skill.entries[main] += [entry.id for entry in first]
    return skill


def _add_references(skill: SkillFiles, heading: str, pages: Sequence[Sequence[Entry]]) -> str:
    """Add pages of entries to a skill as references, and return the lines that say when to read each reference."""
    pointers = list[str]()
    names = (name for n in count(1) if (name := f"references/lessons-{n}.md") not in skill.files)
    words = characteristic_words([[entry.text for entry in page] for page in pages], 5)
    for page, about, name in zip(pages, words, names, strict=False):
        title = ", ".join(about) or "more lessons"
        skill.files[name] = "\n".join([f"# {heading}: {title}\n", *as_items(page), ""]).encode()
        skill.entries[name] = [entry.id for entry in page]
        pointers.append(f"- Read {name} if the task is about {title}.")
    return "\n".join(pointers)


def _pages(entries: Sequence[Entry], tokens: int, lines: int) -> tuple[list[Entry], list[list[Entry]]]:
    """Divide entries into those for a SKILL.md with room for this many tokens and lines, and pages for references. The
    entries with the most votes come first; long entries go to references. Each part is in the order of `entries`."""
    sizes = [(count_tokens(item) + 1, item.count("\n") + 1) for item in as_items(entries)]
    chosen = set[int]()
    for n in sorted(range(len(entries)), key=lambda n: entries[n].harmful - entries[n].helpful):
        if LONG * sizes[n][0] <= MOST_TOKENS and sizes[n][0] <= tokens and sizes[n][1] <= lines:
            chosen.add(n)
            tokens, lines = tokens - sizes[n][0], lines - sizes[n][1]
    left = [n for n in range(len(entries)) if n not in chosen]
    most = [max(each, 2 * sum(sizes[n][kind] for n in left) // MOST_REFERENCES)
            for kind, each in enumerate((MOST_TOKENS, MOST_LINES))]  # fmt: skip
    pages, used = list[list[Entry]](), [0, 0]
    for n in left:
        used = [before + size for before, size in zip(used, sizes[n], strict=True)]
        if not pages or any(size > limit for size, limit in zip(used, most, strict=True)):
            pages.append([])
            used = [*sizes[n]]
        pages[-1].append(entries[n])
    return [entries[n] for n in sorted(chosen)], pages


def _description(topic: Topic) -> str:
    """Return the description of a topic by its characteristic words."""
    about = ", ".join(topic.words) or topic.title
    return f"Lessons from earlier tasks about {topic.title}. Use when a task is about {about}."


def _plain(description: str) -> str:
    """Return a description on one line, as a SKILL.md may have it. Some programs refuse angle brackets, and the
    reference validator would read three hyphens as the end of the frontmatter."""
    text = line_visible_to_model(" ".join(re.sub("[<>]", "", description).split()))
    text = re.sub("-{3,}", "-", text)
    return text if len(text) <= MOST_DESCRIPTION else f"{text[: MOST_DESCRIPTION - 1]}…"


def _free_name(title: str, names: Collection[str]) -> str:
    """Return the name of a skill for a title: ASCII letters, digits and hyphens, and not one of `names`."""
    plain = unicodedata.normalize("NFKD", plain_name(title)).encode("ascii", "ignore").decode()
    stem = "-".join(re.findall("[a-z0-9]+", plain))[:MOST_NAME].strip("-") or "lessons"
    numbered = (f"{stem[: MOST_NAME - 1 - len(str(n))].strip('-')}-{n}" for n in count(2))
    return next(name for name in chain([stem], numbered) if name not in names)


# ---- folders


def _write(folder: Path, skills: Sequence[SkillFiles], source: Sequence[SkillFiles]) -> None:
    """Write skills next to the folder, and then replace the folder."""
    folder = folder.resolve()
    _require_replaceable(folder, source)
    files = {f"{skill.name}/{file}": content for skill in skills for file, content in skill.files.items()}
    executable = {f"{skill.name}/{file}" for skill in skills for file in skill.executable}
    manifest = "".join(f"{sha256(content).hexdigest()}  {file}\n" for file, content in files.items())
    token = secrets.token_hex(8)
    new, old = (folder.with_name(f".{folder.name[:64]}.{token}.{kind}") for kind in ("new", "old"))
    try:
        for file, content in {**files, MANIFEST: manifest.encode()}.items():
            write_atomic(new / file, content)
            if file in executable:
                (new / file).chmod((new / file).stat().st_mode | 0o111)
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StoreError("file.unwritable", f"cannot write {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _require_replaceable(folder: Path, source: Sequence[SkillFiles]) -> None:
    """Raise UsageError if a folder has a file that an export would lose: neither an unchanged file of an earlier export
    nor a file of the skills `source`."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError("file.wrong_kind", f"{folder} is a file: choose a folder for --output")
    written = {(f"{skill.name}/{file}", sha256(content).hexdigest())
               for skill in source for file, content in skill.files.items()}  # fmt: skip
    try:
        manifest = read_text(folder / MANIFEST) if (folder / MANIFEST).is_file() else ""
        written |= {(file, digest) for digest, _, file in (line.partition("  ") for line in manifest.splitlines())}
        names = {file for file, _ in written}
        for path in _files(folder):
            file = path.relative_to(folder).as_posix()
            is_written = file in names and not path.is_symlink()
            if file != MANIFEST and not (is_written and (file, sha256(read_bytes(path)).hexdigest()) in written):
                raise UsageError(
                    "file.exists",
                    f"{path} was not written by this export, or was changed later: choose another folder for "
                    f"--output, or import the changes first (practicum space import {folder} --out RUN)",
                )
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError("file.unreadable", f"cannot read {folder}: {getattr(error, 'strerror', error)}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files and links in a folder, without the files that programs create (`IGNORED`)."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if name not in IGNORED]
        yield from (Path(place) / name for name in (*links, *names) if name not in IGNORED)
