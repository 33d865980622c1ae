"""What runs in the sandbox to test an answer's code: it is run, then its tests, and every `assert` is told of.

A script of its own with the standard library alone. Its standard input says what to test, its standard output what
came out, in lines that begin with a word nobody else knows. Code that ends the process early has therefore not passed.
"""

from __future__ import annotations

import ast
import json
import sys
import types
from typing import Any

Names = dict[str, Any]


class Checks:
    """Which asserts were reached, and what was wrong with the first that failed."""

    def __init__(self, mark: str, most: int) -> None:
        self.mark, self.most = mark, most
        self.sources: list[str] = []
        self.reached: set[int] = set()
        self.failed: dict[int, str] = {}
        self.out = sys.stdout

    def say(self, **what: Any) -> None:
        """One line that the host reads."""
        print("", self.mark + json.dumps(what), sep="\n", file=self.out, flush=True)

    def at(self, index: int) -> None:
        """An assert is about to be looked at."""
        if index not in self.reached:
            self.reached.add(index)
            self.say(at=self.source(index))

    def source(self, index: int) -> str:
        """An assert, in no more than so many characters: what is printed has a limit."""
        text = self.sources[index]
        return text if len(text) <= self.most else text[: self.most - 3] + "..."

    def saw(self, index: int, true: object, value: object = None, compared: bool = False) -> None:
        """What an assert came to; `value` is the left side where two things were compared."""
        if not true:
            self.failed.setdefault(index, f"it gave {_shown(value)}" if compared else "it is not so")

    def broke(self, index: int, error: BaseException) -> None:
        """What the code under test raised."""
        self.failed.setdefault(index, _line(error))


class Rewrite(ast.NodeTransformer):
    """Every assert becomes a look that goes on after a failure."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """`assert a == b` becomes `try: at(i); v = a; saw(i, v == b, v, True)`, `except ...: broke(i, error)`."""
        index = len(self.checks.sources)
        self.checks.sources.append(ast.unparse(node.test))
        test: ast.expr = node.test
        seen = f"__checks__.saw({index}, __test__)"
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left = ast.NamedExpr(ast.Name("__left__", ast.Store()), test.left)
            test = ast.Compare(left, test.ops, test.comparators)
            seen = f"__checks__.saw({index}, __test__, __left__, True)"
        template = ast.parse(
            f"try:\n    __checks__.at({index})\n    __test__ = None\n    {seen}\n"
            f"except BaseException as __error__:\n    __checks__.broke({index}, __error__)"
        ).body[0]
        assert isinstance(template, ast.Try)
        template.body[1] = ast.Assign([ast.Name("__test__", ast.Store())], test)
        return ast.fix_missing_locations(ast.copy_location(template, node))


def check(job: dict[str, Any]) -> None:
    """Run the answer, then its tests, and tell."""
    checks = Checks(job["mark"], job["most"])
    # A module that can be found by its name, as dataclasses and pickle do.
    module = sys.modules["answer"] = types.ModuleType("answer")
    names: Names = module.__dict__
    names["__checks__"] = checks
    load(names, job["prompt"], job["code"], job["entry_point"])
    if job["entry_point"] is not None and job["entry_point"] not in names:
        return checks.say(fault=f"the answer defines no {job['entry_point']}")
    tests = Rewrite(checks).visit(ast.parse(job["tests"], "tests.py"))
    checks.say(total=len(checks.sources))
    names.pop("check", None)
    exec(_compiled(tests, "tests.py"), names)
    if "check" in names and job["entry_point"] is not None:
        names["check"](names[job["entry_point"]])
    failed = checks.failed
    first = {"first": (checks.source(min(failed)), failed[min(failed)])} if failed else {}
    return checks.say(done=len(checks.reached), failed=len(failed), **first)


def load(names: Names, prompt: str, code: str, entry_point: str | None) -> None:
    """Run the code. Where it goes on from the prompt, both as one; else after it, for what the prompt imports."""
    whole = next((text for text in _readings(code) if _parses(text)), code)
    goes_on = next((text for text in (prompt + code, prompt + _indented(code)) if prompt and _parses(text)), None)
    if goes_on is not None and not _parses(whole):
        exec(_compiled(goes_on, "answer.py"), names)
        return
    if prompt and _parses(prompt):
        exec(_compiled(prompt, "prompt.py"), names)
        names.pop(entry_point or "", None)
    exec(_compiled(whole, "answer.py"), names)


def _readings(code: str) -> list[str]:
    """The code as it stands, and without a line or two of talk before it."""
    lines = code.split("\n")
    starts = ("def ", "async def ", "class ", "import ", "from ", "@")
    first = next((i for i, line in enumerate(lines) if line.startswith(starts)), 0)
    return [code, "\n".join(lines[first:])]


def _parses(code: str) -> bool:
    """Whether it is a whole module; a body without its head, which begins or ends in the air, is none."""
    try:
        _compiled(code, "answer.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _compiled(source: str | ast.Module, name: str) -> types.CodeType:
    """Code of its own: what this module imports from `__future__` is nothing to it."""
    code: types.CodeType = compile(source, name, "exec", dont_inherit=True)
    return code


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.split("\n"))


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].removesuffix(": ")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"what cannot be shown ({_line(error)})"
    return text if len(text) <= 120 else text[:117] + "..."


if __name__ == "__main__":
    check(json.loads(sys.stdin.read()))
