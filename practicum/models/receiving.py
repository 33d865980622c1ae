"""Validation of received replies: storable text, limited length, plausible token counts.

Budgets must hold even with a server that counts wrongly or ignores the output limit of a call. So the counts are
compared with estimates of the sent and received tokens, and an overlong text is cut.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from practicum.core.counts import Count
from practicum.core.thoughts import silence, split_thoughts
from practicum.core.types import Usage
from practicum.core.views import count_tokens
from practicum.models.client import Reply

MAX_DEVIATION = 10
"""Maximum factor between a reported count and its estimate; a count beyond this factor is replaced by the estimate.
Tokenizers differ by a factor of two or three, and reasoning, which is not in the text, may take several times the
output limit."""

MIN_CHECKED = 1000
"""Tolerance (tokens) when a count is compared with its estimate, so that the counts of short texts are not replaced."""

LENGTH_SLACK = 2
"""Maximum factor between a text's estimated tokens and the output limit; a text beyond this factor is overlong. A text
is also overlong if both its estimate and the server's count exceed the limit."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def within_limit(reply: Reply, prompt_tokens: int, most: int) -> Reply:
    """Cut a reply that ignored the output limit of `most` tokens. If a reply is cut, implausible counts of the server
    are replaced by estimates: `prompt_tokens` for the prompt, and the tokens of the text before the cut for the output.
    """
    written = count_tokens(reply.text)
    if written <= LENGTH_SLACK * most and min(written, reply.usage.output_tokens) <= most:
        return reply
    usage = plausible_usage(reply.usage, prompt_tokens, written, most)
    changed = (Count.OVERLONG_ANSWERS, *((Count.ESTIMATED_USAGE,) if usage != reply.usage else ()))
    # The longest prefix of at most `most` tokens.
    end = bisect_right(range(1, len(reply.text) + 1), most, key=lambda end: count_tokens(reply.text[:end]))
    return replace(reply, text=reply.text[:end], usage=usage, cut=True, changed=changed)


def received(reply: Reply, prompt_tokens: int, most: int, price: Callable[[Usage], float | None]) -> Reply:
    """Return a client's reply with plausible usage and storable text. The text is the answer without the model's
    thoughts. The text is empty if the model gave no answer; `Reply.silence` is then the reason."""
    text, usage, changed = storable(reply.text), reply.usage, reply.changed
    if text != reply.text:
        changed = (*changed, Count.MENDED_TEXTS)
    if Count.OVERLONG_ANSWERS not in changed:
        usage = plausible_usage(usage, prompt_tokens, count_tokens(text), most)
        if usage != reply.usage:
            changed = (*changed, Count.ESTIMATED_USAGE)
    if usage != reply.usage or not _is_price(usage.usd):
        usage = replace(usage, usd=price(usage))
    answer = split_thoughts(text)
    answer = answer._replace(thoughts=answer.thoughts or reply.thoughts)
    why = silence(answer, refused=reply.refused, filtered=reply.filtered, cut=reply.cut)
    return Reply("" if why else answer.text, usage, reply.cut, (*changed, why) if why else changed)


def storable(text: str) -> str:
    """Replace characters that UTF-8 or a database cannot store: lone surrogates and NUL."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", REPLACEMENT)


def plausible_usage(usage: Usage, prompt_tokens: int, written: int, most: int) -> Usage:
    """Replace missing and implausible counts of a usage by estimates. `prompt_tokens` and `written` are the estimates
    for the prompt and the output, `most` is the output limit (tokens)."""
    read, cached, output = usage.input_tokens, usage.cached_tokens, usage.output_tokens
    written_to_cache = usage.cache_write_tokens
    if not _is_count(read) or read == 0 or _is_far(read, prompt_tokens, prompt_tokens):
        read = prompt_tokens
    if not _is_count(cached) or cached > read:
        cached = 0
    if not _is_count(written_to_cache) or cached + written_to_cache > read:
        written_to_cache = 0
    if not _is_count(output) or (output == 0 and written) or _is_far(output, written, max(written, most)):
        output = written
    calls = usage.calls if _is_count(usage.calls) and usage.calls else 1
    return replace(
        usage, calls=calls, input_tokens=read, cached_tokens=cached, output_tokens=output,
        cache_write_tokens=written_to_cache,
    )  # fmt: skip


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_far(count: int, least: int, most: int) -> bool:
    """Return whether a count is far below the estimate `least`, or far above the estimate `most`."""
    return count * MAX_DEVIATION < least - MIN_CHECKED or count > MAX_DEVIATION * max(most, MIN_CHECKED)


def _is_price(usd: object) -> bool:
    return usd is None or (isinstance(usd, float | int) and math.isfinite(usd) and usd >= 0)
