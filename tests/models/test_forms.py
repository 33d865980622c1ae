"""Every form that models fill in is accepted by the providers and by the grammars of llama.cpp.

No key is needed: the schemas go through pydantic-ai's transformers, and the result is compared with the keywords that
the providers document (OpenAI: structured outputs, "supported schemas"; Anthropic: structured outputs, "JSON schema
limitations"; Gemini: structured outputs, "JSON schema support"; as of November 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import pytest
from helpers import client, make_tasks
from pydantic import Field
from pydantic_ai.profiles.google import GoogleJsonSchemaTransformer
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Profile
from practicum.models.local import compact_grammar

Schema = dict[str, Any]

COMMON = {"title", "description", "type", "properties", "required", "additionalProperties", "items"}
COMMON |= {"enum", "anyOf", "$ref", "$defs", "minItems"}
OPENAI = COMMON | {"const", "pattern", "format", "minimum", "maximum", "maxItems"}
GEMINI = COMMON | {"format", "minimum", "maximum", "maxItems"}
IGNORED_BY_GEMINI = {"minLength", "maxLength", "pattern"}


def nodes(schema: Any) -> Iterator[Schema]:
    """Every schema inside a schema, itself first."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, part in schema.items():
        inside = part.values() if key in ("properties", "$defs") else part if isinstance(part, list) else [part]
        for each in inside:
            yield from nodes(each)


def faults(schema: Schema, keywords: set[str], closed: bool = True) -> list[str]:
    """The parts of a schema that a provider with these keywords would refuse."""
    refusals = [] if schema.get("type") == "object" else ["the root is not an object"]
    for node in nodes(schema):
        refusals += [f"{key} in {node}" for key in node.keys() - keywords]
        if node.get("type") == "object" and closed:
            refusals += [] if node["additionalProperties"] is False else [f"open: {node}"]
            refusals += [] if node["required"] == list(node["properties"]) else [f"optional: {node}"]
        if node.get("type") == "array" and not node.get("items"):
            refusals.append(f"items of any kind: {node}")
        if "(?" in node.get("pattern", ""):
            refusals.append(f"look-around: {node}")
    return refusals


def refused(schema: Schema, profile: Profile, own: bool = True) -> list[str]:
    """The parts of a form that the providers or llama.cpp would refuse. The form of a user's tools (`own` is False) may
    have optional fields, and keywords that OpenAI accepts only without strict schemas."""
    openai = OpenAIJsonSchemaTransformer(deepcopy(schema))
    openai.walk()
    refusals = [] if profile == "small" or not own or openai.is_strict_compatible else ["OpenAI would not be strict"]
    refusals += faults(OpenAIJsonSchemaTransformer(deepcopy(schema), strict=True).walk(), OPENAI)
    ignored = set() if profile == "full" and own else IGNORED_BY_GEMINI | {"default"}
    refusals += faults(
        GoogleJsonSchemaTransformer(deepcopy(schema)).walk(), GEMINI | ignored, closed=profile == "full" and own
    )
    if sum("anyOf" in node for node in nodes(schema)) > 16:
        refusals.append("more unions than Anthropic accepts")
    if not compact_grammar(schema).strip():
        refusals.append("no grammar")
    return refusals


MORE: dict[str, dict[str, Any]] = {
    "ace": {"rounds": 1},
    "rcl": {"attempted": 3},
    "reasoning_bank": {"scaling": "parallel", "k": 2},
    "unified": {"scaling": "parallel", "k": 2, "rules": "proposed", "memory": True},
}


def forms(method: str, profile: Profile, folder: Path, tasks: int = 3, **more: Any) -> list[Schema]:
    """The forms that a method sends while it learns."""
    model = client()
    config = {"method": method, "profile": profile, "settings": MORE.get(method, {}), "scorer": "judge", **more}
    parts = practicum.Parts(clients={"agent": model}, tools=config.pop("tools", None))
    # A random world may stop a run. The forms sent until then are checked.
    with suppress(ProviderError):
        practicum.run_sync(practicum.learn(make_tasks(tasks), out=folder, parts=parts, val=make_tasks(2, 90), **config))
    return [call.schema for call in model.calls if call.schema is not None]


FAST = ("unified", "full")
EVERY = [(method, profile) for method in methods.METHODS.names() for profile in ("full", "small")]


@pytest.mark.parametrize(
    ("method", "profile"), [pytest.param(*case, marks=[] if case == FAST else [pytest.mark.slow]) for case in EVERY]
)
def test_every_form_that_a_method_sends_is_accepted(method: str, profile: Profile, tmp_path: Path) -> None:
    if extra := methods.missing_extra(method):
        pytest.skip(f"needs {extra}")
    tasks = 1 if (method, profile) == FAST else 3
    sent = {json.dumps(schema): schema for schema in forms(method, profile, tmp_path / "run", tasks)}
    assert sent
    assert not [refusal for schema in sent.values() for refusal in refused(schema, profile)]


def book(
    day: Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}$", max_length=7)], seats: list[int], note: str = ""
) -> str:
    """Book seats."""
    return f"{day} {seats} {note}"


@pytest.mark.parametrize("profile", ["small", pytest.param("full", marks=pytest.mark.slow)])
def test_the_turns_of_an_agent_with_tools_are_accepted_and_keep_the_tools_own_bounds(
    profile: Profile, tmp_path: Path
) -> None:
    context = seed_context([("rules", "If in doubt, look.")])
    sent = forms("rcl", profile, tmp_path / "run", 1, tools=[book], max_turns=2, seed_context=context)
    turns = [schema for schema in sent if schema["title"] == "turn"]
    assert not [refusal for schema in turns for refusal in refused(schema, profile, own=False)]
    branches = [schema["properties"]["action"]["anyOf"][0]["properties"] for schema in turns]
    first = [branch["book"] for branch in branches if "book" in branch]
    assert 0 < len(first) < len(turns)  # the last turn only finishes
    for form in first:
        arguments = form["properties"]
        assert (arguments["day"]["pattern"], arguments["day"]["maxLength"]) == ("^[0-9]{4}-[0-9]{2}$", 7)
        assert ("maxLength" in arguments["note"]) == ("maxItems" in arguments["seats"]) == (profile == "small")
