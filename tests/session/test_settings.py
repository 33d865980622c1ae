"""A setting is declared once: its keyword, option, page and rules are derived from its field."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field

import practicum
from practicum.agents.limits import GuardTools
from practicum.cli.options import parameter
from practicum.cli.tree import PLACES, build, summary_of
from practicum.core.sensitive import Kind
from practicum.core.settings import Panel, Resume, Setting, SettingField, settings_of
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.models.prices import PricesArgument
from practicum.models.refused import Structure
from practicum.serve.settings import SETTINGS as OF_SERVICE
from practicum.session.config import ARGUMENTS, SETTINGS, Config

KEYWORDS = Path(practicum.__file__).parent / "session" / "keywords.py"

NAMES: Mapping[Any, str] = {
    GuardTools: "GuardTools", Kind: "Kind", Profile: "Profile", PricesArgument: "PricesArgument", Review: "Review",
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
from practicum.models.prices import PricesArgument
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
            "The keywords of `resume` that change settings of the run; None changes nothing. The manual says when "
            "each may change.",
            changed,
            optional=True,
        ),
    ]
    current(KEYWORDS, HEADER + "\n".join(lines) + "\n")


class Extended(Config):
    """A run's settings with one more."""

    pace: Annotated[float | None, Setting("Seconds between two calls.", Panel.MODEL, unit="s")] = Field(
        default=None, ge=0
    )


def test_a_field_is_an_option_a_keyword_and_a_line_of_the_page() -> None:
    field = settings_of(Extended)["pace"]
    option = parameter(field)
    (_, info) = get_args(option.annotation)
    assert (option.name, option.default, field.option) == ("pace", None, "--pace")
    assert (info.default, info.min, info.help) == ("--pace", 0, "Seconds between two calls.")
    assert "    pace: float | None" in [*keywords("RunOptions", "All.", {"pace": field}, optional=False)]


def test_a_new_field_is_part_of_the_mark_and_of_digests() -> None:
    """Unless it says otherwise."""
    setting = settings_of(Extended)["pace"].setting
    assert not setting.inert
    assert setting.resume is Resume.NEVER


def test_every_setting_has_one_plain_sentence() -> None:
    for field in (*SETTINGS.values(), *OF_SERVICE.values()):
        assert field.setting.help[0].isupper(), field.name
        assert field.setting.help.endswith("."), field.name
        assert len(field.setting.help) <= 120, field.name


def options() -> Iterator[tuple[str, str, str | None]]:
    """Each option of each command: its name, the command, its help."""
    for path in PLACES:
        for option in build(path).params:
            if option.param_type_name == "option":
                yield from ((name, path, option.help) for name in (*option.opts, *option.secondary_opts))


def test_an_option_has_the_same_help_on_every_command() -> None:
    helps: dict[str, dict[str | None, str]] = {}
    for name, path, text in options():
        helps.setdefault(name, {}).setdefault(text, path)
    assert {name: texts for name, texts in helps.items() if len(texts) > 1 and name.startswith("--")} == {}
    assert len(helps) > 150


def test_every_setting_with_an_option_has_a_command() -> None:
    names = {name for name, _, _ in options()}
    for field in (*SETTINGS.values(), *OF_SERVICE.values()):
        assert not field.options or field.option in names, field.name


def test_every_summary_of_a_command_fits_in_a_line() -> None:
    assert {path: summary_of(path) for path in PLACES if not 10 < len(summary_of(path)) <= 58} == {}


def test_the_first_help_imports_no_model_of_settings_and_no_store() -> None:
    code = (
        "import sys; from practicum.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'pydantic', 'sqlalchemy', 'numpy'} & {*sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stderr.strip() == "[]"
