"""Rules of Agent Skills (agentskills.io/specification), as the reference validator checks them (skills-ref 0.1.1).

The frontmatter of SKILL.md is a subset of YAML: block style, without anchors, aliases, tags and duplicate keys.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

MOST_NAME, MOST_DESCRIPTION, MOST_COMPATIBILITY = 64, 1024, 500
"""Maximum characters of the name, the description and the compatibility of a skill."""

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Fields that the frontmatter may have."""


def split_frontmatter(text: str) -> tuple[str, str]:
    """Return the frontmatter of a SKILL.md with both `---` marks, and the rest of the text. As in the reference
    validator, the second `---` may also be inside a line. Raises ValueError if a mark is missing."""
    if not text.startswith("---"):
        raise ValueError("it must begin with frontmatter (---)")
    end = text.find("---", 3)
    if end < 0:
        raise ValueError("the frontmatter is not closed with ---")
    return text[: end + 3], text[end + 3 :]


def read_fields(frontmatter: str) -> dict[str, Any]:
    """Return the fields of a frontmatter. Every scalar is a text. Raises ValueError if the YAML is not valid."""
    import yaml

    text = frontmatter.removeprefix("---").removesuffix("---").replace("\r\n", "\n")
    try:
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise ValueError(f"line {event.start_mark.line + 1}: anchors, aliases and tags are not allowed")
            if isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
                raise ValueError(f"line {event.start_mark.line + 1}: write lists and mappings in block style")
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        fields = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise ValueError(f"{line}the frontmatter is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("the frontmatter is not valid YAML") from error
    if not isinstance(fields, dict):
        raise ValueError("the frontmatter must be a mapping (name: value)")
    _require_unique_keys(node)
    return fields


def _require_unique_keys(node: Any) -> None:
    """Raise ValueError if a mapping has a key twice."""
    if not isinstance(node.value, list):
        return
    pairs = [pair if isinstance(pair, tuple) else (pair,) for pair in node.value]
    keys = [pair[0].value for pair in pairs if len(pair) == 2]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"the key {twice!r} occurs twice")
    for pair in pairs:
        _require_unique_keys(pair[-1])


def skill_problems(text: str, folder: str) -> list[str]:
    """Return the rules that a SKILL.md in a folder of this name breaks; empty if the skill is valid."""
    try:
        fields = read_fields(split_frontmatter(text)[0])
    except ValueError as error:
        return [str(error)]
    unknown = ", ".join(sorted(fields.keys() - {*FIELDS}))
    return [
        *([f"unknown fields: {unknown} (valid: {', '.join(FIELDS)})"] if unknown else []),
        *_text_problems(fields, "name", MOST_NAME),
        *(_name_problems(fields["name"].strip(), folder) if _is_text(fields.get("name")) else []),
        *_text_problems(fields, "description", MOST_DESCRIPTION),
        *(_text_problems(fields, "compatibility", MOST_COMPATIBILITY) if fields.get("compatibility") else []),
    ]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _text_problems(fields: dict[str, Any], name: str, most: int) -> Iterator[str]:
    if name not in fields:
        yield f"the field {name} is missing"
    elif not _is_text(fields[name]):
        yield f"the field {name} must be a text and not blank"
    elif len(fields[name]) > most:
        yield f"the field {name} has {len(fields[name]):,} characters, more than {most:,}"


def _name_problems(name: str, folder: str) -> Iterator[str]:
    name = unicodedata.normalize("NFKC", name)
    if name != name.lower() or not all(c.isalnum() or c == "-" for c in name):
        yield f"the name {name[:80]!r} may only have lower-case letters, digits and hyphens"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"the name {name[:80]!r} must not begin or end with a hyphen, or have two hyphens in a row"
    if name != unicodedata.normalize("NFKC", folder):
        yield f"the name {name[:80]!r} must be the name of the folder, {folder[:80]!r}"
