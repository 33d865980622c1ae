"""Breakpoints for prompt caches that a request must ask for: Claude at Anthropic, in Bedrock and at OpenRouter.

Such a cache stores the prompt up to each breakpoint, and a later request reads the longest stored prefix. At Anthropic,
a token costs 1.25 times the price of plain input to write, and a tenth to read. So breakpoints are only at the ends of
texts that other prompts repeat: the instructions, the pages of the context before the newest, the newest page, and the
earlier turns of a conversation that goes on. A request may have at most these four. Other servers cache prefixes
without breakpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from practicum.core.types import Prompt
from practicum.models.client import JSON

EPHEMERAL: JSON = {"type": "ephemeral"}
"""Value of `cache_control`: a cache for five minutes since the last use."""


def takes_breakpoints(provider: str, model: str, extra_body: JSON) -> bool:
    """Return whether a provider of pydantic-ai caches the prompts of a model only up to breakpoints, and the user's
    `extra_body` has none. With breakpoints of the user, the request could have more than four."""
    if not extra_body.keys().isdisjoint(("cache_control", "system")):
        return False
    return provider in ("anthropic", "bedrock") or (provider == "openrouter" and model.startswith("anthropic/"))


def with_breakpoints(settings: Mapping[str, Any], prompt: Prompt, provider: str, own_system: bool) -> JSON:
    """Return the settings of a request with breakpoints in the system message. `own_system`: the system message of the
    request is `prompt.head` and nothing else."""
    if provider == "anthropic" and own_system and prompt.head:
        # pydantic-ai sets one breakpoint, at the end of the system message.
        return {**settings, "extra_body": {**settings.get("extra_body", {}), "system": _system(prompt)}}
    # The page after the fixed pages may be a mark (see `engine.framing`).
    is_fixed = prompt.fixed is None or prompt.fixed >= len(prompt.pages) - 1
    return {**settings, "cache": {"messages": False}} if is_fixed else {**settings}


def _system(prompt: Prompt) -> list[JSON]:
    """Return `prompt.head` in blocks: the instructions, a block for each page, and a block for each entry of the newest
    fixed page. Anthropic searches the blocks before a breakpoint for a stored prefix. An update that adds entries
    leaves all earlier blocks unchanged, so that only the new entries are written."""
    instructions = [prompt.system] if prompt.system else []
    separators = ["\n\n" if prompt.system else "", *["\n"] * len(prompt.pages)]
    joined = [separator + page for separator, page in zip(separators, prompt.pages, strict=False)]
    fixed = len(joined) if prompt.fixed is None else prompt.fixed
    newest = max(fixed - 1, 0)
    entries = [entry for page in joined[newest:fixed] for entry in _BEFORE_ENTRY.split(page)]
    blocks: list[JSON] = []
    for texts in (instructions, joined[:newest], entries):
        blocks += [{"type": "text", "text": text} for text in texts]
        if texts:
            blocks[-1]["cache_control"] = EPHEMERAL
    return [*blocks, *({"type": "text", "text": page} for page in joined[fixed:])]


_BEFORE_ENTRY = re.compile(r"(?<=.)(?=\n\S)")
"""Place before the line break of an entry. Further lines of an entry are indented or empty."""
