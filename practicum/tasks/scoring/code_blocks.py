"""Extraction of the code in an answer: the content of the answer's markdown fences, or the whole answer if no fence
holds Python."""

from __future__ import annotations

import re
from typing import NamedTuple

PYTHON = ("", "python", "py", "python3")
"""Language tags of fences that may hold Python."""

LINE_BEFORE = 500
"""Number of characters before a fence that are searched for the file name of the fenced block."""

# A fence without an end belongs to a truncated answer. The code after such a fence counts, too.
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\n`]*)\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"[\w./-]*\w\.\w{1,8}")


class CodeBlock(NamedTuple):
    """Fenced block: its language in lower case, its file name or None, and its code."""

    language: str
    file_name: str | None
    code: str


def code_blocks(answer: str) -> list[CodeBlock]:
    """Return all fenced blocks, in order. The file name of a block is a relative path in the info string of the opening
    fence, in the line before the fence, or in a comment on the first line of the code."""
    text = answer.replace("\r\n", "\n")
    blocks = []
    for match in _FENCED.finditer(text):
        info, code = match[2].strip(), match[3]
        first = info.split()[0].lower() if info else ""
        before = text[max(0, match.start() - LINE_BEFORE) : match.start()]
        line_before = before.rstrip().rpartition("\n")[2]
        first_line = code.lstrip().partition("\n")[0]
        comment = first_line.lstrip("#/ ") if first_line.startswith(("#", "//")) else ""
        attributes = re.findall(r"(?:file ?name|title|file)\s*[=:]\s*[\"']?([^\s\"']+)", info)[:1]
        names = [*attributes, *info.split(), _without_markup(line_before), _without_markup(comment)]
        relative = (name for name in names if not name.startswith("/") and ".." not in name.split("/"))
        language = "" if _FILE_NAME.fullmatch(first) else first
        blocks.append(CodeBlock(language, next(filter(_FILE_NAME.fullmatch, relative), None), code))
    return blocks


def python_code(answer: str, name: str | None) -> str:
    """Return the Python code of an answer: all Python blocks up to the last block that defines `name`. Later blocks are
    left out, because they only use `name`. If no block defines `name`, return all Python blocks. If the answer has no
    Python block, return the whole answer."""
    codes = [block.code for block in code_blocks(answer) if block.language in PYTHON]
    if not codes:
        return answer
    if name is not None:
        last = max((i for i, code in enumerate(codes) if defines_name(code, name)), default=len(codes) - 1)
        codes = codes[: last + 1]
    return "\n\n".join(codes)


def defines_name(code: str, name: str) -> bool:
    """Return whether Python code defines this name at module level."""
    name = re.escape(name)
    return re.search(rf"^(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*[:=]", code, re.MULTILINE) is not None


def project_files(answer: str) -> dict[str, str]:
    """Return the files of a small project by name, each from a fenced block that names the file. A block that is tagged
    as Python and has no file name is main.py. If a name occurs twice, the last block counts. If no block gives a file,
    the Python code of the answer is main.py."""
    files: dict[str, str] = {}
    for block in code_blocks(answer):
        unnamed_python = block.language in PYTHON and block.language
        if name := block.file_name or ("main.py" if unnamed_python else None):
            files[name] = block.code
    if not files and (code := python_code(answer, None)).strip():
        return {"main.py": code}
    return files


def _without_markup(line: str) -> str:
    """Return a line without the heading, list mark and emphasis around a file name, as in `### 1. **`main.py`**:`."""
    line = re.sub(r"^(?:#+|[-*+]|\d+[.)])\s+", "", line.strip()).strip()
    line = re.sub(r"^(?:\d+[.)]\s+|file(?: ?name)?\s*:\s*)", "", line, flags=re.IGNORECASE)
    return line.strip("*`:#[]\"' ").strip()
