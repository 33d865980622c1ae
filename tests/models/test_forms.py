"""Every form that models fill in, held against what providers and engines of grammars accept.

No key is needed: the schemas go through pydantic-ai's transformers, and the result is compared with the keywords that
the providers document (OpenAI: structured outputs, "supported schemas"; Anthropic: structured outputs, "JSON schema
limitations"; Gemini: structured outputs, "JSON schema support"; as of November 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from helpers import client, make_tasks
from profiles import cases
from pydantic import Field
from pydantic_ai.profiles.google import GoogleJsonSchemaTransformer
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Profile
from practicum.models.local import compact_grammar
from practicum.testing import Body, ServerOptions, fill, serve

Schema = dict[str, Any]

COMMON = {"title", "description", "type", "properties", "required", "additionalProperties", "items"}
COMMON |= {"enum", "anyOf", "$ref", "$defs", "minItems"}
OPENAI = COMMON | {"const", "pattern", "format", "minimum", "maximum", "maxItems"}


GEMINI = COMMON | {"format", "minimum", "maximum", "maxItems"}
IGNORED_BY_GEMINI = {"minLength", "maxLength", "pattern"}

PROFILES: tuple[Profile, ...] = ("full", "small")


def nodes(schema: Any) -> Iterator[Schema]:
    """Every schema inside a schema, itself first."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, part in schema.items():
        inside = part.values() if key in ("properties", "$defs") else part if isinstance(part, list) else [part]
        for each in inside:
            yield from nodes(each)


def depth(schema: Any, defs: Schema) -> int:
    """The levels of objects and lists."""
    if not isinstance(schema, dict):
        return 0
    if "$ref" in schema:
        return depth(defs[schema["$ref"].rpartition("/")[2]], defs)
    inside = [*schema.get("properties", {}).values(), schema.get("items"), *schema.get("anyOf", ())]
    return (schema.get("type") in ("object", "array")) + max((depth(each, defs) for each in inside), default=0)


def faults(schema: Schema, keywords: set[str], closed: bool = True) -> list[str]:
    """What a provider that knows these keywords would refuse."""
    found = [] if schema.get("type") == "object" else ["the root is no object"]
    for node in nodes(schema):
        found += [f"{key} in {node}" for key in node.keys() - keywords]
        if node.get("type") == "object" and closed:
            found += [] if node["additionalProperties"] is False else [f"open: {node}"]
            found += [] if node["required"] == list(node["properties"]) else [f"optional: {node}"]
        if node.get("type") == "array" and not node.get("items"):
            found.append(f"items of any kind: {node}")
        if "(?" in node.get("pattern", ""):
            found.append(f"look-around: {node}")
    if depth(schema, schema.get("$defs", {})) > 10:
        found.append("more than 10 levels")
    if len(json.dumps(schema)) > 100_000 or sum(len(node.get("properties", ())) for node in nodes(schema)) > 5_000:
        found.append("too large")
    return found


def copied(schema: Schema) -> Schema:
    return dict(json.loads(json.dumps(schema)))


def refused(schema: Schema, profile: Profile, own: bool = True) -> list[str]:
    """What the providers and llama.cpp would refuse of a form. Those of a user's own tools may have optional fields,
    and keywords that OpenAI takes only where it is not strict."""
    openai = OpenAIJsonSchemaTransformer(copied(schema))
    openai.walk()
    found = [] if profile == "small" or not own or openai.is_strict_compatible else ["OpenAI would not be strict"]
    found += faults(OpenAIJsonSchemaTransformer(copied(schema), strict=True).walk(), OPENAI)
    ignored = set() if profile == "full" and own else IGNORED_BY_GEMINI | {"default"}
    found += faults(
        GoogleJsonSchemaTransformer(copied(schema)).walk(), GEMINI | ignored, closed=profile == "full" and own
    )
    if sum("anyOf" in node for node in nodes(schema)) > 16:
        found.append("more unions than Anthropic takes")
    if not compact_grammar(schema).strip():
        found.append("no grammar")
    return found


def lengthened(schema: Any, size: int) -> Any:
    """A schema each of whose texts has this many characters."""
    if isinstance(schema, list):
        return [lengthened(part, size) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const"}:
        return {"type": "string", "minLength": size, "maxLength": size}
    return {key: lengthened(part, size) for key, part in schema.items()}


MORE: dict[str, dict[str, Any]] = {
    "ace": {"rounds": 1},
    "rcl": {"attempted": 3},
    "reasoning_bank": {"scaling": "parallel", "k": 2},
    "unified": {"scaling": "parallel", "k": 2, "rules": "proposed", "memory": True},
}


def forms(method: str, profile: Profile, folder: Path, **more: Any) -> list[Schema]:
    """The forms that a method sends while it learns."""
    model = client()
    config = {"method": method, "profile": profile, "settings": MORE.get(method, {}), "scorer": "judge", **more}
    parts = practicum.Parts(clients={"agent": model}, tools=config.pop("tools", None))
    # A random world may stop a run. What was asked by then is held against the providers.
    with suppress(ProviderError):
        practicum.run_sync(practicum.learn(make_tasks(3), out=folder, parts=parts, val=make_tasks(2, 90), **config))
    return [call.schema for call in model.calls if call.schema is not None]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("method", cases(methods.METHODS.names(), "rcl", "unified"))
def test_every_form_that_a_method_sends_is_accepted(method: str, profile: Profile, tmp_path: Path) -> None:
    if extra := methods.missing_extra(method):
        pytest.skip(f"needs {extra}")
    sent = forms(method, profile, tmp_path / "run")
    assert sent
    assert not [told for schema in sent for told in refused(schema, profile)]


def book(
    day: Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}$", max_length=7)], seats: list[int], note: str = ""
) -> str:
    """Book seats."""
    return f"{day} {seats} {note}"


@pytest.mark.parametrize("profile", PROFILES)
def test_the_turns_of_an_agent_with_tools_are_accepted_and_keep_the_tools_own_bounds(
    profile: Profile, tmp_path: Path
) -> None:
    context = seed_context([("rules", "If in doubt, look.")])
    sent = forms("rcl", profile, tmp_path / "run", tools=[book], max_turns=2, seed_context=context)
    turns = [schema for schema in sent if schema["title"] == "turn"]
    assert not [told for schema in turns for told in refused(schema, profile, own=False)]
    branches = [schema["properties"]["action"]["anyOf"][0]["properties"] for schema in turns]
    first = [branch["book"] for branch in branches if "book" in branch]
    assert 0 < len(first) < len(turns)  # the last turn only finishes
    for form in first:
        arguments = form["properties"]
        assert (arguments["day"]["pattern"], arguments["day"]["maxLength"]) == ("^[0-9]{4}-[0-9]{2}$", 7)
        assert ("maxLength" in arguments["note"]) == ("maxItems" in arguments["seats"]) == (profile == "small")


def loose(body: Body) -> str | None:
    """A server that ignores schemas: JSON in prose and a fence, each text of 2,000 characters."""
    form = body.get("response_format")
    if form is None:
        return None
    value = fill(lengthened(form["json_schema"]["schema"], 2_000), len(json.dumps(body["messages"])))
    said = json.dumps(value, indent=2).replace(" gu", "\\n\n gu")  # an escaped line break and one as it is
    return f"Certainly, here it is {{as asked}}:\n```json\n{said}\n```\nThis {{}} is it."


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("server", ["strict", "loose", "tool"])
@pytest.mark.parametrize("method", cases(("ace", "rcl", "reasoning_bank"), "rcl"))
@pytest.mark.slow
def test_every_kind_of_server_is_understood(method: str, server: str, profile: Profile, tmp_path: Path) -> None:
    bodies: list[Body] = []

    def respond(body: Body) -> str | None:
        bodies.append(body)
        return loose(body) if server == "loose" else None

    async def work() -> practicum.Result:
        async with serve(ServerOptions(responder=respond)) as at:
            return await practicum.learn(
                make_tasks(3), out=tmp_path / "run", method=method, model=f"{at.url}#sim", profile=profile,
                structure="tool" if server == "tool" else "native", scorer="judge", settings=MORE.get(method, {}),
                max_output_tokens=8_000,
            )  # fmt: skip

    errors = practicum.run_sync(work()).errors
    assert not {name for name in errors if name.startswith(("repaired", "unparsed", "lost", "unscored"))}
    strict = [body["response_format"]["json_schema"]["strict"] for body in bodies if "response_format" in body]
    assert bool(strict) == (server != "tool")
    assert all(strict) or profile == "small"
