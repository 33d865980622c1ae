"""Each error has a code of the table, and each code of the table has an error."""

import ast
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import practicum
from practicum.core.codes import CODES
from practicum.core.errors import PracticumError, RequestError, Stopped, UsageError
from practicum.serve.access import TooMany
from practicum.session.users import Unfinished

PACKAGE = Path(practicum.__file__).parent
FORM = re.compile(r"[a-z]+(_[a-z]+)*\.[a-z0-9]+(_[a-z0-9]+)*")


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py") if path.name != "codes.py"}


def _names(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _classes() -> set[str]:
    """The names of all classes of errors in the package."""
    bases = {
        (node.name, _names(base))
        for tree in _trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        for base in node.bases
    }  # fmt: skip
    classes, more = set[str](), {"PracticumError"}
    while more:
        classes |= more
        more = {name for name, base in bases if base in classes} - classes
    return classes


def _literal_codes() -> Iterator[tuple[str, str]]:
    """Where a class of errors is called with a literal code, and the code."""
    classes = _classes()
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _names(node.func) in classes and node.args:
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and FORM.fullmatch(part.value):
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno}", part.value


def test_each_code_that_is_raised_is_in_the_table() -> None:
    sites = [*_literal_codes()]
    assert len(sites) > 600
    assert [site for site in sites if site[1] not in CODES] == []


def test_each_code_of_the_table_is_used() -> None:
    texts = {
        node.value
        for tree in _trees().values() for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip
    assert CODES.keys() - texts == set()


def test_codes_have_one_form_and_one_plain_sentence_each() -> None:
    assert [code for code in CODES if not FORM.fullmatch(code)] == []
    assert [text for text in CODES.values() if not text.endswith(".") or "\n" in text or len(text) > 120] == []
    assert len({*CODES.values()}) == len(CODES)


def test_an_unknown_code_is_refused_when_the_error_is_made() -> None:
    with pytest.raises(ValueError, match=r"tasks\.nonsense"):
        UsageError("tasks.nonsense", "no such code")


@pytest.mark.parametrize(
    "error",
    [
        UsageError("settings.unknown", "there is no setting 'bacth'", setting="bacth", valid=["batch"]),
        RequestError("provider.filtered", "the content filter refused the request"),
        Stopped("budget.spent", "the budget of 3 calls is spent"),
        TooMany("request.too_many", "wait 2 s", 2.0),
        Unfinished("shop", "id", True, OSError("the disk is full")),
    ],
)
def test_an_error_survives_pickling(error: PracticumError) -> None:
    error.args = (f"{error}, and more",)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.body(), vars(copy)) == (error.body(), vars(error))
    assert str(copy).endswith(", and more")
