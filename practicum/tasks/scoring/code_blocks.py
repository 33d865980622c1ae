"""The code in an answer: the content of its markdown fences, or the whole answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

PYTHON = ("", "python", "py", "python3")
"""Languages of a fence that may hold Python."""

# A fence that is never closed belongs to an answer that was cut off; its code still counts.
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\n`]*)\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"[\w./-]*\w\.\w{1,8}")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block: the info string after the opening fence, the last line before it, and the code."""

    info: str
    line_before: str
    code: str

    @property
    def language(self) -> str:
        """The first word of the info string in lower case; empty if that is a file name."""
        first = self.info.split()[0].lower() if self.info.split() else ""
        return "" if _FILE_NAME.fullmatch(first) else first

    @property
    def file_name(self) -> str | None:
        """A relative file name in the info string, in the line before the fence, or in a comment on the first line."""
        first_line = self.code.lstrip().partition("\n")[0]
        comment = first_line.lstrip("#/ ") if first_line.startswith(("#", "//")) else ""
        attribute = re.search(r"(?:file ?name|title|file)\s*[=:]\s*[\"']?([^\s\"']+)", self.info)
        candidates = [
            attribute[1] if attribute else "",
            *self.info.split(),
            _without_markup(self.line_before),
            _without_markup(comment),
        ]
        return next((name for name in candidates if _is_file_name(name)), None)


def code_blocks(answer: str) -> list[CodeBlock]:
    """All fenced blocks, in order."""
    text = answer.replace("\r\n", "\n")
    lines_before = ((match, text[: match.start()].rstrip().rpartition("\n")[2]) for match in _FENCED.finditer(text))
    return [CodeBlock(match[2].strip(), before.strip(), match[3]) for match, before in lines_before]


def python_code(answer: str, name: str | None) -> str:
    """The Python code of an answer: all blocks up to the last one that defines `name`; later ones only use it.

    Without a block that defines it, all blocks; without any block, the answer itself.
    """
    codes = [block.code for block in code_blocks(answer) if block.language in PYTHON]
    if not codes:
        return answer
    if name is not None:
        last = max((i for i, code in enumerate(codes) if defines_name(code, name)), default=len(codes) - 1)
        codes = codes[: last + 1]
    return "\n\n".join(codes)


def defines_name(code: str, name: str) -> bool:
    """Whether Python code defines this name at module level."""
    name = re.escape(name)
    return re.search(rf"^(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*[:=]", code, re.MULTILINE) is not None


def project_files(answer: str) -> dict[str, str]:
    """The files of a small project by name, each in a fenced block that names it (see `CodeBlock.file_name`).

    Python without a name is main.py. If a name occurs twice, the last block counts.
    """
    files: dict[str, str] = {}
    for block in code_blocks(answer):
        unnamed_python = block.language in PYTHON and block.language
        if name := block.file_name or ("main.py" if unnamed_python else None):
            files[name] = block.code
    if not files and (code := python_code(answer, None)).strip():
        return {"main.py": code}
    return files


def _without_markup(line: str) -> str:
    """A line without the headings, list marks and emphasis around a file name: `### 1. **`main.py`**:`."""
    line = re.sub(r"^(?:#+|[-*+]|\d+[.)])\s+", "", line.strip()).strip()
    line = re.sub(r"^(?:\d+[.)]\s+|file(?: ?name)?\s*:\s*)", "", line, flags=re.IGNORECASE)
    return line.strip("*`:#[]\"' ").strip()


def _is_file_name(text: str) -> bool:
    path = PurePosixPath(text)
    return bool(_FILE_NAME.fullmatch(text)) and not path.is_absolute() and ".." not in path.parts
