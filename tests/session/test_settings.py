"""A setting is declared once: its keyword, option, page and rules are derived from its field."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import practicum
from practicum.agents.limits import GuardTools
from practicum.core.sensitive import Kind
from practicum.core.settings import Resume, SettingField
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.models.prices import GivenPrices
from practicum.models.refused import Structure
from practicum.session.config import ARGUMENTS, SETTINGS

KEYWORDS = Path(practicum.__file__).parent / "session" / "keywords.py"

NAMES: Mapping[Any, str] = {
    GuardTools: "GuardTools", Kind: "Kind", Profile: "Profile", GivenPrices: "GivenPrices", Review: "Review",
    Structure: "Structure",
}  # fmt: skip
"""Types with a name of their own."""

HEADER = '''"""The settings of a run as keywords of functions.

They are made from the fields of `session.config.Config`, because a type checker cannot derive them:
`PRACTICUM_UPDATE_DOCS=1 pytest tests/session/test_settings.py` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from practicum.agents.limits import GuardTools
from practicum.core.sensitive import Kind
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.engine.resources import Resources
from practicum.models.options import ModelOptions
from practicum.models.prices import GivenPrices
from practicum.models.refused import Structure
'''


def current(path: Path, text: str) -> None:
    """Check that a file has this text, or write it there."""
    if os.environ.get("PRACTICUM_UPDATE_DOCS"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def written(kind: Any) -> str:
    """A type as Python text."""
    if kind in NAMES:
        return NAMES[kind]
    if kind in (None, NoneType):
        return "None"
    if (origin := get_origin(kind)) in (Union, UnionType):
        return " | ".join(map(written, get_args(kind)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    arguments = ", ".join("..." if each is ... else written(each) for each in get_args(kind))
    name = "Any" if kind is Any else (origin or kind).__name__
    return f"{name}[{arguments}]" if arguments else str(name)


def keywords(name: str, about: str, fields: Mapping[str, SettingField], *, optional: bool) -> Iterator[str]:
    """The lines of a class of keywords; an `optional` one may be None, which changes nothing."""
    yield from ("", "", f"class {name}(TypedDict, total=False):", *docstring(about), "")
    for field in fields.values():
        kind = written(field.setting.accepts or field.type)
        yield f"    {field.name}: {kind}{' | None' if optional and 'None' not in kind.split(' | ') else ''}"
        yield from docstring(f"{field.help} {field.setting.note}".strip())


def docstring(text: str) -> list[str]:
    lines = textwrap.wrap(text, 113)
    quoted = [f'"""{lines[0]}', *lines[1:]]
    quoted[-1] += '"""' if not quoted[-1].endswith('"') else ' """'
    return [f"    {line}" for line in quoted]


def test_the_keywords_of_functions_are_the_fields() -> None:
    """`PRACTICUM_UPDATE_DOCS=1` writes the file."""
    run = {name: field for name, field in SETTINGS.items() if name not in ARGUMENTS}
    changed = {name: field for name, field in SETTINGS.items() if field.setting.resume is not Resume.NEVER}
    lines = [
        *keywords(
            "RunOptions", "The keywords that `learn`, `evaluate`, `compare` and `ask` share.", run, optional=False
        ),
        *keywords(
            "ResumeOptions",
            "The keywords of `resume` that change settings of the run; None changes nothing. docs/settings.md says "
            "when each may change.",
            changed,
            optional=True,
        ),
    ]
    current(KEYWORDS, HEADER + "\n".join(lines) + "\n")
