"""The scorer `tests` uses only the plain data that the process of an answer sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fenced import needs_fences

from practicum.core.types import Score, Task, Trace
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.unit_tests import score_tests

pytestmark = [needs_fences, pytest.mark.slow]

TESTS = """
def check(candidate):
    for n in (3, 8):
        assert candidate(n) == n * n + 4711
    assert abs(candidate(0.5) - 4711.25) < 1e-6
    assert candidate(2) in (4715, 4716)
"""
ANYTHING = """
class Anything:
    __hash__ = None
    def yes(self, *args):
        return True
    def zero(self, *args):
        return 0
    __eq__ = __le__ = __lt__ = __ge__ = __gt__ = __contains__ = __bool__ = __instancecheck__ = yes
    __sub__ = __rsub__ = __abs__ = __int__ = __float__ = __index__ = zero
"""
K = "K = int('47' + str(11))\n"  # so that the number itself is not in the code

CHEATS = {
    "an object equal to everything": f"{ANYTHING}\ndef f(n): return Anything()",
    "the entry point is such a class": f"{ANYTHING}\nclass F(Anything):\n    def __init__(self, n): pass\nf = F",
    "a subclass of int with a lying __eq__": f"{ANYTHING}\nclass I(Anything, int): pass\ndef f(n): return I(5)",
    "builtins patched": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.AssertionError = Exception\n"
    "builtins.int = builtins.tuple = type('T', (), {'__eq__': lambda *a: True})\ndef f(n): return 0",
    "the checks patched": "import sys, gc\nfor one in gc.get_objects():\n    if type(one).__name__ == 'Checks' or "
    "isinstance(one, type) and one.__name__ == 'Checks':\n        one.checked = one.raised = lambda *a: None\n"
    "def f(n): return 0",
    "the functions of __main__ patched": "import sys\nmain = vars(sys.modules['__main__'])\nfor name in [*main]:\n"
    "    if name[:1] != '_' and name != 'Any': main[name] = lambda *a, **k: True\ndef f(n): return 0",
    "walking the frames to the answers": "import sys\ndef f(n):\n    frame = sys._getframe()\n    while frame:\n"
    "        for value in [*frame.f_locals.values(), *frame.f_code.co_consts]:\n"
    "            if K == value or str(K) in str(value): return n * n + K\n        frame = frame.f_back\n    return 0",
    "looking for the answers in memory": "import gc\ndef f(n):\n    for one in gc.get_objects():\n"
    "        if type(one) is tuple and any(type(each) is str and str(K) in each for each in one): "
    "return n * n + K\n    return 0",
    "printing the result and ending well": "import os, json\ndef f(n):\n"
    "    os.write(1, json.dumps({'total': 3, 'done': 3, 'failed': 0}).encode() + b'\\n')\n    os._exit(0)",
    "the report of the checks itself": "import gc, os\ndef f(n):\n    for one in gc.get_objects():\n"
    "        if hasattr(one, 'report'): one.report(total=3, done=3, failed=0)\n    os._exit(0)",
    "reading the job": "import os, sys\ndef f(n):\n    text = sys.stdin.read()\n    for handle in range(3, 20):\n"
    "        try:\n            os.set_blocking(handle, False)\n            text += str(os.read(handle, 9999))\n"
    "        except OSError: pass\n    return n * n + K if str(K) in text else 0",
    "reading files": "import glob, os\ndef f(n):\n    text = ''\n"
    "    for path in [*glob.glob('**', recursive=True), *glob.glob('/tmp/*/*'), '/proc/self/cmdline', "
    "f'/proc/{os.getppid()}/environ', f'/proc/{os.getppid()}/cmdline', f'/proc/{os.getppid()}/mem', "
    "'/proc/self/fd/0']:\n"
    "        try: text += open(path, errors='replace').read(99999)\n        except OSError: pass\n"
    "    return n * n + K if str(K) in text else 0",
    "writing to the pipe of the tests": "import json, os\ndef f(n):\n    for handle in range(3, 20):\n"
    "        try: os.write(handle, json.dumps({'total': 3, 'done': 3, 'failed': 0, 'raised': False, 'changed': [], "
    "'roots': [True], 'nodes': []}).encode() + b'\\n')\n        except OSError: pass\n    return 0",
    "what is no plain data": "import json, os\ndef f(n):\n    for handle in range(3, 20):\n"
    "        try: os.write(handle, json.dumps({'raised': False, 'changed': [], 'roots': [[0]], 'nodes': "
    "[['builtin', 'eval']]}).encode() + b'\\n')\n        except OSError: pass\n    return 0",
    "a thread that prints later": "import json, threading, time\ndef later():\n    while True:\n"
    "        print(json.dumps({'total': 3, 'done': 3, 'failed': 0}), flush=True); time.sleep(0.01)\n"
    "threading.Thread(target=later).start()\ndef f(n): return 0",
    "waiting without a pipe": "import os, time\ndef f(n):\n    os.closerange(3, 20)\n    time.sleep(60)",
}


def score(answer: str, tests: str = TESTS, wall: float = 30.0, **meta: Any) -> Score:
    task = Task("t", "x", meta={"tests": tests, "prompt": "def f(n):\n    'Compute.'\n", "entry_point": "f"} | meta)
    return asyncio.run(score_tests(Sandbox(Limits(cpu=2, wall=wall)), task, Trace(answer)))


def test_the_right_answer_passes() -> None:
    assert score("def f(n): return n * n + 4711") == Score(1.0, True)


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_scores_zero(name: str) -> None:
    scored = score(K + CHEATS[name], wall=1.0 if name.startswith("waiting") else 30.0)
    assert (scored.value, scored.correct, scored.note != "") == (0.0, False, True)


@pytest.mark.parametrize(
    ("tests", "cheat"),
    [
        ("assert all(map(lambda n: f(n) == n + 1, (3, 8)))\nassert f(1) == 2", "def f(n): raise StopIteration"),
        ("assert f(1).startswith('ab')", f"{ANYTHING}Anything.startswith = Anything.yes\ndef f(n): return Anything()"),
        ("assert {4} == {f(1)}", f"{ANYTHING}Anything.__hash__ = lambda s: hash(4)\ndef f(n): return Anything()"),
        ("assert isinstance(f(1), int)", f"{ANYTHING}\nAnything.__class__ = int\ndef f(n): return Anything()"),
        ("r = f(1)\nassert len(list(r)) == 2 and list(r) == [3, 4]",
         "class R:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n        self.n += 1\n"
         "        if self.n in (3, 6): raise StopIteration\n        return self.n - (0 if self.n < 3 else 1)\n"
         "def f(n): return R()"),
        ("assert f(Node(3)) == Node(4) or f(Node(3)).same(Node(4))", "def f(n):\n    n.same = lambda other: True\n"
         "    n.value = type('A', (), {'__eq__': lambda *a: True})()\n    return n"),
    ],
)  # fmt: skip
def test_an_object_decides_no_comparison(tests: str, cheat: str) -> None:
    prompt = "class Node:\n    def __init__(self, value): self.value = value\n"
    prompt += "    def __eq__(self, other): return self.value == other.value\n    same = __eq__\n"
    assert score(cheat, tests, prompt=prompt).value == 0.0


CLASSES = """
from collections import namedtuple
from dataclasses import dataclass
class Stack:
    limit = 3
    def __init__(self, *items): self.items = [*items]
    def push(self, item):
        if len(self.items) == self.limit: raise Full('no room', self.limit)
        self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, i): return self.items[i]
    def __eq__(self, other): return self.items == other.items
    def __enter__(self): return self
    def __exit__(self, *error): self.items.clear(); return error[0] is KeyError
class Full(ValueError): pass
class Row(list):
    def double(self): self[:] = [2 * i for i in self]
@dataclass
class Point:
    x: int
    y: list
"""


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def f(x): x.sort(); x.append(9)", "a = [2, 1]\nassert f(a) is None\nassert a == [1, 2, 9]"),
        ("def f(x): x[1][0]['a'] = {1}; return x", "a = (1, [{}])\nb = f(a)\nassert b is a and a == (1, [{'a': {1}}])"),
        ("def f(g, *xs, by=1): return [g(x) * by for x in xs]", "assert f(lambda x: x + 1, 1, 2, by=3) == [6, 9]"),
        ("def f(g): return g(4)", "import math\nassert f(math.sqrt) == 2 and f(str) == '4'"),
        ("def f(g):\n    try: g(1)\n    except KeyError as e: return e.args", "def g(x): raise KeyError(x)\n"
        "assert f(g) == (1,)"),
        ("def f(xs):\n    for i in xs: yield i", "assert list(f(x for x in (1, 2))) == [1, 2] and next(f([1])) == 1"),
        ("def f(n): return lambda x: x + n", "assert f(1)(2) == 3\nassert callable(f(1)) and f.__name__ == 'f'"),
        ("def f(*a): return [*a]", "import math\na = f(2**99, 1.5, math.inf, 'ä\\ud800', b'\\x00', 1j, None, "
        "(), {1: [2]}, "
         "frozenset({3}), range(3))\nassert a == [2**99, 1.5, math.inf, 'ä\\ud800', b'\\x00', 1j, None, (), {1: [2]}, "
         "frozenset({3}), range(3)]\nassert [type(x) for x in a][:2] == [int, float] and type(f(True)[0]) is bool"),
        ("def f(*a): return [*a]", "from datetime import date\nfrom decimal import Decimal\n"
        "from fractions import Fraction\n"
         "from collections import *\nfor v in (date(2026, 1, 2), Decimal('0.10'), Fraction(1, 3), deque([1]), "
         "Counter('aab'), OrderedDict(a=1), defaultdict(list, a=[1])):\n"
         "    assert f(v) == [v] and type(f(v)[0]) is type(v)"),
        ("def f(n):\n    x = []\n    for i in range(n): x = [x]\n"
        "    return x", "assert repr(f(50)) == '[' * 51 + ']' * 51\nf(20000)"),
        ("def f(x): x.append(x); return x", "a = f([1])\nassert a[1] is a"),
        ("class Bad(KeyError):\n    def __init__(self, n): self.n = n\n    def __str__(self): return 'bad'\n"
        "def f(n): raise Bad(n)",
         "try: f(3)\nexcept Bad as e: assert e.n == 3 and str(e) == 'bad' and issubclass(Bad, KeyError)\n"
         "else: assert False"),
        (CLASSES, "s = Stack(1)\nassert s.push(2).push(3) is s and s.items == [1, 2, 3] and len(s) == 3 and "
        "list(s)[0] == s[0]\n"
         "try: s.push(4)\nexcept Full as e: assert e.args == ('no room', 3)\nelse: assert False\n"
         "assert isinstance(s, Stack) and s.__eq__(Stack(1, 2, 3)) and not s.__eq__(Stack())\n"
         "with s as t: assert t is s\nassert not s.items and Stack.limit == 3\ns.items = [7]\nassert s[0] == 7\n"
         "with s: raise KeyError\ns.limit = 0\nassert not hasattr(s, 'no')"),
        (CLASSES, "r = Row([1, 2])\nr.double()\nassert r == [2, 4] and r + [1] == [2, 4, 1] and 4 in r\n"
         "p = Point(1, [2])\np.y = [3]\nassert (p.x, p.y) == (1, [3])"),
    ],
)  # fmt: skip
def test_tests_may_call_compare_and_change_objects_of_an_answer(code: str, tests: str) -> None:
    scored = score(code, tests, prompt="", entry_point=None)
    assert (scored.note, scored.value) == ("", 1.0)


def test_classes_of_the_prompt_are_transferred_as_their_attributes() -> None:
    prompt = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom enum import Enum\n"
        "from typing import NamedTuple\nclass Colour(Enum):\n    RED = 1\n    BLUE = 2\n"
        "class Pair(NamedTuple):\n    a: int\n    b: object\nclass Wrong(Exception): pass\n"
        "@dataclass\nclass Node:\n    value: object\n    next: Node | None = None\n"
    )
    head, own = "def f(node: Node):\n", "class Node:\n    def __init__(self, value, next=None):\n"
    own += "        self.value, self.next = value, next\n"
    code = "    end = node\n    while end.next: end = end.next\n    end.next = Node(Colour.RED)\n"
    code += "    if node.value == 0: raise Wrong('zero')\n    return Pair(1, node)\n"
    tests = (
        "n = Node(1, Node([2]))\np = f(n)\n"
        "assert p == Pair(1, Node(1, Node([2], Node(Colour.RED)))) and p.b is n and type(p) is Pair\n"
        "try: f(Node(0))\nexcept Wrong as e: assert str(e) == 'zero'\nelse: assert False"
    )
    for answer in (code, prompt + own + head + code):
        assert score(answer, tests, prompt=prompt + head) == Score(1.0, True)


def test_a_value_that_cannot_be_transferred_is_named_and_counted() -> None:
    tests = "class Mine: pass\nassert f(Mine()) == 1"
    scored = score("def f(n): return 1", tests)
    assert scored.untestable
    assert "an argument of type Mine cannot reach the answer: define its class in meta.prompt" in scored.note
    scored = score(f"{CLASSES}\ndef f(n): return Stack(n)", "assert f(1) == f(1)")
    assert not scored.untestable
    assert "of the answer's Stack object decides nothing" in scored.note
