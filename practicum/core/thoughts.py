"""Separation of a model's thoughts from its answer, and reasons for an empty answer.

Most servers send thoughts in a separate field. Other servers leave thoughts in the text, between marks that depend on
the model. This happens with servers without a reasoning parser, and with proxies. With some models, the text only has
the closing mark, because the model's chat template writes the opening mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from practicum.core.counts import Count


class SeparatedAnswer(NamedTuple):
    """An answer without its thoughts, and the thoughts."""

    text: str
    thoughts: str = ""


_TEMPLATED = (
    ("<think>", "</think>"),  # DeepSeek, Qwen, GLM, Kimi, MiniMax, Nemotron and most others
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel|>analysis", "<|channel|>final"),  # gpt-oss
)
"""Marks that are tokens of a model. The chat template may have written the opening mark, so the closing mark is
enough."""

_WRITTEN = (
    ("<thinking>", "</thinking>"),  # prompts for Claude
    ("<thought>", "</thought>"),  # EXAONE Deep, Gemini
    ("<reasoning>", "</reasoning>"),  # Reka
)
"""Marks that a model writes as text. Other texts may contain these marks too, so the marks only count at the beginning
of an answer."""

_CLOSING = {opening.lower(): closing for opening, closing in (*_TEMPLATED, *_WRITTEN)}


def _any(marks: Iterable[str]) -> str:
    return f"({'|'.join(map(re.escape, marks))})"


_OPENS = re.compile(rf"\s*(?:<\|start\|>assistant)?{_any(_CLOSING)}", re.IGNORECASE)
_CLOSES = re.compile(_any(closing for _, closing in _TEMPLATED), re.IGNORECASE)
_OPENS_AGAIN = re.compile(rf"^[ \t]*{_any(opening for opening, _ in _TEMPLATED)}", re.IGNORECASE | re.MULTILINE)
_FRAMES = re.compile(
    r"<\|START_RESPONSE\|>|<\|END_RESPONSE\|>|\A\s*(?:<\|constrain\|>\w+\s*)?<\|message\|>|<\|(?:return|end)\|>\s*\Z"
)
"""Tokens that the templates of Command and gpt-oss put around an answer."""

_QUOTES = ("`", "'", '"')


def split_thoughts(text: str) -> SeparatedAnswer:
    """Return the answer in a text, and the thoughts before it.

    Everything up to the last closing mark is thoughts, also if the opening mark is missing. Thoughts without a closing
    mark are not an answer: the answer is then the text before the thoughts, or empty. A mark in quotes or backticks is
    text. If the whole text is a JSON value, all marks in it are text. A text without thoughts is returned unchanged.
    """
    opening = _OPENS.match(text)
    begin = opening.end() if opening else 0
    mark = _CLOSING[opening[1].lower()] if opening else ""
    if mark and not _CLOSES.fullmatch(mark):
        end = re.compile(re.escape(mark), re.IGNORECASE).search(text, begin)
    else:
        marks = [*_CLOSES.finditer(text, begin)]
        # If all closing marks seem to be in quotes, the quote after the last mark may be the beginning of the answer,
        # so this mark counts.
        plain = [mark for mark in marks if not _is_quoted(text, mark)] or (marks if opening else [])
        end = plain[-1] if plain and not _is_json(text) else None
    if opening and not end:
        return SeparatedAnswer("", text[begin:].strip())
    answer, thoughts = (text[end.end() :], text[begin : end.start()]) if end else (text, "")
    if again := _OPENS_AGAIN.search(answer):
        answer, thoughts = answer[: again.start()], f"{thoughts}\n{answer[again.end() :]}"
    elif not end:
        return SeparatedAnswer(text)
    return SeparatedAnswer(_FRAMES.sub("", answer).strip(), thoughts.strip())


def _is_quoted(text: str, mark: re.Match[str]) -> bool:
    before, after = text[max(mark.start() - 1, 0) : mark.start()], text[mark.end() : mark.end() + 1]
    return before == after and before in _QUOTES


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def silence(
    answer: SeparatedAnswer, *, refused: bool = False, filtered: bool = False, cut: bool = False
) -> Count | None:  # fmt: skip
    """Return the reason why an answer is empty; None if the answer has a text. Text that a model wrote before it
    refused, or before a filter stopped it, does not count as an answer. `cut` means that the answer reached its token
    limit."""
    if refused:
        return Count.REFUSED_ANSWERS
    if filtered:
        return Count.FILTERED_ANSWERS
    if answer.text.strip():
        return None
    if cut:
        return Count.SILENT_CUTS
    return Count.UNSAID_THOUGHTS if answer.thoughts else Count.EMPTY_ANSWERS


SILENCES: Mapping[str, str] = {
    Count.EMPTY_ANSWERS: "is empty; request one answer of the model by hand to see why, or use another model",
    Count.REFUSED_ANSWERS: "is a refusal; change the instructions or the tasks, or use another model",
    Count.FILTERED_ANSWERS: "was stopped by the provider's content filter; change the filter, omit such tasks, or use "
    "another model",
    Count.UNSAID_THOUGHTS: "has thoughts only; turn thinking off (`model_options`), or start the server with the "
    "reasoning parser of the model",
    Count.SILENT_CUTS: "reached the limit of output tokens before it wrote any text; raise `max_output_tokens`, or "
    "turn thinking off (`model_options`)",
}
"""Cause and advice for each reason why an answer is empty. The text continues a sentence that begins with "the
answer"."""
