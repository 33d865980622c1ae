"""Search of a run's entries, and addition and removal of entries by hand (`practicum space memory`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError, from_json

from practicum.agents.network import Kind
from practicum.core import playbook
from practicum.core.bounded import MOST_CHARS
from practicum.core.context import Context
from practicum.core.edits import CONVERSATION, Add, Delete, Delta, Entry
from practicum.core.errors import ContextFileError, ProviderError, UsageError
from practicum.core.files import read_text
from practicum.core.visible import lines
from practicum.core.words import fault
from practicum.methods.blocks.memory import MEMORIES, Memory, memory_entry
from practicum.methods.blocks.network import FORMS, POOL, PartSolution, with_trace_ids
from practicum.models.prompting import describe_validation_error
from practicum.retrieval.search import VISIBLE, EntryPredicate, Match, Retriever
from practicum.retrieval.vectors import Embedder, Vectors, open_embedder
from practicum.session.amend import apply_edits, replace_embedder, save_snapshot
from practicum.session.components import Parts
from practicum.session.foreign import Origin
from practicum.session.opening import run_retrieval
from practicum.session.records import read_by_origin, read_config
from practicum.store.database import Store
from practicum.store.names import shown_version
from practicum.store.snapshot import with_texts
from practicum.store.versions import entry_history, read_versions

LONGEST = 2_000
"""Maximum length of an entry that is written by hand as one text."""

_Name = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Tags = tuple[_Name, ...]


class _Memory(Memory):
    """Line of a file with a memory. The memory may be as long as a memory that a model writes."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARS, strip_whitespace=True)]
    description: Annotated[str, StringConstraints(max_length=MOST_CHARS)] = ""
    content: Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARS, strip_whitespace=True)]
    outcome: Literal["success", "failure"] = "success"
    tags: Tags = ()
    conversation: _Name | None = None

    def as_edit(self, section: str, source: str) -> Add:
        return memory_entry(self, self.outcome == "success", _sources(source, self), section=section)


class _Line(BaseModel):
    """Base class of lines of a file with an entry that is one text."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST, strip_whitespace=True)]
    key: str = ""
    tags: Tags = ()
    conversation: _Name | None = None

    def as_edit(self, section: str, source: str) -> Add:
        data = self.model_dump(exclude_defaults=True).get("data", {})
        return Add(section, self.text, self.key, data, sources=_sources(source, self))


class _Text(_Line):
    """Line with an entry that is neither a memory nor an experience: a rule, or an episode (a solved task) with the
    answer in `data`."""

    data: dict[str, Any] = Field(default_factory=dict)


class _ExperienceData(BaseModel):
    """Data of an experience, in addition to its text and its key. `output` is the agent's whole output, as an object or
    as JSON; None if the text of the line is the whole output."""

    model_config = ConfigDict(extra="allow")

    kind: Kind
    reward: float = Field(ge=0, le=1)
    whole: float | None = Field(default=None, ge=0, le=1)
    trace: Annotated[str, StringConstraints(min_length=1)]
    output: Any = None

    @model_validator(mode="after")
    def _parse_output(self) -> Self:
        """Check that the output has the form of the agent's step, because agents are shown the output as an example."""
        form = FORMS[self.kind]
        if self.output is None and form is PartSolution:
            return self
        raw = self.output if isinstance(self.output, str) else json.dumps(self.output)
        try:
            self.output = form.model_validate_json(raw).model_dump_json()
        except ValidationError as error:
            wrong = "`output` is missing" if self.output is None else describe_validation_error(error, cut=False)
            fields = " and ".join(form.model_fields)
            raise PydanticCustomError(
                "form", "a step of {kind} needs `output`, an object with {fields}: {wrong}",
                {"kind": self.kind, "fields": fields, "wrong": wrong},
            ) from None  # fmt: skip
        return self


class _Experience(_Line):
    """Line with an experience: the output (`text`) of an agent of a network for an input (`key`)."""

    key: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
    data: _ExperienceData


@dataclass(frozen=True)
class Added:
    """The added entries. If an older entry has the same text and the same key as a new entry, `same` maps the id of the
    new entry to the id of the older entry."""

    context: Context
    entries: tuple[Entry, ...]
    same: dict[str, str]


async def search(
    run: Path | str, text: str, k: int = 5, where: EntryPredicate = VISIBLE, embedder: str | None = None, *,
    trust_run: bool = False,
) -> list[Match]:  # fmt: skip
    """Return the k entries that are most similar to a text, as the agent retrieves them from the version that the agent
    sees.

    Raises StoreError if the run's vectors come from another embedder, and UsageError for a run from another machine
    that names an embedder, unless `trust_run`.
    """
    with Store.read(Path(run)) as store:
        retriever = Retriever(
            Vectors(_embedder(store, embedder, trust_run), store),
            retrieval=run_retrieval(read_config(store)[0], Parts()),
        )
        return list((await retriever.nearest(read_by_origin(store, shown_version(store)), text, k, where)).matches)


async def add(run: Path | str, file: Path, section: str = MEMORIES, *, trust_run: bool = False) -> Added:
    """Add the memories, or entries, of a file to a run, as one new version.

    The file is JSON lines or a JSON list of {"title", "content", "description"?, "outcome"?: success or failure,
    "tags"?, "conversation"?} or {"text", "key"?, "data"?, "tags"?, "conversation"?}; in an agent's pool, objects have
    the fields of an experience. Lines with the same `conversation` are the turns of one conversation, in the order of
    the file. Raises ContextFileError that names the first invalid line, and StoreError if the run's vectors come from
    another embedder. After either error, nothing is added.
    """
    if not section.strip() or len(lines(section)) > 1:
        raise UsageError("section.invalid", f"{section!r} cannot be the name of a section: write one line of text")
    adds = read(file, section)
    same: dict[str, str] = {}

    def edits(context: Context) -> Delta:
        alike = [e for e in with_texts(context, {new.key or new.text for new in adds}) if e.section == section]
        by_text = {entry.text: entry.id for entry in sorted(alike, key=lambda entry: -entry.number)}
        for number, new in enumerate(adds, context.next_number):
            if (older := by_text.setdefault(new.text, f"e{number}")) != f"e{number}":
                same[f"e{number}"] = older
        return Delta(tuple(adds))

    with Store.open(Path(run)) as store:
        retriever = Retriever(Vectors(_embedder(store, None, trust_run), store))
        outcome = apply_edits(store, edits)
        entries = tuple(e for done in outcome.applied if (e := outcome.context.get(done.id)) is not None)
        try:
            await save_snapshot(store, outcome.context, retriever)
        except ProviderError as error:
            raise ProviderError(
                "embedder.failed",
                f"the entries are in version {outcome.context.version}, but could not be indexed: {error}",
            ) from error
    return Added(outcome.context, entries, same)


def remove(run: Path | str, id: str) -> tuple[Context, Entry]:
    """Remove an entry from a run, as a new version, which `rollback` can undo.

    Returns the new context and the removed entry. Raises UsageError for an unknown entry.
    """
    removed_entries: list[Entry] = []

    with Store.open(Path(run)) as store:

        def edits(context: Context) -> Delta:
            entry = context.get(id)
            if entry is None:
                events = entry_history(read_versions(store), id)
                if not events:
                    where = store.folder
                    raise UsageError(
                        "entry.unknown",
                        f"{where} has never had an entry {id!r}: practicum show {where} lists the current entries",
                        entry=id,
                    )
                version = events[-1].version
                raise UsageError(
                    "entry.deleted", f"entry {id!r} was removed in version {version} of {store.folder}", entry=id
                )
            removed_entries.append(entry)
            return Delta((Delete(id, reason="removed by hand"),))

        return apply_edits(store, edits).context, removed_entries[0]


async def reembed(run: Path | str, embedder: str | None = None, *, trust_run: bool = False) -> int:
    """Embed a run's entries again, with the run's embedder or with the embedder named `embedder`, which then replaces
    the run's embedder. Return the number of embedded texts."""
    with Store.open(Path(run)) as store:
        return await replace_embedder(store, _embedder(store, embedder, trust_run))


def _embedder(store: Store, name: str | None, trust_run: bool) -> Embedder:
    """Open the embedder of this name, or the run's embedder if `name` is None. Raises UsageError if `name` is None and
    the run is from another machine and names an embedder that is not built in."""
    origin = Origin.of(store, {"embedder": name}, Parts(), trust_run)
    origin.require(("embedder",))
    return open_embedder(name or origin.config.embedder)


def read(file: Path, section: str = MEMORIES) -> list[Add]:
    """Return edits that add the memories of a file, or the entries of a playbook. Each trace that an entry names gets
    an identity.

    Raises ContextFileError that names the first invalid line.
    """
    source = f"file:{file.name}"
    adds = with_trace_ids([_entry(item, f"{file} {where}", section, source) for where, item in _items(file)])
    if not adds:
        raise ContextFileError(
            "memories.malformed", f"{file} has no memories: write one memory on each line, such as {EXAMPLE}"
        )
    return adds


EXAMPLE = '{"title": "...", "description": "...", "content": "...", "outcome": "success"}'

EXPERIENCE = '{"text": "the output", "key": "the input", "data": {"kind": "solve", "reward": 0.8, "trace": "by hand"}}'


def _items(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ContextFileError(
            "file.unreadable", f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if _is_playbook(text):
        yield from ((f"entry {entry.id}", {"text": entry.text}) for entry in playbook.load(file))
        return
    if text.lstrip().startswith("["):
        yield from ((f"item {n}", item) for n, item in enumerate(_json(text, f"{file}"), 1))
        return
    for n, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"line {n}", _json(line, f"{file} line {n}")


def _is_playbook(text: str) -> bool:
    """Return whether a text is a playbook: markdown, or a JSON object with `entries`."""
    if not text.lstrip().startswith(("{", "[")):
        return re.search(r"^\s*[-*+] ", text, re.MULTILINE) is not None
    try:
        whole = from_json(text)
    except ValueError:
        return False
    return isinstance(whole, dict) and "entries" in whole


def _json(text: str, where: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ContextFileError(
            "memories.malformed", f"{where} is not JSON ({error}): write one memory on each line, such as {EXAMPLE}"
        ) from error


def _entry(item: Any, where: str, section: str, source: str) -> Add:
    if not isinstance(item, dict):
        raise ContextFileError("memories.malformed", f"{where}: a memory must be an object such as {EXAMPLE}")
    form = _Experience if section.startswith(POOL) else _Text if "text" in item else _Memory
    try:
        return form.model_validate(item).as_edit(section, source)
    except ValidationError as error:
        example = f" (an experience of an agent is {EXPERIENCE})" if section.startswith(POOL) else ""
        raise ContextFileError("memories.malformed", f"{where}: {fault(error)}{example}") from error


def _sources(source: str, line: _Memory | _Line) -> tuple[str, ...]:
    conversation = () if line.conversation is None else (f"{CONVERSATION}{line.conversation}",)
    return (source, *(f"tag:{tag}" for tag in line.tags), *conversation)
