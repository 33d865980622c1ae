"""How good an answer is: rules that compare it with the target, and functions of the user.

A scorer is called with a task and a trace and gives a Score, now or when awaited. Rules are pure. An attempt
that failed before there was an answer scores zero whatever the scorer. Scorers are for reports; what learning
may see of them is decided elsewhere.
"""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, SupportsFloat

from practicum.core.errors import AgentError, TaskFileError, UsageError
from practicum.core.importing import import_function
from practicum.core.types import Score, Task, Trace

RULES = ("exact", "numeric", "choice", "contains", "regex", "list")
"""Scorers that compare an answer with its target."""

JUDGED = ("judge", "commongen")
"""Scorers that ask a judge."""

SCORERS = (*RULES, "tests", "coverage", "software", "appworld", *JUDGED)
"""Names of scorers. Those that need more of a run than the answer are made where that is: `software`, and JUDGED."""

PASS_MARK = 0.5
"""From which value a plain number of a user's function counts as correct; a Score says so itself."""


class Scorer(Protocol):
    """Anything that scores; `needs_target` says whether a task without target can be scored at all."""

    @property
    def name(self) -> str: ...

    @property
    def needs_target(self) -> bool: ...

    def __call__(self, task: Task, trace: Trace) -> Score | Awaitable[Score]: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure scorer: `compare` takes target and answer."""

    name: str
    compare: Callable[[str, str], Score]
    needs_target: bool = True

    def __call__(self, task: Task, trace: Trace) -> Score:
        """The score of the trace's answer; TaskFileError where the task's target cannot be used."""
        if trace.error is not None:
            return _failed(trace.error)
        if task.target is None:
            raise TaskFileError(f"task {task.id!r} has no target, which scorer {self.name!r} needs")
        if fault := target_fault(self.name, task.target):
            raise TaskFileError(f"target of task {task.id!r} {fault}, so scorer {self.name!r} cannot use it")
        return self.compare(task.target, trace.answer)


@dataclass(frozen=True, slots=True)
class Function:
    """A scorer of the user: `function(task, answer)`, sync or async, gives 0 to 1, a bool or a Score.

    One that has a parameter `trace` gets the whole trace too: its steps, and in `trace.data["state"]` what an agent
    with tools left behind. The note of a Score is what learning with labels is told.
    """

    name: str
    function: Callable[..., Any]
    needs_target: bool = False

    def __call__(self, task: Task, trace: Trace) -> Score | Awaitable[Score]:
        """The function's score; AgentError naming task and function where it raises or gives no score."""
        if trace.error is not None:
            return _failed(trace.error)
        try:
            more = {"trace": trace} if _takes_trace(self.function) else {}
            result = self.function(task, trace.answer, **more)
            return self._awaited(task, result) if inspect.isawaitable(result) else _as_score(result)
        except Exception as error:
            raise self._fault(task, error) from error

    async def _awaited(self, task: Task, result: Awaitable[object]) -> Score:
        try:
            return _as_score(await result)
        except Exception as error:
            raise self._fault(task, error) from error

    def _fault(self, task: Task, error: Exception) -> AgentError:
        return AgentError(f"scorer {self.name!r} failed on task {task.id!r}: {_line(error)}")


@dataclass(frozen=True, slots=True)
class OneChoice:
    """Right where the answer names the target and no other of the choices, as whole words.

    Case and what stands around do not count. A choice inside a longer one ("York" in "New York") is not named
    by it.
    """

    choices: tuple[str, ...]

    def __call__(self, target: str, answer: str) -> Score:
        text = normalised(answer)
        named = {text} & self._known() or set(self._pattern().findall(text))
        if len(named) != 1:
            return _mark(False, f"the answer names {len(named) or 'none'} of the choices")
        return _mark(named == {normalised(target)})

    def _known(self) -> set[str]:
        return {normalised(choice) for choice in self.choices}

    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._known(), key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")


def load_scorer(name: str, choices: tuple[str, ...] | None) -> Scorer:
    """The scorer called `name`, or the user's function where `name` is `module:function`.

    Raises UsageError for an unknown name, for `choice` without choices, for a function that cannot be loaded, and for
    `tests` where no generated code can be run.
    """
    if ":" in name:
        return Function(name, _imported(name))
    if name == "choice":
        if not choices or not all(map(normalised, choices)):
            raise UsageError("scorer 'choice' needs choices, none of them empty: --choices a,b,c or --choices auto")
        return Rule(name, OneChoice(choices))
    if name in JUDGED or name == "software":
        raise UsageError(f"scorer {name!r} needs models and is made together with them, not by its name alone")
    if name == "tests":
        return _tests()
    if name == "coverage":
        from practicum.tasks.scoring.coverage import Coverage

        return Coverage()
    if name == "appworld":
        from practicum.tasks.scoring.appworld import Evaluation

        return Evaluation()
    rules = {"exact": exact, "numeric": numeric, "contains": contains, "regex": regex, "list": listed}
    if name not in rules:
        raise UsageError(f"unknown scorer {name!r}; known are {', '.join(SCORERS)} and your own as module:function")
    return Rule(name, rules[name])


def target_fault(scorer_name: str, target: str) -> str | None:
    """Why this target is of no use to that scorer, to be read after "target of task X"; else None."""
    if scorer_name == "numeric" and last_number(target) is None:
        return f"({target[:40]!r}) holds no number"
    if scorer_name == "regex":
        return _pattern_fault(target)
    if scorer_name in ("choice", "contains", "list") and not normalised(target):
        return "is empty"
    return None


def meta_fault(scorer_name: str, meta: Mapping[str, Any]) -> str | None:
    """What a task's `meta` lacks for that scorer, to be read after "task X"; else None."""
    match scorer_name:
        case "tests":
            from practicum.tasks.scoring.unit_tests import tests_fault

            return tests_fault(meta)
        case "software":
            from practicum.tasks.scoring.software import software_fault

            return software_fault(meta)
        case "coverage" | "commongen":
            from practicum.tasks.scoring.coverage import concepts_fault

            return concepts_fault(meta, scorer_name)
        case _:
            return None


def exact(target: str, answer: str) -> Score:
    """Right where both are the same text, see `normalised`."""
    return _mark(normalised(target) == normalised(answer))


def contains(target: str, answer: str) -> Score:
    """Right where the target occurs anywhere in the answer, both normalised."""
    return _mark(normalised(target) in normalised(answer))


def regex(target: str, answer: str) -> Score:
    """Right where the target, a pattern of Python's `re`, is found in the answer as it stands."""
    return _mark(re.search(target, answer) is not None)


def listed(target: str, answer: str) -> Score:
    """The share of places at which two lists with commas are the same text, see `normalised`; right where all are.

    What one list has more than the other counts as different.
    """
    wanted, given = ([normalised(part) for part in text.split(",")] for text in (target, answer))
    same = sum(one == other for one, other in zip(wanted, given, strict=False))
    places = max(len(wanted), len(given))
    return Score(same / places, same == places, "" if same == places else f"{same} of {places} are right")


def numeric(target: str, answer: str) -> Score:
    """Right where the last numbers of both agree up to rounding to two decimals.

    They may differ by half a unit of the last place that both show (33.33 for 33.3333, but not 0.004 for
    0.001), by 0.005 at most, since 18.4 is no way to write 18; and by a billionth of their size, the noise of
    floating point.
    """
    wanted, given = last_number(target), last_number(answer)
    if wanted is None or given is None:
        return _mark(False, "the answer holds no number")
    return _mark(abs(wanted - given) <= _tolerance(wanted, given))


def normalised(text: str) -> str:
    """Text for comparing: case, runs of white space, closing full stops and quotes around it do not count."""
    text = " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold()).split())
    while (bare := _bared(text)) != text:
        text = bare
    return text


def last_number(text: str) -> Decimal | None:
    """The last number in a text, or after its last "####" (so GSM8K marks answers); None if none.

    Reads 1,234.5, $5, -$5, 8.5x, 12% (as 12), 1e9 and 1.5 x 10^9. A number in round brackets is negative, as
    accountants write it, where nothing but a label comes before: "(200)", "Loss: ($200)", but not
    "seven (7)".
    """
    found = list(_NUMBER.finditer(text.rpartition("####")[2]))
    if not found:
        return None
    match = found[-1]
    value = Decimal(match["digits"].replace(",", "")).scaleb(int(match["exponent"] or match["power"] or 0))
    minus = match["sign"] or match["sign_inside"] or ""
    return -value if minus not in ("", "+") or _bracketed(match) else value


_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u2018": "\u2019",
    "\u201e": "\u201c",
    "\u00ab": "\u00bb",
}
"""Opening to closing: straight, curly, German, French."""

# The sign must not follow a word: "5-10" is a range. The digits must not: the "3" of "Q3" is part of a name.
_NUMBER = re.compile(
    r"""
    (?P<open> (?<!\w) \( \s? )?
    (?P<sign> (?<![\w)\]%]) [-+\u2212\u2013] )?
    (?: [$€£] \s? (?P<sign_inside> [-\u2212\u2013] )? )?
    (?<! [^\W_] )
    (?P<digits> (?: [0-9]{1,3} (?: ,[0-9]{3} )+ (?![0-9]) | [0-9]+ ) (?: \.[0-9]+ )? | \.[0-9]+ )
    (?: [eE] (?P<exponent> [+-]? [0-9]{1,3} ) (?![0-9])
      | \s? (?: [x\u00d7*] | \\times ) \s? 10 (?: \^ | \*\* ) \{? (?P<power> [+-]? [0-9]{1,3} ) (?![0-9]) \}?
    )?
    (?P<close> \s? [%x]? \s? \) )?
    """,
    re.VERBOSE,
)


def _bracketed(match: re.Match[str]) -> bool:
    before = match.string[: match.start()].rstrip(" \t\n*_")
    return bool(match["open"] and match["close"]) and (not before or before[-1] in ":=")


def _tolerance(a: Decimal, b: Decimal) -> Decimal:
    shown = max(_last_place(a), _last_place(b)) / 2
    return max(min(shown, Decimal("0.005")), max(abs(a), abs(b)) * Decimal("1e-9"))


def _last_place(number: Decimal) -> Decimal:
    return Decimal(1).scaleb(int(number.as_tuple().exponent))


def _bared(text: str) -> str:
    text = text.removesuffix(".").rstrip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def _pattern_fault(pattern: str) -> str | None:
    if not pattern:
        return "is empty"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a pattern of Python's re ({_line(error)})"
    return None


def _tests() -> Scorer:
    from practicum.tasks.scoring.unit_tests import UnitTests

    tests = UnitTests()
    tests.sandbox.require()
    return tests


def _mark(correct: bool, note: str = "") -> Score:
    return Score(float(correct), correct, note)


def _failed(error: str) -> Score:
    return Score(0.0, False, error)


def _as_score(result: object) -> Score:
    if isinstance(result, Score):
        score = result
    elif isinstance(result, SupportsFloat):  # also the bool and floats of numpy
        score = Score(float(result), float(result) >= PASS_MARK)
    else:
        raise TypeError(f"it gave {type(result).__name__}, not a number, a bool or a Score")
    if not 0.0 <= score.value <= 1.0:
        raise ValueError(f"it gave {score.value}, which is not between 0 and 1")
    return score


def _takes_trace(function: Callable[..., object]) -> bool:
    """Whether a user's function has a parameter `trace`."""
    try:
        return "trace" in inspect.signature(function).parameters
    except ValueError:  # some builtins show no signature
        return False


def _imported(name: str) -> Callable[..., Any]:
    function = import_function(name)
    if not _takes_two(function):
        raise UsageError(f"scorer {name!r}: the function must take two arguments, (task, answer), or a third, trace")
    return function


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        more = {"trace": None} if _takes_trace(function) else {}
        inspect.signature(function).bind(None, None, **more)
    except TypeError:
        return False
    except ValueError:  # some builtins show no signature; the call will tell
        return True
    return True


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
