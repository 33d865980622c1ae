"""Agent Skills (agentskills.io) as a context, and the entries of a context as files of skills again.

Each entry of a skill is a part of a file: joined in their order, the parts of a file give the file byte for byte. An
edited entry changes its own bytes only. SKILL.md and the markdown files in references/ have one entry per heading, in a
section with the name of the skill; agents see these entries. Below a heading with list items that begin with an id, as
practicum exports them, each item is an entry. The frontmatter, scripts and other files are hidden entries.
"""

from __future__ import annotations

import os
import re
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from practicum.core.bounded import clean
from practicum.core.context import MOST_ENTRIES, Context, initial_context
from practicum.core.edits import Add, Entry
from practicum.core.errors import ContextFileError
from practicum.core.files import read_bytes
from practicum.core.playbook import LeftOut, PlaybookWarning, numbered, shown_text
from practicum.core.skill_rules import skill_problems, split_frontmatter
from practicum.core.views import behind
from practicum.core.visible import visible, visible_to_model

SKILL = "SKILL.md"
HIDDEN = ".skills"
"""Section of the parts that agents do not see: frontmatter, text around list items with ids, and other files."""

PART = "part"
"""Key of an entry's data that holds the place of the entry in a file."""

MOST_BYTES = 2**24
"""Maximum bytes of all files of an import."""

MANIFEST = ".practicum-skills"
"""File with the SHA-256 of each file that an export wrote, in the form of `sha256sum`. A later export replaces the
files only if they are unchanged."""

IGNORED = frozenset({".git", "__pycache__", ".DS_Store"})
"""Names of files and folders that programs create in the folder of a skill. They are not read."""


def _inside(path: str) -> str:
    """Return a relative path of a file. Raises ValueError if the path could lead out of its folder."""
    if any(part in ("", ".", "..") for part in path.split("/")) or re.search(r'[\\:*?"<>|]', path):
        raise ValueError("not a path inside the folder")
    if visible(path) != path or "\n" in path:
        raise ValueError("hidden characters")
    return path


def _blank(text: str) -> str:
    if text.strip():
        raise ValueError("not white space")
    return text


class Part(BaseModel):
    """Place of an entry in a file of a skill. `at` is the index of the part in the file, `after` the white space behind
    the part. `label` is the id that the file shows in front of a list item. `verbatim` is the digest of a text that is
    written without escapes while the text is unchanged. `base64` is the content of a file that is not text."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    skill: Annotated[str, AfterValidator(_inside), Field(pattern="^[^/.][^/]{0,199}$")]
    file: Annotated[str, AfterValidator(_inside), Field(max_length=400)]
    at: int = 0
    after: Annotated[str, AfterValidator(_blank)] = ""
    label: str = ""
    verbatim: str = ""
    base64: Base64Bytes | None = None
    executable: bool = False

    @classmethod
    def of(cls, entry: Entry) -> Part | None:
        """Return the place of an entry; None for an entry that is not part of a skill."""
        try:
            return cls.model_validate(entry.data[PART]) if PART in entry.data else None
        except ValidationError:
            return None

    def content(self, entry: Entry) -> bytes:
        """Return the bytes of an entry at this place."""
        if self.base64 is not None:
            return self.base64
        text = clean(shown_text(entry)) if self.label else shown_text(entry)
        if self.label:
            text = behind(f"- [{self.label}]", text)
        elif self.verbatim != text_digest(text):
            text = visible_to_model(text)
        return f"{text}{self.after}".encode(errors="backslashreplace")


def file_of(entry: Entry) -> tuple[str, str] | None:
    """Return the skill and the file that an entry is a part of, or None."""
    part = Part.of(entry)
    return None if part is None else (part.skill, part.file)


@dataclass
class SkillFiles:
    """Files of one skill by relative path, the paths of executable files, and the ids of its entries by file."""

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    executable: set[str] = field(default_factory=set)
    entries: dict[str, list[str]] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """Path of SKILL.md, whose name may also have lower-case letters."""
        return SKILL if SKILL in self.files else SKILL.lower()


def text_digest(text: str) -> str:
    """Return the digest of a text, as in `Part.verbatim`."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


# ---- reading


def is_skills(path: Path) -> bool:
    """Whether a path is the folder of a skill, or a folder of such folders."""
    return path.is_dir() and (_main(path) is not None or any(_main(folder) for folder in _folders(path)))


def _main(folder: Path) -> Path | None:
    """Return the path of the SKILL.md in a folder, or None. As for the reference validator, its name may also have
    lower-case letters."""
    try:
        return next((folder / n for n in (SKILL, SKILL.lower()) if (folder / n).is_file()), None)
    except OSError:
        return None


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".") and p.name not in IGNORED)
    except OSError as error:
        raise ContextFileError("playbook.unreadable", f"cannot read the folder {path}: {error.strerror}") from error


def read_skills(path: Path) -> Context:
    """Read the folder of a skill, or a folder of such folders, as a context at version 0.

    Warns with PlaybookWarning about files that are not part of a skill, and about links. Raises ContextFileError if a
    skill breaks a rule (`core.skill_rules`), cannot be read, or is too large; the message has one line for each rule.
    """
    alone = _main(path) is not None
    left_out = [] if alone else [LeftOut(str(p), p.name, "not part of a skill") for p in sorted(path.iterdir())
                                 if p.name != MANIFEST and (not p.is_dir() or p.name.startswith("."))]  # fmt: skip
    adds, problems, room = list[Add](), list[tuple[Path, str]](), MOST_BYTES
    for folder in [path] if alone else _folders(path):
        main = _main(folder)
        if main is None:
            problems.append((folder / SKILL, "the file is missing"))
            continue
        name = Path(os.path.abspath(folder)).name
        files = _read_folder(folder, left_out, problems, room)
        room -= sum(map(len, files.values()))
        try:
            text = files.get(main.name, b"").decode()
        except UnicodeDecodeError:
            problems.append((main, "it is not UTF-8"))
            continue
        broken = [(main, rule) for rule in skill_problems(text, name)]
        broken += [(main, "it is not a text")] if "\0" in text else []
        problems += broken
        for file, content in files.items() if not broken else ():
            executable = os.name == "posix" and bool((folder / file).stat().st_mode & 0o100)
            adds += _entries(name, file, content, executable, is_main=file == main.name)
    if problems:
        raise ContextFileError(
            "skills.invalid",
            "\n".join(f"{file}: {rule}" for file, rule in problems),
            problems=[{"file": str(file), "rule": rule} for file, rule in problems],
        )
    if left_out:
        warnings.warn(PlaybookWarning(path, left_out), stacklevel=2)
    return initial_context(adds, numbered(zip(_ids(adds), map(str, range(len(adds))), strict=True)))


def _ids(adds: Iterable[Add]) -> Iterator[str | None]:
    """Yield the id of each entry, or None for an entry that gets a new id. If two skills have the same id, the first
    keeps it."""
    used = set[str]()
    for add in adds:
        label = str(add.data[PART].get("label", ""))
        keeps = label.startswith("e") and len(label) < 9 and int(label[1:]) < MOST_ENTRIES // 2 and label not in used
        used.add(label)
        yield label if keeps else None


def _read_folder(
    folder: Path, left_out: list[LeftOut], problems: list[tuple[Path, str]], room: int
) -> dict[str, bytes]:  # fmt: skip
    """Return the files of a skill by relative path. `room` is the maximum of their bytes. Links are not followed."""

    def unreadable(error: OSError) -> None:
        problems.append((Path(error.filename), f"it cannot be read: {error.strerror}"))

    files = dict[str, bytes]()
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for path in (Path(place) / name for name in sorted([*names, *links]) if name not in IGNORED):
            if path.is_symlink() or not path.is_file():
                left_out.append(LeftOut(str(path), path.name, "not a file but a link or a device"))
                continue
            if path.stat().st_size > room:
                raise ContextFileError(
                    "skills.too_large",
                    f"{path}: the skills have more than {MOST_BYTES // 2**20} MB: import fewer skills, or store large "
                    "files elsewhere",
                )
            try:
                relative = Part(skill="skill", file=path.relative_to(folder).as_posix()).file
                files[relative] = read_bytes(path, room)
                room -= len(files[relative])
            except ValidationError:
                problems.append((path, "its name has characters that not every system can store"))
            except OSError as error:
                unreadable(error)
    return files


def _entries(skill: str, file: str, content: bytes, executable: bool, is_main: bool) -> list[Add]:
    """Return the parts of a file as edits that add entries."""
    about = {"skill": skill, "file": file, **({"executable": True} if executable else {})}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if "\0" in text or not text.strip():
        stored = {**about, "base64": b64encode(content).decode()}
        name = f"{skill}/{file}: {len(content):,} bytes, SHA-256 {sha256(content).hexdigest()[:16]}"
        return [Add(HIDDEN, name, data={PART: stored}, sources=("seed",))]
    head, body = split_frontmatter(text) if is_main and text.startswith("---") else ("", text)
    pieces = [(HIDDEN, "", head)] if head else []
    if is_main or re.fullmatch(r"references?/.+\.md", file):
        pieces += _pieces(skill, body)
    else:
        pieces.append((HIDDEN, "", body))
    return part_edits(about, pieces)


def part_edits(about: Mapping[str, Any], pieces: Iterable[tuple[str, str, str]], start: int = 0) -> list[Add]:
    """Return edits that add the pieces of a file, given the section, the label and the text of each piece. `about` has
    the skill and the file of the parts, and `start` is the index of the first part."""
    adds = list[Add]()
    for section, label, piece in _joined(pieces):
        text = piece.rstrip()
        data = {**about, "at": start + len(adds), "after": piece[len(text) :]}
        data |= {"label": label} if label else {"verbatim": text_digest(text)}
        adds.append(Add(section, _item_text(text) if label else text, data={PART: data}, sources=("seed",)))
    return adds


def _joined(pieces: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield the pieces so that no piece is blank. Blank lines belong to the piece before them; at the beginning of a
    file, to the piece after them."""
    last: tuple[str, str, str] | None = None
    for section, label, text in pieces:
        if last is None or not last[2].strip():
            last = (section, label, text) if last is None else (section, "", last[2] + text)
            continue
        lead = _BLANK_LINES.match(text) if text.strip() else re.match(r"(?s).*", text)
        assert lead is not None
        last = *last[:2], last[2] + lead[0]
        if text.strip():
            yield last
            last = section, label, text[lead.end() :]
    if last is not None:
        yield last


_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"^- \[([a-z](?:0|[1-9][0-9]{0,9}))\](?: [^\n]+|(?:\n+  [^\n]*)+)\n*", re.M)


def _pieces(skill: str, body: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the label and the text of each piece of a markdown text."""
    for chunk in chunks(body):
        end = 0
        items = [item for item in _ITEM.finditer(chunk) if _is_as_exported(item)]
        for item in items:
            yield HIDDEN, "", chunk[end : item.start()]
            yield skill, item[1], item[0]
            end = item.end()
        yield HIDDEN if items else skill, "", chunk[end:]


def chunks(body: str) -> Iterator[str]:
    """Yield a markdown text in parts that each begin with headings. A heading that is directly above another
    heading is in the part of the other heading."""
    chunk, fence, has_text = list[str](), "", False
    for line in re.findall(r"[^\n]*\n|[^\n]+", body):
        mark = _FENCE.match(line)
        heading = not fence and _HEADING.match(line)
        if heading and has_text:
            yield "".join(chunk)
            chunk, has_text = [], False
        if not fence:
            fence = mark[1] if mark else ""
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        has_text = has_text or bool(not heading and line.strip())
        chunk.append(line)
    yield "".join(chunk)


def _is_as_exported(item: re.Match[str]) -> bool:
    """Whether an export of the list item gives exactly the same bytes."""
    text = item[0].rstrip()
    return behind(f"- [{item[1]}]", clean(_item_text(text))) == text


def _item_text(item: str) -> str:
    """Return the text of a list item, without its id and its indentation."""
    first, *others = item.split("\n")
    rest = first.partition("] ")[2]
    return rest or "\n".join(line.removeprefix("  ") for line in others)


# ---- writing


def imported_parts(entries: Iterable[Entry]) -> dict[str, dict[str, list[tuple[Part, Entry]]]]:
    """Return the parts of imported skills by skill and file, in order. A skill whose frontmatter is not among the
    entries is left out: for example, it waits for review."""
    skills = dict[str, dict[str, list[tuple[Part, Entry]]]]()
    for entry in entries:
        if (part := Part.of(entry)) is not None:
            skills.setdefault(part.skill, {}).setdefault(part.file, []).append((part, entry))
    for files in skills.values():
        for parts in files.values():
            parts.sort(key=lambda pair: (pair[0].at, pair[1].number))
    return {name: files for name, files in skills.items() if _has_frontmatter(files)}


def _has_frontmatter(files: Mapping[str, Any]) -> bool:
    parts = files.get(SKILL) or files.get(SKILL.lower()) or []
    return bool(parts) and parts[0][1].section == HIDDEN and parts[0][1].text.startswith("---")


def imported_skill(name: str, files: Mapping[str, Iterable[tuple[Part, Entry]]]) -> SkillFiles:
    """Return the files of an imported skill from their parts (`imported_parts`)."""
    skill = SkillFiles(name)
    for file, parts in files.items():
        pairs = list(parts)
        skill.files[file] = b"".join(part.content(entry) for part, entry in pairs)
        skill.entries[file] = [entry.id for _, entry in pairs if not entry.hidden]
        if any(part.executable for part, _ in pairs):
            skill.executable.add(file)
    return skill


def as_items(entries: Iterable[Entry]) -> list[str]:
    """Return each entry as a markdown list item that begins with the id of the entry, as a model may see it."""
    return [behind(f"- [{entry.id}]", clean(shown_text(entry))) for entry in entries]
