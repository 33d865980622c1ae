"""Each error has a code of the table, and each code of the table has an error."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import practicum
from practicum.core.codes import CODES
from practicum.core.errors import PracticumError, RequestError, Stopped, UsageError
from practicum.serve.access import TooMany
from practicum.session.users import Unfinished

FORM = r"[a-z]+(?:_[a-z]+)*\.[a-z0-9]+(?:_[a-z0-9]+)*"


def test_the_codes_of_the_table_are_those_that_are_raised() -> None:
    """An error with an unknown code cannot be created, and literal codes of errors are found in the source."""
    package = Path(practicum.__file__).parent
    source = "\n".join(path.read_text() for path in package.rglob("*.py") if path.name != "codes.py")
    raised = re.findall(rf'\b[A-Z]\w*Error\(\s*"({FORM})"', source)
    assert len(raised) > 400
    assert {*raised} - CODES.keys() == set()
    assert CODES.keys() - {*re.findall(rf'"({FORM})"', source)} == set()
    assert [code for code in CODES if not re.fullmatch(FORM, code)] == []
    with pytest.raises(ValueError, match=r"tasks\.nonsense"):
        UsageError("tasks.nonsense", "no such code")


ERRORS = (
    UsageError("settings.unknown", "unknown setting 'bacth'", setting="bacth", known=["batch"]),
    RequestError("provider.filtered", "the content filter refused the request"),
    Stopped("budget.spent", "the budget of 3 calls is spent"), TooMany("request.too_many", "wait 2 s", 2.0),
    Unfinished("shop", "id", True, OSError("the disk is full")),
)  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: PracticumError) -> None:
    error.args = (f"{error}, and more",)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.body(), vars(copy)) == (type(error), error.body(), vars(error))
    assert str(copy).endswith(", and more")
