"""Script that runs the code of an answer in the sandbox: it loads the code and executes the calls of the tests.

The tests run in another process (`judge_tests.py`); this process receives only the arguments of the tests' calls. The
tests must not trust the replies, because the answer can do anything in this process. So replies hold only plain data.
Standard input is the job as JSON: the prompt, the code and the name of the entry point. The arguments are the file
descriptors of the pipes from and to the tests.
"""

from __future__ import annotations

import builtins
import enum
import importlib
import itertools
import json
import operator
import os
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from practicum.tasks.sandbox.plain import (
    Message,
    Node,
    Packer,
    Unpacker,
    changed,
    compiled,
    parses,
    read,
    snapshot,
    write,
)

# Plain type → function that converts an object of this type or of a derived class to plain data.
DERIVED: dict[type[Any], Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes,
    tuple: tuple,
    list: list,
    dict: dict,
    set: set,
    frozenset: frozenset,
    type({}.keys()): list,
    type({}.values()): list,
    type({}.items()): list,
}


class LoadedAnswer:
    """Loaded answer, with the connection to its tests."""

    def __init__(self, requests: int, replies: int) -> None:
        self.requests, self.replies = os.fdopen(requests, "rb"), os.fdopen(replies, "wb")
        self.names: dict[str, Any] = {}
        self.shared: set[str] = set()  # names of classes that the prompt defines; the tests have these classes too
        self.objects: list[Any] = []  # objects that the tests refer to by index
        self.numbers: dict[int, int] = {}
        self.callbacks: dict[int, int] = {}  # id of a wrapper → number of the tests' function that the wrapper calls
        self.lock = threading.RLock()  # the answer may call functions of the tests from several threads
        self.operations: dict[str, Callable[..., Any]] = {
            **{one.__name__: one for one in (getattr, setattr, delattr, len, iter, next, str, repr, bool, isinstance)},
            **{one.__name__: one for one in (operator.call, operator.getitem, operator.setitem, operator.delitem)},
            "make": self.make,
            "names": self.find_names,
            "content": lambda value: _content(value)[1],
            "await": _await,
            "enter": lambda value: value.__enter__(),
            "exit": lambda value, error: value.__exit__(type(error) if error else None, error, None),
        }

    def serve(self) -> None:
        """Execute the requests of the tests until the tests end."""
        with suppress(EOFError, BrokenPipeError):
            while True:
                self.do(read(self.requests))

    def do(self, message: Message) -> None:
        """Execute one request of the tests. Reply with the result and with the changes to the arguments."""
        unpacker = Unpacker(self.special_value, self.shell)
        values = unpacker.unpack(message)
        before, names = snapshot(unpacker), message["keys"]
        split = len(values) - len(names)
        try:
            keywords = dict(zip(names, values[split:], strict=True))
            result, raised = self.operations[message["do"]](*values[:split], **keywords), False
        except BaseException as error:  # also SystemExit, which is passed on to the tests
            result, raised = error, True
        now = changed(unpacker, before)
        packer = Packer(self.special_node, {id(value): number for number, value in unpacker.values.items()})
        reply = packer.pack([result, *itertools.chain.from_iterable(now.values())])
        sizes = [(number, len(held)) for number, held in now.items()]
        write(self.replies, {"raised": raised, "changed": sizes, **reply})

    def make(self, kind: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Create an object by calling a class. The object stays in this process, and the tests refer to the object by
        number, even if the class is derived from a plain type such as `list`."""
        instance = kind(*args, **keywords)
        if type(instance).__module__ != "builtins":
            self.number(instance)
        return instance

    def find_names(self, names: list[str], shared: list[str]) -> dict[str, Any]:
        """Return name → value for each of `names` that the answer defines. `shared`: names of the classes that the
        prompt defines."""
        self.shared = set(shared)
        return {name: self.names[name] for name in names if name in self.names}

    def number(self, value: Any) -> int:
        """Return the number by which the tests refer to an object."""
        number = self.numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return number

    def special_node(self, value: Any, packer: Packer) -> Node:
        """Return the node of a value that is not plain data: an exception, an object of a class of the prompt, or the
        number of an object."""
        kind = type(value)
        if id(value) in self.callbacks:
            return ["yours", self.callbacks[id(value)]]
        if isinstance(value, type):
            if vars(builtins).get(name := value.__name__) is value:
                return ["builtin", name]
            if self.is_shared(value):
                return ["shared", name]
            if issubclass(value, BaseException):
                kinds = ((self.number(each), each.__name__) for each in value.__mro__ if each is not object)
                return ["errors", *itertools.chain.from_iterable(kinds)]
        if id(value) not in self.numbers:
            if isinstance(value, BaseException):
                held = [kind, str(value), len(value.args), *value.args, *itertools.chain(*vars(value).items())]
                return ["error", *map(packer.ref, held)]
            if self.is_shared(kind):
                return packer.shared_node(value)
            if kind is types.CoroutineType:
                return ["coroutine", self.number(value)]
            base, content = _content(value)
            if base:
                return packer.node(content)
        is_class = isinstance(value, type)
        name = value.__name__ if is_class else kind.__name__
        is_iterator = hasattr(kind, "__next__")
        return ["object", self.number(value), name, is_class, _content(value)[0], is_iterator]

    def is_shared(self, kind: type[Any]) -> bool:
        """Return whether the prompt defines this class, so that the process of the tests has the class too."""
        name = kind.__name__
        return name in self.shared and self.names.get(name) is kind

    def shell(self, name: str) -> Any:
        """Return an object without attributes, of a class that the prompt defines."""
        kind = self.names[name]
        return kind.__new__(kind)

    def special_value(self, node: Node, unpacker: Unpacker) -> Any:
        """Return the value of a node that is not plain data."""
        match node:
            case ["theirs", number]:
                return self.objects[number]
            case ["import", module, path]:
                return operator.attrgetter(path)(importlib.import_module(module))
            case ["shared", name]:
                return self.names[name]
            case ["member", name, member]:
                return self.names[name][member]
            case ["named", name, *items]:
                return tuple.__new__(self.names[name], map(unpacker.value, items))
            case ["error", kind, *args]:
                return unpacker.value(kind)(*map(unpacker.value, args))
            case ["function", number]:
                return self.callback(number)
            case ["iterator", number]:
                return itertools.chain.from_iterable(iter(self.callback(number), ()))
        raise ValueError(f"no {node[0]}")

    def callback(self, number: int) -> Callable[..., Any]:
        """Return a function that calls a function in the process of the tests."""

        def call(*args: Any, **keywords: Any) -> Any:
            with self.lock:
                packed = Packer(self.special_node).pack([*args, *keywords.values()])
                write(self.replies, {"call": number, "keys": list(keywords), **packed})
                while "do" in (message := read(self.requests)):  # the called function may call the answer again
                    self.do(message)
            (result,) = Unpacker(self.special_value, self.shell).unpack(message)
            if message["raised"]:
                raise result
            return result

        self.callbacks[id(call)] = number
        self.objects.append(call)  # keeps the wrapper alive, so that its id is not reused
        return call


def _content(value: Any) -> tuple[str, Any]:
    """Return the name of the plain type that an object is an instance of, and the object's data as a value of this
    type. Return ("", None) if the object is not an instance of a plain type."""
    if isinstance(value, enum.Enum) and not isinstance(value, (int, str)):
        return "", None
    kind = next((kind for kind in DERIVED if isinstance(value, kind)), None)
    return (kind.__name__, DERIVED[kind](value)) if kind else ("", None)


def _await(value: Any) -> Any:
    import asyncio  # imported here, because the import takes longer than most answers

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def load(names: dict[str, Any], prompt: str, code: str, entry_point: str | None) -> None:
    """Run the code of an answer in the namespace `names`. Code that continues the prompt is joined to the prompt. Other
    code runs after the prompt, because this code may need the prompt's imports."""
    # `bare` is the code from the first line that looks like Python, without the prose before this line.
    lines, starts = code.split("\n"), ("def ", "async def ", "class ", "import ", "from ", "@")
    bare = "\n".join(lines[next((i for i, line in enumerate(lines) if line.startswith(starts)), 0) :])
    whole = next((text for text in (code, bare) if parses(text)), code)
    indented = "\n".join(f"    {line}" for line in lines)
    joined = next((text for text in (prompt + code, prompt + indented) if prompt and parses(text)), None)
    if joined is not None and not parses(whole):
        exec(compiled(joined, "answer.py"), names)
        return
    if prompt and parses(prompt):
        exec(compiled(prompt, "prompt.py"), names)
        names.pop(entry_point or "", None)
    exec(compiled(whole, "answer.py"), names)


def main() -> None:
    """Load the answer, then execute the requests of its tests."""
    job = json.loads(sys.stdin.read())
    answer = LoadedAnswer(int(sys.argv[1]), int(sys.argv[2]))
    # Dataclasses and pickle look up the module by its name.
    module = sys.modules["answer"] = types.ModuleType("answer")
    answer.names = module.__dict__
    load(answer.names, job["prompt"], job["code"], job["entry_point"])
    answer.serve()
    os._exit(0)  # immediately, without exit handlers of the answer


if __name__ == "__main__":
    main()
