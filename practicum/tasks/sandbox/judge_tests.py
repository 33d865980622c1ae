"""Script that tests an answer: it runs the tests, checks every assert, and reports the results.

It runs in the sandbox. The code of the answer runs in another process (`run_answer.py`); in this process, each function
or class of the answer is a `RemoteObject`. Calling a `RemoteObject` sends the arguments to the answer and receives
plain data. So the asserts compare values that this process built from received text, and the answer cannot manipulate
the tests, the asserts or the expected values. The script uses only the standard library. Standard input is the job as
JSON: the prompt, the tests and the name of the entry point. The arguments are the file descriptors of the pipes from
and to the answer. Standard output is the report.
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
"""Methods that search an object for a value. These methods are refused on objects that the answer returned, because the
class of such an object could define a method that finds any value."""

T = TypeVar("T")

CONNECTION: AnswerConnection


class AssertRewriter(ast.NodeTransformer):
    """Transformer that replaces every assert by a check. The tests continue after a failed check. The transformer
    records the asserts that were reached and the asserts that failed."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.reached: set[int] = set()
        self.failed: dict[int, str] = {}
        self.out = sys.stdout

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Rewrite `assert a == b` to `try: at(i); checked(i, (v := a) == b, v, True)`, `except ...: raised(i,
        error)`."""
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
        """Print a line of the report, which `scoring.unit_tests` reads."""
        print(json.dumps(values), file=self.out, flush=True)

    def at(self, index: int) -> None:
        """Record that an assert is about to be checked."""
        if index not in self.reached:
            self.reached.add(index)
            self.report(at=self.sources[index])

    def checked(self, index: int, holds: object, value: object = None, compared: bool = False) -> None:
        """Record whether an assert holds. If the assert is a comparison, `value` is the value of its left side."""
        if not holds:
            self.failed.setdefault(index, f"it gave {_short_repr(value)}" if compared else "it is not so")

    def raised(self, index: int, error: BaseException) -> None:
        """Record that evaluating an assert raised an exception."""
        self.failed.setdefault(index, _one_line(error))


class RemoteObject:
    """Proxy of an object in the process of the answer. It supports calls, attributes and conversion to text.

    Operators are refused, because the answer would decide the result: an object that is equal to everything would pass
    every test. Only objects that the tests created, by calling a class of the answer whose name begins with a capital
    letter, also support `len`, items and iteration. If the class of such an object is derived from a plain type,
    operators use the plain data of the object (for a class derived from `list`, a list).
    """

    __slots__ = ("practicum_remote",)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        info = _info(self)
        if not (info.is_class and info.by_tests):
            return CONNECTION.ask("call", self, *args, **keywords)
        instance = CONNECTION.ask("make", self, *args, **keywords)
        if type(instance) is RemoteObject:
            _info(instance).by_tests = True
        return instance

    def __getattribute__(self, name: str) -> Any:  # Python also calls this for `x.__eq__` and the like
        if name == "__class__":
            return RemoteObject
        if name in LOOKUPS and not _info(self).by_tests:
            refuse(self, f"{name}()")
        return _named(name, CONNECTION.ask("getattr", self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        CONNECTION.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        CONNECTION.ask("delattr", self, name)

    def __str__(self) -> str:
        return _exactly(str, CONNECTION.ask("str", self))

    def __repr__(self) -> str:
        return _exactly(str, CONNECTION.ask("repr", self))

    def __bool__(self) -> bool:
        return _exactly(bool, CONNECTION.ask("bool", self))

    def __iter__(self) -> Any:
        return self if _info(self).is_iterator else _require_by_tests(self, "iteration over").ask("iter", self)

    def __next__(self) -> Any:
        info = _info(self)
        if info.ended or not info.is_iterator:
            raise StopIteration
        try:
            return CONNECTION.ask("next", self)
        except StopIteration:
            info.ended = True
            raise

    def __len__(self) -> int:
        return _exactly(int, _require_by_tests(self, "the length of").ask("len", self))

    def __getitem__(self, key: Any) -> Any:
        return _require_by_tests(self, "an item of").ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _require_by_tests(self, "an item of").ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        _require_by_tests(self, "an item of").ask("delitem", self, key)

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return CONNECTION.ask("await", self)

    def __enter__(self) -> Any:
        return CONNECTION.ask("enter", self)

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> Any:
        return CONNECTION.ask("exit", self, error)

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is RemoteObject and _exactly(bool, CONNECTION.ask("isinstance", value, self))


def _operator(name: str) -> Callable[..., Any]:
    """Return the method of RemoteObject for an operator. The method computes in this process, with the plain data of
    both operands, and refuses operands without plain data."""
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


class ObjectInfo:
    """Description of an object in the process of the answer."""

    def __init__(self, number: int, name: str, is_class: bool, base: str, is_iterator: bool) -> None:
        self.number, self.name, self.is_class, self.base, self.is_iterator = number, name, is_class, base, is_iterator
        self.by_tests = False  # whether the tests created this object, or may create objects by calling this class
        self.ended = False  # whether the object is an exhausted iterator, which must not restart


def _info(remote: RemoteObject) -> ObjectInfo:
    info: ObjectInfo = object.__getattribute__(remote, "practicum_remote")
    return info


def _named(name: str, value: Any) -> Any:
    """Return the value of a name that the tests read. If `name` is capitalized and the value is a class, allow the
    tests to create objects by calling the class."""
    if type(value) is RemoteObject and _info(value).is_class and name.lstrip("_")[:1].isupper():
        _info(value).by_tests = True
    return value


def _plain(value: Any) -> Any:
    if type(value) is not RemoteObject:
        return value
    if not (_info(value).by_tests and _info(value).base):
        refuse(value, "an operator")
    return CONNECTION.ask("content", value)


def _require_by_tests(remote: RemoteObject, operation: str) -> AnswerConnection:
    if not _info(remote).by_tests:
        refuse(remote, operation)
    return CONNECTION


def _exactly(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"the answer gave {type(value).__name__}, not {kind.__name__}")
    return value


def refuse(remote: RemoteObject, operation: str) -> NoReturn:
    """Refuse an operation whose result the answer would decide."""
    name = _info(remote).name
    raise TypeError(
        f"{operation} of the answer's {name} object decides nothing: compare its attributes or results instead"
    )


class AnswerConnection:
    """Connection to the process of the answer."""

    def __init__(self, checks: AssertRewriter, replies: int, requests: int, shared: dict[str, type[Any]]) -> None:
        self.checks, self.shared = checks, shared
        self.replies, self.requests = os.fdopen(replies, "rb"), os.fdopen(requests, "wb")
        self.remotes: dict[int, RemoteObject] = {}
        self.functions: list[Callable[..., Any]] = []  # functions that the tests passed to the answer
        self.errors: dict[int, type[BaseException]] = {}  # number of an exception class of the answer → local copy
        self.lock = RLock()

    def ask(self, do: str, *values: Any, **keywords: Any) -> Any:
        """Send a request to the answer, apply the answer's changes to the arguments, and return or raise the result."""
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
            # This exception could end a loop of the tests early without an error, so that asserts in the loop would be
            # skipped.
            raise RuntimeError(f"the code raised {type(result).__name__}")
        raise result

    def call_back(self, message: Message) -> None:
        """Call a function that the tests passed to the answer, and reply with the result of the function."""
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
        """Read the answer's next message."""
        try:
            return read(self.replies)
        except EOFError:
            self.end()
        except Malformed as error:
            self.end(f"the code sent what is no plain data ({_one_line(error)})")

    def end(self, fault: str = "") -> NoReturn:
        """End this process without a result, because the answer's process has ended or sent invalid data."""
        self.checks.report(**({"fault": fault} if fault else {"answer_ended": True}))
        os._exit(0)

    def special_node(self, value: Any, packer: Packer) -> Node:
        """Return the node of a value that is not plain data. Raises TypeError if the value cannot be sent."""
        kind: type[Any] = type(value)
        if kind is RemoteObject:
            return ["theirs", _info(value).number]
        if isinstance(value, type):
            if numbers := [number for number, error in self.errors.items() if error is value]:
                return ["theirs", numbers[0]]
            if self.is_shared(value):
                return ["shared", value.__name__]
        if isinstance(value, BaseException):
            base = next(each for each in kind.__mro__ if each.__module__ != MODULE)
            return ["error", *map(packer.ref, (base, *value.args))]
        if self.is_shared(kind):
            return packer.shared_node(value)
        if callable(value):
            return _imported(value) or ["function", self.number(value)]
        if hasattr(kind, "__next__"):
            return ["iterator", self.number(lambda: tuple(itertools.islice(value, 1)))]
        self.checks.report(untestable=kind.__name__)
        raise TypeError(f"an argument of type {kind.__name__} cannot reach the answer: define its class in meta.prompt")

    def is_shared(self, kind: type[Any]) -> bool:
        """Return whether the prompt defines this class, so that the process of the answer has the class too."""
        return self.shared.get(kind.__name__) is kind

    def number(self, function: Callable[..., Any]) -> int:
        """Store a function, and return the number by which the answer calls the function."""
        self.functions.append(function)
        return len(self.functions) - 1

    def shell(self, name: str) -> Any:
        """Return an object without attributes, of a class that the prompt defines."""
        return object.__new__(self.shared[name])

    def special_value(self, node: Node, unpacker: Unpacker) -> Any:
        """Return the value of a node that is not plain data. This function never runs code of the answer."""
        match node:
            case ["object", int(number), str(name), bool(is_class), str(base), bool(is_iterator)]:
                return self.remote(ObjectInfo(number, name, is_class, base, is_iterator))
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

    def remote(self, info: ObjectInfo) -> RemoteObject:
        """Return the RemoteObject for an object of the answer. For the same object, always return the same
        RemoteObject."""
        if info.number not in self.remotes:
            remote = self.remotes[info.number] = RemoteObject()
            object.__setattr__(remote, "practicum_remote", info)
        return self.remotes[info.number]

    async def wait(self, number: int) -> Any:
        """Return the result of a coroutine of the answer."""
        return self.ask("await", self.remote(ObjectInfo(number, "coroutine", False, "", False)))

    def error_class(self, kinds: list[Any]) -> type[BaseException]:
        """Return an exception class, given the number and name of the class and of each of its base classes, the most
        derived first, as a flat list. A class that Python or the prompt defines is looked up by name. For any other
        class, a local copy is created."""
        latest: type[BaseException] = BaseException
        for number, name in reversed([*zip(kinds[::2], kinds[1::2], strict=True)]):
            same = self.shared.get(name) or getattr(builtins, name, None)
            if isinstance(same, type) and issubclass(same, BaseException):
                latest = same
            else:
                copy = self.errors.get(number) or type(str(name), (latest,), {"__str__": _text, "__module__": "answer"})
                latest = self.errors[number] = copy
        return latest


def _error(kind: type[BaseException], text: str, args: list[Any], held: list[Any]) -> BaseException:
    """Return a copy of an exception that the answer raised, with its text and its attributes."""
    try:
        error = kind(*args)
    except Exception:  # the class cannot be called with `args`
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
    """Return the node of a function or class of the standard library, which the answer's process has too. None for
    other values."""
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
    """Return two sets of names that tests use but do not define: names of the answer or of the prompt (always with the
    entry point), and names of modules of the standard library. Names of builtins are left out, except the entry
    point."""
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
    global CONNECTION
    tests, entry_point = job["tests"], job["entry_point"]
    # Dataclasses look up their module by name.
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    names = module.__dict__
    prompt = next(filter(parses, (job["prompt"], job["prompt"] + "\n    pass\n")), "")
    exec(compiled(prompt, "prompt.py"), names)
    names.pop(entry_point or "", None)
    shared = {name: kind for name, kind in names.items() if isinstance(kind, type) and kind.__module__ == MODULE}
    CONNECTION = AnswerConnection(checks, int(sys.argv[1]), int(sys.argv[2]), shared)
    needed, modules = names_used(tests, entry_point)
    names.update({name: importlib.import_module(name) for name in modules - names.keys()})
    values = CONNECTION.ask("names", sorted(needed - names.keys()), sorted(shared))
    names.update({name: _named(name, values[name]) for name in values})
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
    sys.stdout = sys.stderr  # keeps the prints of the tests out of the report
    run(json.loads(sys.stdin.read()), CHECKS)
