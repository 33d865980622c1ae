"""The code in an answer: what stands in markdown fences, or the answer as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

PYTHON = ("", "python", "py", "python3")
"""Words behind an opening fence that mean Python, or nothing else."""

# A fence that is never closed is an answer that was cut off; its code is what there is.
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\n`]*)\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[\w./-]*\w\.\w{1,8}")


@dataclass(frozen=True, slots=True)
class Block:
    """Code in a fence: the words behind the opening one, the last line before it, and the code."""

    words: str
    before: str
    code: str

    @property
    def language(self) -> str:
        """The first of the words, in small letters; empty where that is a name of a file."""
        first = self.words.split()[0].lower() if self.words.split() else ""
        return "" if _NAME.fullmatch(first) else first


def blocks(answer: str) -> list[Block]:
    """All fenced code, in its order."""
    return list(_blocks(answer))


def code_for(answer: str, name: str | None) -> str:
    """The Python code of an answer: all blocks as far as the last that defines `name`, which later ones only use.

    Without such a block, all of them; without any, the answer itself.
    """
    found = [block.code for block in _blocks(answer) if block.language in PYTHON]
    if not found:
        return answer
    if name is not None:
        last = max((i for i, code in enumerate(found) if defines(code, name)), default=len(found) - 1)
        found = found[: last + 1]
    return "\n\n".join(found)


def defines(code: str, name: str) -> bool:
    """Whether Python code defines this name at its outermost level."""
    named = re.escape(name)
    return re.search(rf"^(?:async\s+)?(?:def|class)\s+{named}\b|^{named}\s*[:=]", code, re.MULTILINE) is not None


def files_in(answer: str) -> dict[str, str]:
    """The files of a small project, by name: each in a fence, its name behind the fence, in the line before it, or in
    a comment on its first line. Python without a name is main.py. Where a name comes twice the last counts."""
    found: dict[str, str] = {}
    for block in _blocks(answer):
        name = _name_of(block)
        if name is None and block.language in PYTHON and block.language:
            name = "main.py"
        if name is not None:
            found[name] = block.code
    if not found and (code := code_for(answer, None)).strip():
        return {"main.py": code}
    return found


def _blocks(answer: str) -> Iterator[Block]:
    for match in _FENCED.finditer(answer.replace("\r\n", "\n")):
        before = match.string[: match.start()].rstrip().rpartition("\n")[2]
        yield Block(match[2].strip(), before.strip(), match[3])


def _name_of(block: Block) -> str | None:
    first = block.code.lstrip().partition("\n")[0]
    comment = first.lstrip("#/ ") if first.startswith(("#", "//")) else ""
    told = re.search(r"(?:file ?name|title|file)\s*[=:]\s*[\"']?([^\s\"']+)", block.words)
    candidates = [told[1] if told else "", *block.words.split(), _bare(block.before), _bare(comment)]
    return next((name for name in candidates if _is_name(name)), None)


def _bare(line: str) -> str:
    """A line without what headings, lists and emphasis put around a name: `### 1. **`main.py`**:`."""
    line = re.sub(r"^(?:#+|[-*+]|\d+[.)])\s+", "", line.strip()).strip()
    line = re.sub(r"^(?:\d+[.)]\s+|file(?: ?name)?\s*:\s*)", "", line, flags=re.IGNORECASE)
    return line.strip("*`:#[]\"' ").strip()


def _is_name(text: str) -> bool:
    path = PurePosixPath(text)
    return bool(_NAME.fullmatch(text)) and not path.is_absolute() and ".." not in path.parts
