"""The types of the client's methods, practicum/client/methods.pyi, as they follow from the table of operations.

`PRACTICUM_UPDATE_DOCS=1 pytest tests/serve/test_client_stub.py` writes the file.
"""

from __future__ import annotations

from needs import needs

needs("msgspec", "serve")

import os
from datetime import date, datetime
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from practicum.client import methods
from practicum.serve.operations import OPERATIONS

FILE = Path(methods.__file__).with_suffix(".pyi")

HEAD = '''\
"""Made from the table of operations by tests/serve/test_client_stub.py: do not edit."""

from datetime import date, datetime
from typing import Any, Literal

from practicum.client.link import Link
from practicum.serve import answers

class OperationMethods:
    _link: Link
'''


def type_of(annotation: Any) -> str:
    """A type without its constraints."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return type_of(parts[0])
    if kind is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if kind in (Union, UnionType):
        return " | ".join(map(type_of, parts))
    if kind is not None:
        return f"{kind.__name__}[{', '.join(map(type_of, parts))}]"
    texts = {type(None): "None", datetime: "datetime | str", date: "date | str"}
    return texts.get(annotation, str(annotation.__name__))


def written() -> str:
    """The text of the file."""
    lines = [HEAD]
    for operation in OPERATIONS.values():
        fields = operation.form.model_fields
        parts = [
            f"{name}: {type_of(field.annotation)}{'' if field.is_required() else ' = ...'}"
            for name, field in fields.items()
        ]
        named = [f"{name}: str | None = ..." for name in ("session", "user") if name not in fields]
        parameters = ", ".join(["self", *parts[:1], *(["*"] if parts[1:] or named else []), *parts[1:], *named])
        answer = f"answers.{operation.answer.__name__}"
        for start, end in (("async def ", ""), ("def ", "_sync")):
            lines.append(f"    {start}{operation.name}{end}({parameters}) -> {answer}:")
            lines += ['        """' + fill(operation.about, 111, subsequent_indent="        ") + '"""', ""]
    return "\n".join(lines)


def test_the_types_of_the_client_are_those_of_the_operations() -> None:
    if os.environ.get("PRACTICUM_UPDATE_DOCS"):
        FILE.write_text(written(), encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == written()
