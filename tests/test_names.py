"""No class name is defined twice in the package, at any depth: a name says which class is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import practicum

PACKAGE = Path(practicum.__file__).parent

SHARED = {"Settings": ("methods", "plugins/rivals")}
"""Names that the files of these folders share by design: each method's module has its settings in `Settings`, where the
loader of methods reads them."""


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and path.parent.as_posix() not in SHARED.get(node.name, ()):
                places[node.name].append(f"{path.as_posix()}:{node.lineno}")
    doubles = {name: all_places for name, all_places in places.items() if len(all_places) > 1 or name in SHARED}
    assert not doubles
