"""The script that tests an answer: it runs the tests, checks every assert, and reports.

It runs in the sandbox, in a process of its own. The code of the answer is in another (`run_answer.py`): here its names
are `RemoteObject`s, whose calls send their arguments there and get plain data back. So what an assert compares was made
here from text, and nothing of the answer can reach the tests, the asserts or what they expect. It uses the standard
library alone. Standard input is the job as JSON: the prompt, the tests and the name of the entry point. The arguments
are the numbers of the pipes from and to the answer. Standard output holds the report.
"""

from __future__ import annotations

import ast
import builtins
import enum
import importlib
import itertools
import json
import operator
import os
import symtable
import sys
import traceback
import types
from _thread import RLock
from collections.abc import Callable, Generator
from typing import Any, NoReturn, TypeVar

from practicum.tasks.sandbox.plain import (
    MUTABLE,
    Malformed,
    Message,
    Node,
    Packer,
    Unpacker,
    compiled,
    fill,
    parses,
    read,
    write,
)

MODULE = "tests"
SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count"}
LOOKUPS = SEARCHES | {"issubset", "issuperset", "isdisjoint"}
"""Methods by which plain data is asked about a value. An object that a call returned might say yes to any value."""

T = TypeVar("T")

TALK: Talk


class AssertRewriter(ast.NodeTransformer):
    """Turns every assert into a check that continues after a failure, and records which ones were reached or failed."""

    def __init__(self) -> None:
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
        print(json.dumps(values), file=self.out, flush=True)

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


class RemoteObject:
    """An object in the process of the answer. It can be called, and asked for attributes and text.

    No operator compares it or computes with it, since the answer would decide what comes out: an object equal to
    everything would pass every test. Only an object that the tests made themselves, by calling a class of the answer
    whose name begins with a capital letter, also has a length, items and, if its class is derived from a type of plain
    data, that data as its value.
    """

    __slots__ = ("practicum_remote",)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        mine = _about(self)
        if not (mine.is_class and mine.made):
            return TALK.ask("call", self, *args, **keywords)
        made = TALK.ask("make", self, *args, **keywords)
        if type(made) is RemoteObject:
            _about(made).made = True
        return made

    def __getattribute__(self, name: str) -> Any:  # a method with the name of an operator, too, if it is asked for so
        if name == "__class__":
            return RemoteObject
        if name in LOOKUPS and not _about(self).made:
            refuse(self, f"{name}()")
        return _named(name, TALK.ask("getattr", self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        TALK.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        TALK.ask("delattr", self, name)

    def __str__(self) -> str:
        return _exactly(str, TALK.ask("str", self))

    def __repr__(self) -> str:
        return _exactly(str, TALK.ask("repr", self))

    def __bool__(self) -> bool:
        return _exactly(bool, TALK.ask("bool", self))

    def __iter__(self) -> Any:
        return self if _about(self).is_iterator else _made(self, "iteration over").ask("iter", self)

    def __next__(self) -> Any:
        mine = _about(self)
        if mine.ended or not mine.is_iterator:
            raise StopIteration
        try:
            return TALK.ask("next", self)
        except StopIteration:
            mine.ended = True
            raise

    def __len__(self) -> int:
        return _exactly(int, _made(self, "the length of").ask("len", self))

    def __getitem__(self, key: Any) -> Any:
        return _made(self, "an item of").ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _made(self, "an item of").ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        _made(self, "an item of").ask("delitem", self, key)

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return TALK.ask("await", self)

    def __enter__(self) -> Any:
        return TALK.ask("enter", self)

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> Any:
        return TALK.ask("exit", self, error)

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is RemoteObject and _exactly(bool, TALK.ask("isinstance", value, self))


def _operator(name: str) -> Callable[..., Any]:
    """An operator of RemoteObject, which computes with plain data here or not at all."""
    reflected = name not in operator.__dict__
    compute = getattr(operator, name.replace("__r", "__") if reflected else name)

    def apply(self: Any, other: Any) -> Any:
        if other is None and name in ("__eq__", "__ne__"):
            return name == "__ne__"
        left, right = _plain(self), _plain(other)
        return compute(right, left) if reflected else compute(left, right)

    return apply


COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "contains")
COMPUTING = "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"
for _name in (*COMPARING, *COMPUTING, *(f"r{name}" for name in COMPUTING)):
    setattr(RemoteObject, f"__{_name}__", _operator(f"__{_name}__"))
RemoteObject.__hash__ = lambda self: hash(_plain(self))  # type: ignore[method-assign]
RemoteObject.__name__ = "object of the answer"  # in the messages of TypeError


class About:
    """What is known here of an object of the answer."""

    def __init__(self, number: int, name: str, is_class: bool, base: str, is_iterator: bool) -> None:
        self.number, self.name, self.is_class, self.base, self.is_iterator = number, name, is_class, base, is_iterator
        self.made = False  # by the tests, see RemoteObject
        self.ended = False  # what is iterated once does not begin again


def _about(remote: RemoteObject) -> About:
    about: About = object.__getattribute__(remote, "practicum_remote")
    return about


def _named(name: str, value: Any) -> Any:
    """The value that the tests found under a name: a class makes objects if it has the name of a class here."""
    if type(value) is RemoteObject and _about(value).is_class and name.lstrip("_")[:1].isupper():
        _about(value).made = True
    return value


def _plain(value: Any) -> Any:
    if type(value) is not RemoteObject:
        return value
    if not (_about(value).made and _about(value).base):
        refuse(value, "an operator")
    return TALK.ask("content", value)


def _made(remote: RemoteObject, what: str) -> Talk:
    if not _about(remote).made:
        refuse(remote, what)
    return TALK


def _exactly(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"the answer gave {type(value).__name__}, not {kind.__name__}")
    return value


def refuse(remote: RemoteObject, what: str) -> NoReturn:
    """Refuse what the answer would decide."""
    name = _about(remote).name
    raise TypeError(f"{what} of the answer's {name} object decides nothing: compare its attributes or results instead")


class Talk:
    """The conversation with the process of the answer."""

    def __init__(self, checks: AssertRewriter, replies: int, requests: int, shared: dict[str, type[Any]]) -> None:
        self.checks, self.shared = checks, shared
        self.replies, self.requests = os.fdopen(replies, "rb"), os.fdopen(requests, "wb")
        self.remotes: dict[int, RemoteObject] = {}
        self.functions: list[Callable[..., Any]] = []  # of the tests, that the answer may call
        self.errors: dict[int, type[BaseException]] = {}  # the exceptions that the answer defines, made again here
        self.lock = RLock()

    def ask(self, do: str, *values: Any, **keywords: Any) -> Any:
        """Have the answer do something, take over what it changed in the arguments, and return or raise its result."""
        packer = Packer(self.special_node)
        packed = packer.pack([*values, *keywords.values()])
        with self.lock:
            self.write({"do": do, "keys": list(keywords), **packed})
            while "call" in (message := self.read()):
                self.call_back(message)
            try:
                result, *held = Unpacker(self.special_value, self.shell, packer.values).unpack(message)
                for number, size in message["changed"]:
                    if packer.nodes[number][0] not in (*MUTABLE, "made"):
                        raise Malformed("a change of what does not change")
                    fill(packer.values[number], held[:size])
                    del held[:size]
                raised = message["raised"]
                if raised and not isinstance(result, BaseException):
                    raise Malformed("an exception that is none")
            except (Malformed, ValueError, TypeError, LookupError) as error:
                self.end(f"the code sent what is no plain data ({_one_line(error)})")
        if not raised:
            return result
        if isinstance(result, (StopIteration, StopAsyncIteration, GeneratorExit)) and do != "next":
            # Some loops of the tests would take it for their own end, and test nothing.
            raise RuntimeError(f"the code raised {type(result).__name__}")
        raise result

    def call_back(self, message: Message) -> None:
        """Call a function of the tests that they passed to the answer."""
        try:
            function, names = self.functions[message["call"]], message["keys"]
            values = Unpacker(self.special_value, self.shell).unpack(message)
            split = len(values) - len(names)
            keywords = dict(zip(names, values[split:], strict=True))
        except (Malformed, ValueError, TypeError, LookupError) as error:
            self.end(f"the code sent what is no plain data ({_one_line(error)})")
        try:
            result, raised = function(*values[:split], **keywords), False
        except Exception as error:
            result, raised = error, True
        self.write({"raised": raised, **Packer(self.special_node).pack([result])})

    def write(self, message: Message) -> None:
        try:
            write(self.requests, message)
        except BrokenPipeError:
            self.end()

    def read(self) -> Message:
        """The answer's next message."""
        try:
            return read(self.replies)
        except EOFError:
            self.end()
        except Malformed as error:
            self.end(f"the code sent what is no plain data ({_one_line(error)})")

    def end(self, fault: str = "") -> NoReturn:
        """End without a result, since the answer has."""
        self.checks.report(**({"fault": fault} if fault else {"gone": True}))
        os._exit(0)

    def special_node(self, value: Any, packer: Packer) -> Node:
        """The node of what is not plain data. Raises TypeError for what cannot cross."""
        kind: type[Any] = type(value)
        if kind is RemoteObject:
            return ["theirs", _about(value).number]
        if isinstance(value, type):
            if theirs := [number for number, error in self.errors.items() if error is value]:
                return ["theirs", theirs[0]]
            if self.is_shared(value):
                return ["shared", value.__name__]
        if isinstance(value, BaseException):
            known = next(each for each in kind.__mro__ if each.__module__ != MODULE)
            return ["error", *map(packer.ref, (known, *value.args))]
        if self.is_shared(kind):
            return packer.shared_node(value)
        if callable(value):
            return _imported(value) or ["function", self.number(value)]
        if hasattr(kind, "__next__"):
            return ["iterator", self.number(lambda: tuple(itertools.islice(value, 1)))]
        self.checks.report(untestable=kind.__name__)
        raise TypeError(f"an argument of type {kind.__name__} cannot reach the answer: define its class in meta.prompt")

    def is_shared(self, kind: type[Any]) -> bool:
        """Whether the prompt defines this class, so that the answer has it too."""
        return self.shared.get(kind.__name__) is kind

    def number(self, function: Callable[..., Any]) -> int:
        """The number by which the answer calls a function."""
        self.functions.append(function)
        return len(self.functions) - 1

    def shell(self, name: str) -> Any:
        """An object of a class that the prompt defines, before it has attributes."""
        return object.__new__(self.shared[name])

    def special_value(self, node: Node, unpacker: Unpacker) -> Any:
        """What a node stands for that is not plain data. Nothing of it does here what the answer wants."""
        match node:
            case ["object", int(number), str(name), bool(is_class), str(base), bool(is_iterator)]:
                return self.remote(About(number, name, is_class, base, is_iterator))
            case ["builtin", str(name)] if isinstance(kind := getattr(builtins, name), type):
                return kind
            case ["shared", str(name)]:
                return self.shared[name]
            case ["member", str(name), str(member)] if issubclass(self.shared[name], enum.Enum):
                return self.shared[name][member]
            case ["named", str(name), *items] if issubclass(self.shared[name], tuple):
                return tuple.__new__(self.shared[name], map(unpacker.value, items))
            case ["coroutine", int(number)]:
                return self.wait(number)
            case ["yours", int(number)]:
                return self.functions[number]
            case ["errors", *kinds]:
                return self.error_class(kinds)
            case ["error", *parts]:
                kind, text, count, *rest = map(unpacker.value, parts)
                if isinstance(kind, type) and issubclass(kind, BaseException):
                    return _error(kind, text, rest[:count], rest[count:])
        raise ValueError(f"no {node[0]}")

    def remote(self, about: About) -> RemoteObject:
        """The same RemoteObject for the same object."""
        if about.number not in self.remotes:
            remote = self.remotes[about.number] = RemoteObject()
            object.__setattr__(remote, "practicum_remote", about)
        return self.remotes[about.number]

    async def wait(self, number: int) -> Any:
        """What a coroutine of the answer gives."""
        return self.ask("await", self.remote(About(number, "coroutine", False, "", False)))

    def error_class(self, kinds: list[Any]) -> type[BaseException]:
        """The exception with these classes, for each its number and its name: those of Python and of the prompt are the
        same here, others are made."""
        found: type[BaseException] = BaseException
        for number, name in reversed([*zip(kinds[::2], kinds[1::2], strict=True)]):
            same = self.shared.get(name) or getattr(builtins, name, None)
            if isinstance(same, type) and issubclass(same, BaseException):
                found = same
            else:
                made = self.errors.get(number) or type(str(name), (found,), {"__str__": _text, "__module__": "answer"})
                found = self.errors[number] = made
        return found


def _error(kind: type[BaseException], text: str, args: list[Any], held: list[Any]) -> BaseException:
    """An exception like the one that the answer raised, with its text and its attributes."""
    try:
        error = kind(*args)
    except Exception:  # made with other arguments
        error = kind.__new__(kind, *args)
    for name, value in zip(held[::2], held[1::2], strict=True):
        if not name.startswith("__") and not callable(getattr(kind, name, None)):
            setattr(error, name, value)
    if kind.__module__ == "answer":
        error.__dict__["practicum_text"] = text
    return error


def _text(error: BaseException) -> str:
    return str(error.__dict__.get("practicum_text", BaseException.__str__(error)))


def _imported(value: Any) -> Node | None:
    """The node of a function or class of the standard library, which the answer's process has too."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module == "builtins" and getattr(builtins, name, None) is value:
        return ["import", module, name]
    if module in sys.stdlib_module_names and module in sys.modules and "<" not in name:
        try:
            return ["import", module, name] if operator.attrgetter(name)(sys.modules[module]) is value else None
        except AttributeError:
            return None
    return None


def names_used(tests: str, entry_point: str | None) -> tuple[set[str], set[str]]:
    """The names that tests use and define nowhere: those of the answer or of the prompt, and modules of the standard
    library. A name of Python's own is Python's, unless it is the entry point."""
    tree = ast.parse(tests)
    loads = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    owners = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    with_dot = [node.id for node in owners if isinstance(node, ast.Name)]
    used: set[str] = set()
    tables = [symtable.symtable(tests, "tests.py", "exec")]
    own = {each.get_name() for each in tables[0].get_symbols() if each.is_assigned() or each.is_imported()}
    while tables:
        table = tables.pop()
        tables += table.get_children()
        symbols = (each for each in table.get_symbols() if each.is_referenced())
        used |= {each.get_name() for each in symbols if each.is_global() or table.get_type() == "module"}
    used -= own | set(dir(builtins))
    modules = {name for name in used & sys.stdlib_module_names if with_dot.count(name) == loads.count(name)}
    return (used - modules) | ({entry_point} if entry_point else set()), modules


def run(job: dict[str, Any], checks: AssertRewriter) -> None:
    global TALK
    tests, entry_point = job["tests"], job["entry_point"]
    # Dataclasses look up their module by its name.
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    names = module.__dict__
    prompt = next(filter(parses, (job["prompt"], job["prompt"] + "\n    pass\n")), "")
    exec(compiled(prompt, "prompt.py"), names)
    names.pop(entry_point or "", None)
    shared = {name: kind for name, kind in names.items() if isinstance(kind, type) and kind.__module__ == MODULE}
    TALK = Talk(checks, int(sys.argv[1]), int(sys.argv[2]), shared)
    wanted, modules = names_used(tests, entry_point)
    names.update({name: importlib.import_module(name) for name in modules - names.keys()})
    found = TALK.ask("names", sorted(wanted - names.keys()), sorted(shared))
    names.update({name: _named(name, found[name]) for name in found})
    if entry_point is not None and entry_point not in names:
        return checks.report(fault=f"the answer defines no {entry_point}")
    checked = checks.visit(ast.parse(tests, "tests.py"))
    checks.report(total=len(checks.sources))
    names["__checks__"] = checks
    try:
        exec(compiled(checked, "tests.py"), names)
        if "check" in names and entry_point is not None:
            names["check"](names[entry_point])
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f" (tests.py line {frame.lineno})" for frame in frames if frame.filename == "tests.py"]
        return checks.report(broken=_one_line(error) + "".join(lines[-1:]))
    failed = checks.failed
    first = {"first": (checks.sources[min(failed)], failed[min(failed)])} if failed else {}
    return checks.report(done=len(checks.reached), failed=len(failed), **first)


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
    CHECKS = AssertRewriter()
    sys.stdout = sys.stderr  # what the tests print is no report
    run(json.loads(sys.stdin.read()), CHECKS)
