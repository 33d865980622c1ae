"""Imports point upward only: a module may know those before it in the list, and nothing after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "practicum"

LAYERS = (
    ("types", "errors", "garbage", "named", "processes"),
    ("output", "metrics"),
    ("edits",),
    ("context",),
    ("views",),
    ("store",),  # the run folder: tables, migrations, one writer
    ("history", "journal", "snapshot"),  # what the folder's rows mean
    ("playbook", "unlearn"),
    ("embed", "models", "tasks", "agents", "adapters"),  # the world outside: each behind a protocol of its own
    ("index",),
    ("retrieve",),
    ("asking", "house"),
    ("run",),  # the one door to every effect
    ("judge", "quality"),
    ("loop", "asynchronous", "copies"),  # the loop, and the same without a barrier
    ("blocks",),
    ("methods",),
    ("parts", "anatomy", "pools"),  # names to objects, and what methods are made of
    ("config",),
    ("folder", "upkeep", "furnish", "estimate", "result"),  # what a session is made of
    ("revise",),  # one more version, after the end
    ("session", "evaluation", "dynamics", "monitoring", "query", "memories"),  # the library's front door
    ("picture", "pools_plot"),  # what is drawn of it
    ("comparison",),  # many sessions, and what may be said of them
    ("cli",),
)
"""Packages and modules in order; those of one line may know each other. `bench` and `data` stand apart."""

APART = ("bench", "data")
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and layer of each import of ours that runs; those for the type checker alone do not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
            block.body = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "practicum":
            names = [f"practicum.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if name.startswith("practicum."):
                yield node.lineno, name.split(".")[1]


def test_every_module_has_its_layer() -> None:
    assert {layer_of(path) for path in modules()} - {*APART} == RANK.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_upward(path: Path) -> None:
    own = layer_of(path)
    for line, other in imported(path):
        where = f"{path.relative_to(PACKAGE)} line {line} imports {other}"
        if own in APART:
            continue
        assert other not in APART or own == "cli", where
        if other != own and other not in APART:
            assert RANK[other] <= RANK[own], where


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    assert not text.strip() or ast.get_docstring(ast.parse(text))
