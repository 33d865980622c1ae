"""`practicum connect` and `practicum disconnect`: change the settings of a coding agent, and change them back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ValidationError
from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.core.errors import StoreError, UsageError
from practicum.core.files import read_bytes, write_atomic
from practicum.core.installation import home
from practicum.core.visible import visible_line
from practicum.models.keys import ADDRESSES
from practicum.plugins.coding.programs import PROGRAMS, Place, Program
from practicum.plugins.coding.settings_files import FORMATS, CannotEdit, Change, has

ProgramName = Annotated[
    Literal["claude-code", "codex", "opencode", "gemini-cli"], Argument(metavar="PROGRAM", help=", ".join(PROGRAMS))
]

BACKUP = ".practicum-backup"
"""Suffix of the copy of a file before its first change."""

BOM = b"\xef\xbb\xbf"


class Written(BaseModel):
    """Changes that `connect` made to a file. `before` and `after` are digests of the file; `before` is None for a file
    that `connect` created."""

    before: str | None
    after: str
    changes: list[Change]


class Record(BaseModel):
    """Connected programs of this installation: program and folder of its settings → file → changes."""

    connected: dict[str, dict[str, Written]] = {}

    @classmethod
    def read(cls) -> Record:
        path = cls.path()
        try:
            return cls.model_validate_json(read_bytes(path)) if path.exists() else cls()
        except (OSError, ValidationError) as error:
            raise StoreError("file.unreadable", f"cannot read {path}: restore it, or delete it") from error

    @staticmethod
    def path() -> Path:
        return home() / "connected.json"

    def write(self, key: str, files: Mapping[str, Written]) -> None:
        """Replace the changes for a key, and write the file."""
        self.connected = {name: value for name, value in {**self.connected, key: dict(files)}.items() if value}
        write_atomic(self.path(), self.model_dump_json(indent=1), private=True)


@dataclass(frozen=True)
class File:
    """File that is to be changed. The contents are None where the file does not exist. `base` is the content without
    the changes of an earlier `connect`."""

    path: Path
    now: bytes | None
    base: bytes | None
    new: bytes | None
    changes: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = ((content or b"").decode(errors="replace").splitlines() for content in (self.now, self.new))
        source, target = (str(self.path) if content is not None else "/dev/null" for content in (self.now, self.new))
        return "\n".join(unified_diff(old, new, source, target, lineterm=""))


def connect(
    program: ProgramName,
    store: Path | None = opt.option(None, metavar="DIR"),
    proxy: str | None = Option(None, metavar="ADDRESS", help="Use the proxy at this address in place of MCP."),
    print_: bool = Option(False, "--print", help="Print the changes, and write nothing."),
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> int:
    """Connect a coding agent with practicum, from the folder of your project.

    The agent gets the memory of `practicum mcp`, or the address of a running `practicum serve` (--proxy). A hook notes
    each session that ends, for `practicum nightly`. All changes are shown before they are made. `practicum disconnect`
    takes them back.
    """
    chosen, record, out = PROGRAMS[program], Record.read(), Printer(json_)
    root, folder = chosen.root(Path.cwd()), store_folder(store)
    key = f"{program} {root}"
    earlier = record.connected.get(key, {})
    files = _connected(chosen, root, _added(program, folder, _address(chosen, proxy)), earlier)
    written = {
        str(file.path): Written(before=_digest(file.base), after=_digest(file.new) or "", changes=[*file.changes])
        for file in files if file.changes
    }  # fmt: skip
    _change(files, lambda: record.write(key, written), out, print_, yes)
    if not print_:
        _clean([file for file in files if str(file.path) in earlier and not file.changes], root)
    if not print_ and not any(file.left for file in files):
        shared = "" if chosen.home is None else f" These settings apply to all projects: {root}."
        out.print(f"{chosen.title} is connected; sessions are noted in {folder}.{shared}")
    return _report(files, out)


def disconnect(program: ProgramName, yes: opt.Yes = False, json_: opt.Json = False) -> int:
    """Take back the changes that `practicum connect` made to the settings of a coding agent."""
    chosen, record, out = PROGRAMS[program], Record.read(), Printer(json_)
    root = chosen.root(Path.cwd())
    key = f"{program} {root}"
    if key not in record.connected:
        raise UsageError(
            "program.not_connected",
            f"{chosen.title} is not connected in {root}: run this command in the folder in which you ran practicum "
            f"connect {program}",
        )
    files = [_without(Path(name), written) for name, written in record.connected[key].items()]
    _change(files, lambda: None, out, False, yes)
    _clean(files, root)
    record.write(key, {})
    out.print(f"{chosen.title} is disconnected")
    return _report(files, out)


def store_folder(store: Path | None) -> Path:
    """Return the folder of captured sessions and of the spaces that learn from them."""
    if store is not None and "://" in str(store):
        raise UsageError("store.unsupported", "--store must be a folder")
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return Path(os.path.abspath((store or data / "practicum").expanduser()))


# ---- changes


def _address(program: Program, proxy: str | None) -> str | None:
    """Return the address of the proxy without a path."""
    if proxy is None:
        return None
    if not program.address:
        raise UsageError("program.unsupported", f"the proxy does not support {program.title}: omit --proxy")
    if not proxy.startswith(ADDRESSES) or "@" in proxy:
        # A password in the address would be stored.
        raise UsageError("settings.invalid", "--proxy must be an address: http://HOST:PORT", setting="proxy")
    return proxy.rstrip("/").removesuffix("/v1")


def _added(program: str, store: Path, address: str | None) -> list[tuple[Place, Change]]:
    """Return the places that a program needs, with their changes."""
    # Programs do not have the environment of practicum on their PATH. With -P, no module of the project is imported.
    command = [sys.executable, "-P", "-m", "practicum.cli.app"]
    chosen = PROGRAMS[program]
    added = [(chosen.server, chosen.server.change([*command, "mcp", "--store", str(store)]))]
    if address is not None:
        added = [(place, place.change(address)) for place in chosen.address]
    return [*added, (chosen.hook, chosen.hook.change([*command, "capture", program, "--store", str(store)]))]


def _connected(
    program: Program, root: Path, added: Sequence[tuple[Place, Change]], before: Mapping[str, Written]
) -> list[File]:  # fmt: skip
    """Return the files with the changes of a program. The changes of an earlier `connect` are replaced."""
    names = dict.fromkeys([*before, *(str(_path(root, place)) for place, _ in added)])
    files = []
    for name in names:
        path = Path(name)
        file = _without(path, before[name]) if name in before else _unchanged(path)
        for place, change in added:
            if _path(root, place) == path:
                file = _with(file, place, change)
        files.append(file)
    return files


def _path(root: Path, place: Place) -> Path:
    # A link stays a link.
    return (root / place.file).resolve()


def _unchanged(path: Path) -> File:
    try:
        content = read_bytes(path) if path.exists() else None
    except OSError as error:
        raise StoreError("file.unreadable", f"cannot read {path}: {error.strerror}") from error
    return File(path, content, content, content)


def _with(file: File, place: Place, change: Change) -> File:
    """Return a file with one more change. A file that cannot be changed stays, with the reason in `left`."""
    format, content = FORMATS[file.path.suffix], file.new or b""
    try:
        text = content.removeprefix(BOM).decode()
        settings = format.parse(text)
        if place.wraps and isinstance(then := settings.get(place.path[0]), list):
            change = replace(change, value=[*change.value, "--then", json.dumps(then, ensure_ascii=False)])
        if has(settings, change):
            return file
        text, change = format.add(text, change)
    except (CannotEdit, UnicodeDecodeError) as error:
        value = json.dumps(change.value, ensure_ascii=False)
        reason = f"{file.path} is unchanged: {error}. Add by hand: {'.'.join(change.path)} = {value}"
        return replace(file, left=(*file.left, reason))
    new = content[: len(BOM) * content.startswith(BOM)] + text.encode()
    return replace(file, new=new, changes=(*file.changes, change))


def _without(path: Path, written: Written) -> File:
    """Return a file without the changes of an earlier `connect`: its earlier content if it is unchanged since,
    otherwise without the values that `connect` added."""
    file = _unchanged(path)
    if file.now is None:
        return file
    if _digest(file.now) == written.after:
        backup = _unchanged(path.with_name(path.name + BACKUP)).now
        if written.before is None or _digest(backup) == written.before:
            return replace(file, base=backup, new=backup)
    format, left = FORMATS[path.suffix], list[str]()
    try:
        text = file.now.removeprefix(BOM).decode()
        for change in reversed(written.changes):
            try:
                text = format.remove(text, change)
            except CannotEdit as error:
                left.append(f"{path}: {error}; the rest is taken back")
        empty = written.before is None and (not text or text.split() == ["{}"])
        content = None if empty else file.now[: len(BOM) * file.now.startswith(BOM)] + text.encode()
    except UnicodeDecodeError:
        return replace(file, left=(f"{path} is unchanged: it is not UTF-8",))
    return replace(file, base=content, new=content, left=tuple(left))


def _digest(content: bytes | None) -> str | None:
    return None if content is None else sha256(content).hexdigest()


# ---- files


def _change(files: Sequence[File], begin: Any, out: Printer, print_only: bool, yes: bool) -> None:
    """Show the changes, ask for confirmation, call `begin`, and write the files."""
    changed = [file for file in files if file.now != file.new]
    for file in changed:
        out.print(file.diff())
    out.result({"files": [{"file": str(file.path), "diff": file.diff()} for file in changed]})
    if print_only or not changed:
        return
    confirm(f"Change {', '.join(str(file.path) for file in changed)}?", yes)
    begin()
    for file in changed:
        if file.base is not None and file.base != file.new:
            rewrite(file.path.with_name(file.path.name + BACKUP), file.base, like=file.path)
        if file.new is None:
            file.path.unlink(missing_ok=True)
        else:
            rewrite(file.path, file.new, like=file.path)


def rewrite(path: Path, content: bytes, like: Path) -> None:
    """Write a file with the mode of the file `like`."""
    mode = like.stat().st_mode if like.exists() else None
    write_atomic(path, content, private=mode is not None and not mode & 0o077)
    if mode is not None:
        path.chmod(mode & 0o7777)


def _clean(files: Sequence[File], root: Path) -> None:
    """Remove the backups of files, and the empty folders below `root` that the files were in."""
    for file in files:
        file.path.with_name(file.path.name + BACKUP).unlink(missing_ok=True)
        folder = file.path.parent
        while folder != root and folder.is_relative_to(root) and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _report(files: Sequence[File], out: Printer) -> int:
    """Print the reasons why files or values stay. Return the exit code: 0 without such reasons, otherwise 1."""
    left = [reason for file in files for reason in file.left]
    out.result({"left": left})
    for reason in left:
        out.item(visible_line(reason))
    return int(bool(left))
