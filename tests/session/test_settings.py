"""A setting is declared once: its keyword, option, page and rules are derived from its field."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import practicum
from practicum.agents.limits import GuardTools
from practicum.cli.tree import PLACES, build
from practicum.core.sensitive import Kind
from practicum.core.settings import Resume, SettingField
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.models.prices import PricesArgument
from practicum.models.refused import Structure
from practicum.serve.settings import SETTINGS as OF_SERVICE
from practicum.session.config import ARGUMENTS, SETTINGS

KEYWORDS = Path(practicum.__file__).parent / "session" / "keywords.py"

NAMES: Mapping[Any, str] = {
    GuardTools: "GuardTools", Kind: "Kind", Profile: "Profile", PricesArgument: "PricesArgument", Review: "Review",
    Structure: "Structure",
}  # fmt: skip
"""Types with a name."""

HEADER = '''"""The settings of a run as keywords of functions.

They are made from the fields of `session.config.Config`, because a type checker cannot derive them:
`PRACTICUM_UPDATE_DOCS=1 pytest tests/session/test_settings.py` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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
ABOUT_RUN = "The keywords that `learn`, `evaluate`, `compare` and `ask` share."
ABOUT_RESUME = (
    "The keywords of `resume` that change settings of the run; None changes nothing. The manual says when each may "
    "change."
)


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


def keywords(name: str, about: str, fields: Mapping[str, SettingField], *, optional: bool = False) -> Iterator[str]:
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
    lines = [*keywords("RunOptions", ABOUT_RUN, run), *keywords("ResumeOptions", ABOUT_RESUME, changed, optional=True)]
    text = HEADER + "\n".join(lines) + "\n"
    if os.environ.get("PRACTICUM_UPDATE_DOCS"):
        KEYWORDS.write_text(text, encoding="utf-8")
    assert KEYWORDS.read_text(encoding="utf-8") == text


def test_every_setting_with_an_option_has_a_command() -> None:
    commands = [option for path in PLACES for option in build(path).params if option.param_type_name == "option"]
    names = {name for option in commands for name in (*option.opts, *option.secondary_opts)}
    assert len(names) > 150
    fields = (*SETTINGS.values(), *OF_SERVICE.values())
    assert [field.name for field in fields if field.options and field.option not in names] == []


def test_the_first_help_imports_no_model_of_settings_and_no_store() -> None:
    code = (
        "import sys; from practicum.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'pydantic', 'sqlalchemy', 'numpy'} & {*sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stderr.strip() == "[]"
