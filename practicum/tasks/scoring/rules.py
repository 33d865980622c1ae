"""Rules that compare an answer with its target, such as `exact` and `numeric`. The rules are pure functions, except
`regex`, because its search has a time limit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

from practicum.core.types import Score
from practicum.core.words import error_line

MAX_PATTERN = 10_000
"""Maximum length of a pattern (characters), because compiling a long pattern takes long."""

SEARCH_SECONDS = 1.0
"""Timeout of a pattern search (s). Pattern and answer are untrusted, and a search may take forever."""

PASS_MARK = 0.5
"""Minimum score at which an answer counts as correct. It applies to scores that are plain numbers, without a flag for
correct."""


def target_fault(scorer_name: str, target: str) -> str | None:
    """Return why the scorer cannot use this target, phrased to follow "target of task X"; None if the scorer can
    use it."""
    match scorer_name:
        case "numeric" if last_number(target) is None:
            return f"({target[:40]!r}) holds no number"
        case "choice" | "contains" | "list" if not normalise(target):
            return "is empty"
        case "regex" if not target:
            return "is empty"
        case "regex" if len(target) > MAX_PATTERN:
            return f"is a pattern of {len(target):,} characters (maximum {MAX_PATTERN:,})"
        case "regex":
            try:
                re.compile(target)
            except (re.error, OverflowError, RecursionError) as error:
                return f"is not a valid pattern for Python's re ({error_line(error)})"
    return None


def exact(target: str, answer: str) -> Score:
    """Score 1 if both texts are equal after `normalise`, else 0."""
    return _verdict(normalise(target) == normalise(answer))


def contains(target: str, answer: str) -> Score:
    """Score 1 if the answer contains the target, both normalised, else 0."""
    return _verdict(normalise(target) in normalise(answer))


def regex(target: str, answer: str) -> Score:
    """Score 1 if the target, a pattern of Python's `re`, matches anywhere in the unchanged answer, else 0. A search
    that takes longer than `SEARCH_SECONDS` scores 0."""
    import regex as timed  # supports the patterns of `re`, and a timeout

    try:
        return _verdict(timed.search(target, answer, timeout=SEARCH_SECONDS) is not None)
    except TimeoutError:
        note = f"the pattern found no end within {SEARCH_SECONDS:g} s on this answer: write one that tries fewer ways"
        return replace(_verdict(False, note), untestable=True)
    except (timed.error, RecursionError) as error:
        return replace(_verdict(False, f"the pattern cannot be tried: {error_line(error)}"), untestable=True)


def list_items(target: str, answer: str) -> Score:
    """Score the share of positions at which two comma-separated lists have the same normalised text. The
    answer is correct if all positions agree. Positions that only one list has count as different."""
    expected, actual = ([normalise(item) for item in text.split(",")] for text in (target, answer))
    same = sum(a == b for a, b in zip(expected, actual, strict=False))
    length = max(len(expected), len(actual))
    return Score(same / length, same == length, "" if same == length else f"{same} of {length} are right")


def numeric(target: str, answer: str) -> Score:
    """Score 1 if the last number of the answer agrees with the last number of the target up to rounding to two
    decimals, else 0. The two numbers may differ by half a unit of the last decimal place that both have (33.33 for
    33.3333, but not 0.004 for 0.001), but by at most 0.005 (18.4 does not round to 18). A relative difference of 1e-9
    (floating-point noise) is always allowed."""
    expected, actual = last_number(target), last_number(answer)
    if expected is None or actual is None:
        return _verdict(False, "the answer holds no number")
    shown = max(Decimal(1).scaleb(int(number.as_tuple().exponent)) for number in (expected, actual)) / 2
    noise = max(abs(expected), abs(actual)) * Decimal("1e-9")
    return _verdict(abs(expected - actual) <= max(min(shown, Decimal("0.005")), noise))


def one_choice(choices: Sequence[str], target: str, answer: str) -> Score:
    """Score 1 if the target is the only choice that the answer names (see `named_choices`), else 0."""
    named = named_choices(choices, answer)
    if len(named) != 1:
        return _verdict(False, f"the answer names {len(named) or 'none'} of the choices")
    return _verdict(normalise(named[0]) == normalise(target))


def named_choices(choices: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the choices that a text names: the choice that equals the whole text, else each choice that the text
    contains as whole words.

    Case is ignored, except for a choice of one letter inside a longer text: the article "a" is not choice A. A choice
    inside a longer choice ("York" in "New York") does not count.
    """
    if text.strip() in choices:
        return (text.strip(),)
    whole, forms = normalise(text), _normalised(tuple(choices))
    if equal := tuple(choice for choice, form in forms.items() if form == whole):
        return equal[:1]
    # Search only choices that occur in the text: a search with a pattern of hundreds of choices is a hundred times
    # slower.
    within = tuple(choice for choice, form in forms.items() if form in whole)
    matches = {normalise(match) for match in _pattern_of(within).findall(_bare(text))}
    return tuple(choice for choice in within if forms[choice] in matches)


@lru_cache(maxsize=64)
def _normalised(choices: tuple[str, ...]) -> dict[str, str]:
    return {choice: normalise(choice) for choice in choices}


@lru_cache(maxsize=64)
def _pattern_of(choices: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that finds these choices in a text that `_bare` returned. Longer choices match first."""
    words = sorted(map(_bare, choices), key=len, reverse=True)
    forms = (re.escape(word) if len(word) == 1 else f"(?i:{re.escape(word)})" for word in words)
    return re.compile(rf"(?<!\w)(?:{'|'.join(forms)})(?!\w)")


RULES: dict[str, Callable[[str, str], Score]] = {
    "exact": exact,
    "numeric": numeric,
    "contains": contains,
    "regex": regex,
    "list": list_items,
}
"""Name of a scorer → rule of the scorer, for rules that need only target and answer. The scorer `choice` also needs the
choices, see `one_choice`."""


def normalise(text: str) -> str:
    """Normalise text for comparison: fold case, and remove repeated white space, final full stops and enclosing
    quotes."""
    return _bare(unicodedata.normalize("NFD", text).casefold())


def _bare(text: str) -> str:
    """Remove repeated white space, final full stops and enclosing quotes."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    start, end, before = 0, len(text), (-1, -1)
    while before != (start, end):  # each round moves positions, because copying a long text is slow
        before = start, end
        end -= text[end - 1 : end] == "." and end > start
        end -= text[end - 1 : end] == " " and end > start
        if end - start > 1 and _QUOTES.get(text[start]) == text[end - 1]:
            start, end = start + 1, end - 1
            start += text[start : start + 1] == " " and end > start
            end -= text[end - 1 : end] == " " and end > start
    return text[start:end]


def last_number(text: str) -> Decimal | None:
    """Return the last number in a text, or None. If the text has a "####" (GSM8K's mark of an answer), only the text
    after the last "####" is read. Reads 1,234.5, $5, -$5, 8.5x, 12% (as 12), 1e9 and 1.5 x 10^9. A number in round
    brackets is negative, as in accounting, if nothing or only a label precedes it: "(200)", "Loss: ($200)", but not
    "seven (7)"."""
    matches = list(_NUMBER.finditer(text.rpartition("####")[2]))
    if not matches:
        return None
    match = matches[-1]
    value = Decimal(match["digits"].replace(",", "")).scaleb(int(match["exponent"] or match["power"] or 0))
    sign = match["sign"] or match["sign_inside"] or ""
    before = match.string[: match.start()].rstrip(" \t\n*_")
    bracketed = match["open"] and match["close"] and (not before or before[-1] in ":=")
    return -value if bracketed or sign not in ("", "+") else value


_QUOTES = dict(zip("\"'`\u201c\u2018\u201e\u00ab", "\"'`\u201d\u2019\u201c\u00bb", strict=True))
"""Opening quote → closing quote: straight, curly, German, French."""

# A dash after a word is not a sign: "5-10" is a range. Digits after a letter are not a number: "Q3" is a name.
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


def _verdict(correct: bool, note: str = "") -> Score:
    return Score(float(correct), correct, note)
