"""Format of text-to-SQL data sets. Each record is a question about a SQLite database next to the task file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from practicum.core.errors import TaskFileError
from practicum.core.types import Task
from practicum.core.words import error_line
from practicum.plugins.environments.text_to_sql.run_sql import connect
from practicum.tasks.formats import Format

MAX_TABLES = 1000  # maximum number of tables in the schema of a task

SOURCES = "Spider: yale-lily.github.io/spider, CoSQL: yale-lily.github.io/cosql, BIRD: bird-bench.github.io"


class TextToSql(Format):
    """Spider, CoSQL and BIRD. The input is the schema of the database with the evidence and the question, and the
    target is the query. The databases are in a folder next to the file, such as `database/NAME/NAME.sqlite`."""

    about = "questions to answer with an SQL query (Spider, CoSQL and BIRD, as in StreamBench)"
    scorer = "sql"
    instructions = """\
Write one SQLite query that answers the question about the database. Answer with the query in one ```sql block, and \
nothing else."""
    names: ClassVar = {"SQL": "query", "question_id": "id"}

    db_id: str = Field(pattern=r"^\w+$")
    question: str
    query: str
    evidence: str = ""
    id: str | int | None = None
    _folder: Path = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Keep the folder of the file."""
        self._folder = context["folder"]

    def task(self, id: str) -> Task:
        database = find_database(self._folder, self.db_id)
        evidence = [f"Evidence: {self.evidence.strip()}"] if self.evidence.strip() else []
        text = "\n\n".join([read_schema(database), *evidence, f"Question: {self.question.strip()}"])
        meta = {"database": str(database.absolute()), "tags": [self.db_id]}
        return Task(id if self.id is None else str(self.id), text, self.query.strip(), meta)


def find_database(folder: Path, name: str) -> Path:
    """Return the path of a database of the data set in a folder. Archives name the folder of the databases differently:
    `database`, `dev_databases`. Raises TaskFileError if the database does not exist."""
    paths = sorted(folder.glob(f"*database*/{name}/{name}.sqlite"))
    if not paths:
        raise TaskFileError(
            "tasks.not_found",
            f"{folder / 'database' / name / f'{name}.sqlite'}: no such file; copy the databases of the data set next "
            f"to the task file ({SOURCES})",
        )
    return paths[0]


def read_schema(database: Path) -> str:
    """Return the CREATE TABLE statements of a database. Raises TaskFileError if the file cannot be read as a SQLite
    database."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY rowid"
    try:
        with closing(connect(str(database))) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            statements = [statement for (statement,) in connection.execute(query).fetchmany(MAX_TABLES)]
    except sqlite3.Error as error:
        raise TaskFileError("tasks.unreadable", f"{database}: not a SQLite database ({error_line(error)})") from None
    return "\n\n".join(f"{statement.strip()};" for statement in statements)
