"""The script that tests an answer's code in the sandbox: it runs the code, then its tests, and reports on every assert.

It uses the standard library alone. Standard input is the job as JSON. Standard output holds the report, in lines that
begin with a secret mark, so that code that ends the process early does not pass.
"""

from __future__ import annotations

import ast
import json
import sys
import types
from typing import Any


class Checks(ast.NodeTransformer):
    """Turns every assert into a check that continues after a failure, and records which ones were reached or failed."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.sources: list[str] = []
        self.reached: set[int] = set()
        self.failed: dict[int, str] = {}
        self.out = sys.stdout

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """`assert a == b` becomes `try: at(i); checked(i, (v := a) == b, v, True)`, `except ...: raised(i, error)`."""
        index = len(self.sources)
        self.sources.append(_shortened(ast.unparse(node.test), 200))
        test: ast.expr = node.test
        record = f"__checks__.checked({index}, __test__)"
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left = ast.NamedExpr(ast.Name("__left__", ast.Store()), test.left)
            test = ast.Compare(left, test.ops, test.comparators)
            record = f"__checks__.checked({index}, __test__, __left__, True)"
        template = ast.parse(
            f"try:\n    __checks__.at({index})\n    __test__ = None\n    {record}\n"
            f"except BaseException as __error__:\n    __checks__.raised({index}, __error__)"
        ).body[0]
        assert isinstance(template, ast.Try)
        template.body[1] = ast.Assign([ast.Name("__test__", ast.Store())], test)
        return ast.fix_missing_locations(ast.copy_location(template, node))

    def report(self, **values: Any) -> None:
        """Print a line for `scoring.unit_tests` to read."""
        print("", self.mark + json.dumps(values), sep="\n", file=self.out, flush=True)

    def at(self, index: int) -> None:
        """An assert is about to be checked."""
        if index not in self.reached:
            self.reached.add(index)
            self.report(at=self.sources[index])

    def checked(self, index: int, holds: object, value: object = None, compared: bool = False) -> None:
        """An assert was evaluated. For a comparison, `value` is its left side."""
        if not holds:
            self.failed.setdefault(index, f"it gave {_short_repr(value)}" if compared else "it is not so")

    def raised(self, index: int, error: BaseException) -> None:
        """Evaluating an assert raised an exception."""
        self.failed.setdefault(index, _one_line(error))


def check(job: dict[str, Any]) -> None:
    """Run the answer, then its tests, and report."""
    checks = Checks(job["mark"])
    # Dataclasses and pickle look up the module by its name.
    module = sys.modules["answer"] = types.ModuleType("answer")
    names = module.__dict__
    names["__checks__"] = checks
    load(names, job["prompt"], job["code"], job["entry_point"])
    if job["entry_point"] is not None and job["entry_point"] not in names:
        return checks.report(fault=f"the answer defines no {job['entry_point']}")
    tests = checks.visit(ast.parse(job["tests"], "tests.py"))
    checks.report(total=len(checks.sources))
    names.pop("check", None)
    exec(_compiled(tests, "tests.py"), names)
    if "check" in names and job["entry_point"] is not None:
        names["check"](names[job["entry_point"]])
    failed = checks.failed
    first = {"first": (checks.sources[min(failed)], failed[min(failed)])} if failed else {}
    return checks.report(done=len(checks.reached), failed=len(failed), **first)


def load(names: dict[str, Any], prompt: str, code: str, entry_point: str | None) -> None:
    """Run the code: joined to the prompt if it continues it, else after the prompt, which may import modules for it."""
    # The code from its first line that looks like Python, without prose before it.
    lines, starts = code.split("\n"), ("def ", "async def ", "class ", "import ", "from ", "@")
    bare = "\n".join(lines[next((i for i, line in enumerate(lines) if line.startswith(starts)), 0) :])
    whole = next((text for text in (code, bare) if _parses(text)), code)
    indented = "\n".join(f"    {line}" for line in lines)
    joined = next((text for text in (prompt + code, prompt + indented) if prompt and _parses(text)), None)
    if joined is not None and not _parses(whole):
        exec(_compiled(joined, "answer.py"), names)
        return
    if prompt and _parses(prompt):
        exec(_compiled(prompt, "prompt.py"), names)
        names.pop(entry_point or "", None)
    exec(_compiled(whole, "answer.py"), names)


def _parses(code: str) -> bool:
    """Whether the code is a whole module, rather than the body of a function, say."""
    try:
        _compiled(code, "answer.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _compiled(source: str | ast.Module, name: str) -> types.CodeType:
    """Compile without the `__future__` imports of this script."""
    code: types.CodeType = compile(source, name, "exec", dont_inherit=True)
    return code


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].removesuffix(": ")


def _short_repr(value: object) -> str:
    try:
        return _shortened(repr(value), 120)
    except Exception as error:
        return f"what cannot be shown ({_one_line(error)})"


def _shortened(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


if __name__ == "__main__":
    check(json.loads(sys.stdin.read()))
