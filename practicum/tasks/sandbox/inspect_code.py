"""What runs in the sandbox to look at the files of a project without running them: parsing hostile code may crash.

A script of its own with the standard library alone. Standard input: file names to texts. Standard output: for each
Python file its faults, its placeholders and its measures, as one JSON object.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from typing import Any

BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
"""Each is one more way through (McCabe 1976)."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

LEFT = re.compile(r"\b(?:TODO|FIXME|XXX|placeholder|to be implemented|implement .* here)\b", re.IGNORECASE)
"""What a comment says that promises more code."""


def inspected(name: str, source: str) -> dict[str, Any]:
    """One file: `fault` where it does not parse, else what is left open in it and how large it is."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return {
            "fault": f"{name}{f' line {line}' if line else ''}: {type(error).__name__}: {getattr(error, 'msg', error)}"
        }
    comments, bare = uncommented(source)
    return {
        "placeholders": [f"{name} line {line}: {what}" for line, what in sorted({*open_ends(tree), *comments})],
        "lines": sum(bool(line.strip()) for line in bare.split("\n")),
        "functions": sum(isinstance(node, FUNCTIONS) for node in ast.walk(tree)),
        "complexity": complexities(tree),
        "code": bare,
    }


def open_ends(tree: ast.AST) -> list[tuple[int, str]]:
    """Bodies with nothing in them but pass, `...`, a docstring, or NotImplementedError. Abstract ones and those of a
    protocol may be so."""
    found = []
    forms = {part for node in ast.walk(tree) if _protocol(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node not in forms and not _abstract(node) and all(map(_empty, node.body)):
            found.append((node.lineno, f"{node.name} does nothing"))
        elif isinstance(node, ast.If | ast.For | ast.While) and all(map(_empty, node.body)):
            found.append((node.lineno, "a branch that does nothing"))
    return found


def _protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)


def _abstract(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("abstract" in ast.unparse(mark) or "overload" in ast.unparse(mark) for mark in node.decorator_list)


def _empty(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str) or node.value.value is ...
    return isinstance(node, ast.Raise) and node.exc is not None and "NotImplemented" in ast.unparse(node.exc)


def uncommented(source: str) -> tuple[list[tuple[int, str]], str]:
    """Comments that say that something is left to do, and the source without any comment."""
    found, lines = [], source.split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return [], source
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
            if LEFT.search(token.string):
                found.append((row, f"left to do: {token.string.lstrip('# ')[:80]}"))
    return found, "\n".join(lines)


def complexities(tree: ast.AST) -> list[int]:
    """Cyclomatic complexity of each function, inner ones for themselves, and of what stands outside of all."""
    blocks: list[ast.AST] = [tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))]
    return [1 + sum(map(_ways, _own(block))) for block in blocks]


def _own(block: ast.AST) -> list[ast.AST]:
    """The nodes of a block, without those of functions in it."""
    found: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(block))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, FUNCTIONS):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _ways(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, BRANCHES))


if __name__ == "__main__":
    files = json.loads(sys.stdin.read())
    print(json.dumps({name: inspected(name, text) for name, text in files.items() if name.endswith(".py")}))
