"""Evidence in a session about the agent's work on a request: what the user wrote next, tests that ran, work that was
taken back, and an interruption.

The rules read words, not meaning: frequent words of ten languages (replies.toml), and commands of common test
programs. In a run with a judge, the judge reads the user's messages instead (`practicum.engine.sessions`), and decides
a request without evidence.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Literal

from practicum.core.types import Evidence
from practicum.core.words import one_line
from practicum.tasks.traces.fields import decoded, text_at
from practicum.tasks.traces.trace import Item

Signal = Literal["objection", "approval", "interruption", "tests passed", "tests failed", "taken back"]

SUCCESS: dict[Signal, bool] = {
    "objection": False, "interruption": False, "tests failed": False, "taken back": False, "approval": True,
    "tests passed": True,
}  # fmt: skip
"""Signal → whether the work was right. An error of a program or provider is not a signal."""


def followup(request: Sequence[Item], text: str) -> bool:
    """Return whether a message of the user belongs to the request before it: the agent is still at work or was stopped;
    or the message answers the agent's question, objects to the work, approves it, or asks the agent to continue.
    `request`: items from the request to the message."""
    last = next((item for item in reversed(request) if item.kind not in ("system", "thought")), request[-1])
    short = _length(text) <= FEW_WORDS and not text.startswith("/")
    if last.kind not in ("message", "error") or short or _matches("answer", text):
        return True
    if last.kind == "error" and any(item.kind == "user" and item.text == text for item in request):
        return True
    if _asks(last) and (_length(text) <= SHORT_ANSWER or _matches("choice", text) or _answers(request, text)):
        return True
    return _matches("go_ahead", text, whole=True) or _objects(request, text) or _only_approves(text)


def evidence(request: Sequence[Item], later: Sequence[Item]) -> tuple[Evidence, ...]:
    """Return the evidence about a request, each signal at most once. `later`: the items of the next request."""
    signs = [*_replies(request), *_tests(request)]
    if later and _approves(later[0].text):
        signs.append(_sign("approval", f"the user continued: {_quoted(later[0].text)}"))
    if undone := _taken_back(request, later):
        signs.append(_sign("taken back", undone))
    return once_each(signs)


def once_each(signs: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the first sign of each signal, in the order of `SUCCESS`."""
    by_signal = {sign.signal: sign for sign in reversed(signs)}
    return tuple(by_signal[signal] for signal in SUCCESS if signal in by_signal)


def objection(text: str) -> Evidence:
    """Return the evidence of a message in which the user objects to the work."""
    return _sign("objection", f"the user objected: {_quoted(text)}")


def approval(text: str) -> Evidence:
    """Return the evidence of a message in which the user approves the work."""
    return _sign("approval", f"the user approved: {_quoted(text)}")


FEW_WORDS = 2
"""Maximum number of words of a message that never begins a request, such as the letter of a choice, unless the message
is a slash command."""

SHORT_ANSWER = 12
"""Maximum number of words of a message that counts as an answer to a question which the agent asks after its work."""

LONG_MESSAGE = 60
"""Number of words above which a message is not an answer, and only its beginning can be an objection."""

END = 600
"""Number of characters at the end of a message in which a question counts."""


def _replies(request: Sequence[Item]) -> Iterator[Evidence]:
    """Yield the evidence in the user's messages after the request itself, and in interruptions."""
    for n, (item, then) in enumerate(pairwise([*request, Item("", "")])):
        if item.kind == "interruption":
            acted = any(one.kind == "action" for one in _turn(request[:n]))
            if acted and not (then.kind == "user" and _matches("go_ahead", then.text, whole=True)):
                yield _sign("interruption", "the user stopped the agent")
        elif n and item.kind == "user" and _objects(request[:n], item.text):
            yield objection(item.text)
        elif n and item.kind == "user" and _only_approves(item.text):
            yield approval(item.text)


def _sign(signal: Signal, text: str) -> Evidence:
    return Evidence(signal, SUCCESS[signal], text)


def _answers(request: Sequence[Item], text: str) -> bool:
    """Return whether a message answers a question that the agent asks before its work."""
    return not _edited(_turn(request)) and _length(text) <= LONG_MESSAGE and not re.search("[?？؟]", text)


def _turn(request: Sequence[Item]) -> Sequence[Item]:
    """Return the items since the user's last message."""
    begin = max((n for n, item in enumerate(request) if item.kind == "user"), default=0)
    return request[begin + 1 :]


def _asks(message: Item) -> bool:
    return message.kind == "message" and bool(re.search("[?？؟]", message.text[-END:]))


def _objects(request: Sequence[Item], text: str) -> bool:
    """Return whether a message objects to the work. `request`: the items before the message. To the question of an
    agent that has done nothing yet, a "no" is an answer."""
    turn = _turn(request)
    worked = any(item.kind == "action" for item in request)
    if not worked or (not _edited(turn) and any(map(_asks, turn[-1:]))):
        return False
    if _matches("objection", text):
        return True
    if not _edited(request) or _length(text) > LONG_MESSAGE:
        return False
    return bool(_words("problem").search(_plain(text)) or _ERROR_OUTPUT.search(text))


def _approves(text: str) -> bool:
    """Return whether a message approves the work at its beginning, without a "but"."""
    return _matches("approval", text) and not _words("contrast").search(_plain(text)[:150])


def _only_approves(text: str) -> bool:
    return _approves(text) and _length(text) <= 6


def _matches(section: str, text: str, whole: bool = False) -> bool:
    """Return whether the beginning of a message, or the whole message, has words of a section of replies.toml."""
    match = _words(section).match(plain := _plain(text))
    if whole:
        return bool(_words(section).fullmatch(plain))
    return bool(match and not re.match(r"[a-zа-яß]", plain[match.end() : match.end() + 1]))


@lru_cache
def _words(section: str) -> re.Pattern[str]:
    """Return the words of a section of replies.toml as one pattern."""
    languages = tomllib.loads(files(__package__).joinpath("replies.toml").read_text(encoding="utf-8"))[section]
    return re.compile(f"(?:{'|'.join(languages.values())})", re.VERBOSE)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split()).strip(" .!,;:*。！，")


def _length(text: str) -> int:
    """Return the number of words. In a language without spaces, two characters count as a word."""
    return (
        len(re.findall(r"[^\W_\u3040-\u30ff\u3400-\u9fff]+", text))
        + len(re.findall(r"[\u3040-\u30ff\u3400-\u9fff]", text)) // 2
    )


def _quoted(text: str) -> str:
    return f'"{one_line(text, 300)}"'


_ERROR_OUTPUT = re.compile(
    r"Traceback \(most recent call last\)|^\s*(?:\S+\s+)?(?:\w*(?:Error|Exception)|error|ERROR|fatal)\b[:\[(]|npm ERR!"
    r"|panicked at|\bUncaught \w+|\bis not defined\b|[Cc]annot find module|\bUnable to \w+|\bblocked by\b"
    r"|is not valid JSON",
    re.MULTILINE,
)
_EDIT = re.compile(
    r"\A(?!write_stdin|todo_?write)\w*(?:edit|write|patch|create|replace|insert)\w*\(|apply_patch|\bsed\s+-i",
    re.IGNORECASE,
)
_OF_DOCS = re.compile(r"""["'](?:file_?path|path)["']\s*:\s*["'][^"']*\.(?:mdx?|rst|txt|adoc)["']""", re.IGNORECASE)
_TEST_COMMAND = re.compile(
    r"\b(?:(?:just|mise|task|poetry|uv|nx|turbo|node|python3?|bash|sh)\s+(?:-\S+\s+|run\s+)*\S*(?:tests?|check)\b\S*"
    r"|(?:npm|pnpm|yarn|bun|deno)\b[^|;&\n]*?\btests?\b|npm\s+t|pytest(?!\.)|py\.test|unittest|tox|nox|jest|vitest|mocha"
    r"|playwright\s+test|cypress\s+run|cargo\s+(?:\+\S+\s+)?(?:test|nextest)|go\s+test|mvnw?\b.*?\b(?:test|verify)"
    r"|gradlew?\b.*?\b(?:test|check)|make\s+(?:test|check)|ctest|rspec|rake\s+(?:test|spec)|phpunit"
    r"|(?:dotnet|swift|flutter|mix|sbt|bazel|zig|hardhat|forge)\s+test)\b|\./\S*test\S*"
)
_FAILED = re.compile(
    r"\b[1-9]\d*\s+(?:failed|failing|failures?|errors?)\b|(?:Failures|Errors|failures|errors|failed)[:=]\s*[1-9]"
    r"|\bFAILED\b|\bFAIL\b|^not ok\b|BUILD FAIL|(?:[Ee]xit code|exited with code|Exit status)[: ]+[1-9]",
    re.MULTILINE,
)
_PASSED = re.compile(
    r"\b[1-9]\d*\s+(?:tests?\s+)?(?:passed|passing)\b|test result: ok|^ok\s|\bOK\b|BUILD SUCCESS|\ball\s+tests\s+pass"
    r"|\b([1-9]\d*)/\1\b|Tests run: [1-9]|\bPASS\b|[1-9]\d* examples?, 0 failures|Passed!|[1-9]\d*/\d+ passed"
    r"|!\s+-\s+\w+:\s+0,\s+\w+:\s+[1-9]",  # dotnet, in any language
    re.MULTILINE | re.IGNORECASE,
)


SUMMARY = 600
"""Number of characters at the end of a test run in which its result counts."""


def _tests(request: Sequence[Item]) -> Iterator[Evidence]:
    """Yield the result of the last test run after the last edit of a request; nothing if the request has no edit. An
    edit of documentation does not make a result invalid."""
    results = {item.call: item.text for item in request if item.kind == "observation" and item.call}
    edited, latest = False, ""
    signal: Signal | None = None
    for action, then in pairwise([*request, Item("", "")]):
        if action.kind != "action":
            continue
        if command := _TEST_COMMAND.search(action.text):
            result = results.get(action.call, then.text if then.kind == "observation" else "")[-SUMMARY:]
            result_signal: Signal | None = (
                "tests failed" if _FAILED.search(result) else "tests passed" if _PASSED.search(result) else None
            )
            signal, latest = (result_signal, command[0]) if result_signal else (signal, latest)
        elif _edited([action]) and not _OF_DOCS.search(action.text):
            edited, signal = True, None
    if edited and signal:
        yield _sign(signal, f"the last test run ({latest}) {signal.removeprefix('tests ')}")


def _edited(items: Iterable[Item]) -> bool:
    """Return whether the agent edited a file."""
    return any(item.kind == "action" and _EDIT.search(item.text) is not None for item in items)


_UNDO = re.compile(r"\bgit\s+(?:checkout\s+(?:HEAD\b|--\s)|restore\b|reset\s+--hard|revert\b)")


def _taken_back(request: Sequence[Item], later: Sequence[Item]) -> str:
    """Return how the next request took back the work; empty if it did not."""
    if not _edited(request):
        return ""
    if undone := next((m[0] for item in later if item.kind == "action" and (m := _UNDO.search(item.text))), None):
        return f"the next request took the work back ({undone})"
    edits = {*_edits(request)}
    if any((new, old) in edits for old, new in _edits(later)):
        return "the next request reversed an edit"
    return ""


def _edits(items: Iterable[Item]) -> Iterator[tuple[str, str]]:
    """Yield the replaced and the new text of each edit of a file."""
    for item in items:
        if item.kind == "action":
            arguments = decoded(item.text[item.text.find("(") + 1 : -1])
            old = text_at(arguments, "old_string", "oldString", "old_str")
            new = text_at(arguments, "new_string", "newString", "new_str")
            if old and new:
                yield old, new
