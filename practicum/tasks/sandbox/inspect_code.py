"""Script that inspects the files of a project. It runs in the sandbox, because hostile code may crash the parser.

It uses only the standard library. Standard input: a JSON object (file name → text). Standard output: a JSON object with
the faults, placeholders and measures of each Python file.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Types of syntax nodes. Each such node adds one path through the code (McCabe 1976).
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
# Pattern of comments that announce missing code.
PROMISE = re.compile(r"\b(?:TODO|FIXME|XXX|placeholder|to be implemented|implement .* here)\b", re.IGNORECASE)


def inspect_file(name: str, source: str) -> dict[str, Any]:
    """For a file that does not parse, return only its `fault`. For any other file, return its placeholders, its
    measures, and its code without comments."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{name} line {line}" if line else name
        return {"fault": f"{where}: {type(error).__name__}: {getattr(error, 'msg', error)}"}
    comments, bare = strip_comments(source)
    return {
        "placeholders": [f"{name} line {line}: {gap}" for line, gap in sorted({*empty_bodies(tree), *comments})],
        "lines": sum(bool(line.strip()) for line in bare.split("\n")),
        "functions": sum(isinstance(node, FUNCTIONS) for node in ast.walk(tree)),
        "complexity": complexity(tree),
        "code": bare,
    }


def empty_bodies(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the line and a description of each function and branch that contains only pass, `...`, a docstring, or
    NotImplementedError. Abstract methods, overloads and methods of a protocol may be empty and are left out."""
    gaps = []
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if any("Protocol" in ast.unparse(base) for base in node.bases)]
    in_protocols = {part for node in protocols for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and all(map(_is_empty, node.body)):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if node not in in_protocols and "abstract" not in decorators and "overload" not in decorators:
                gaps.append((node.lineno, f"{node.name} does nothing"))
        elif isinstance(node, ast.If | ast.For | ast.While) and all(map(_is_empty, node.body)):
            gaps.append((node.lineno, "a branch that does nothing"))
    return gaps


def _is_empty(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str) or node.value.value is ...
    return isinstance(node, ast.Raise) and node.exc is not None and "NotImplemented" in ast.unparse(node.exc)


def strip_comments(source: str) -> tuple[list[tuple[int, str]], str]:
    """Return the comments that announce missing code, each with its line, and the source without comments."""
    gaps, lines = [], source.split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return [], source
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
            if PROMISE.search(token.string):
                gaps.append((row, f"left to do: {token.string.lstrip('# ')[:80]}"))
    return gaps, "\n".join(lines)


def complexity(tree: ast.AST) -> int:
    """Return the sum of the cyclomatic complexities of all functions and of the code outside functions. Each
    complexity starts at 1."""
    return 1 + sum(isinstance(node, FUNCTIONS) + _branches(node) for node in ast.walk(tree))


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, BRANCHES))


if __name__ == "__main__":
    files = json.loads(sys.stdin.read())
    print(json.dumps({name: inspect_file(name, text) for name, text in files.items() if name.endswith(".py")}))
