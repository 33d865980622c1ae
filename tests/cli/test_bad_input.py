"""Bad input as a newcomer gives it: each case ends with its exit status and error code, in one line."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers import make_tasks, run_command, write_tasks

from practicum.store.database import Store
from practicum.testing import start_process

LEARN = ("learn", "{tasks}", "--out", "new", "--retries", "0", "--batch-size", "4")
SCRIPTED = ("--model", "scripted:model")
TASK = '{"id": "a", "input": "1 + 1", "target": "2"}\n'

FILES: dict[str, tuple[str, str | bytes]] = {
    "a list": ("list.jsonl", "[1, 2]\n"),
    "cut JSON": ("cut.jsonl", '{"id": "a", "input": "1 +\n'),
    "CSV": ("tasks.csv", "question,answer\n1 + 1,2\n"),
    "a binary file": ("binary.jsonl", b"\x89PNG\r\n\x1a\n\x00\x00"),
    "Latin-1": ("latin.jsonl", '{"input": "für", "target": "x"}\n'.encode("latin-1")),
    "an empty file": ("empty.jsonl", ""),
    "a number as input": ("number.jsonl", '{"input": 7, "target": "x"}\n'),
    "a blank input": ("blank.jsonl", '{"input": "  ", "target": "x"}\n'),
    "no input": ("field.jsonl", '{"question": "1 + 1", "target": "2"}\n'),
    "no target": ("target.jsonl", '{"input": "1 + 1"}\n'),
    "an id that comes twice": ("twice.jsonl", TASK + TASK),
    "CSV with a column too many": ("wide.jsonl", "input,target\n1 + 1,2,3\n"),
    "several lists": ("lists.jsonl", f'{{"train": [{TASK}], "test": [{TASK}]}}'),
    "a gzip that is cut": ("packed.jsonl", gzip.compress(TASK.encode())[:-4]),
    "a zip archive": ("archive.jsonl", b"PK\x03\x04"),
    "half a surrogate pair": ("surrogate.jsonl", '{"input": "\\ud800", "target": "x"}\n'),
}
"""Files of tasks that cannot be read, or not be used."""

HANDLED: dict[str, tuple[str, str | bytes]] = {
    "a byte order mark": ("bom.jsonl", b"\xef\xbb\xbf" + TASK.encode()),
    "Windows line ends": ("crlf.jsonl", TASK.replace("\n", "\r\n")),
    "gzip": ("gzip.jsonl", gzip.compress(TASK.encode())),
    "a JSON array": ("array.jsonl", f"[{TASK}]"),
    "CSV with the columns of a task": ("table.jsonl", "id,input,target\na,1 + 1,2\n"),
    "a NUL, emoji, right-to-left text": ("odd.jsonl", '{"input": "a\\u0000 🎈 \\u202eabc", "target": "2"}\n'),
}

AGENTS = """
def raises(input, context):
    raise RuntimeError("no route to the warehouse")

def one_argument(input):
    return input

def returns_none(input, context):
    return None

def answers(input, context):
    return input.split()[-1]

def score_raises(task, answer):
    raise KeyError("price")

def score_17(task, answer):
    return 17
"""

SCRIPT = (
    {"role": "agent", "answer": {"answer": "2"}},
    {"role": "reflector", "answer": {
        "reasoning": "r", "diagnosis": "d", "cause": "c", "correction": "c", "tags": [],
        "insights": [{"section": "rules", "text": "Add the numbers."}],
    }},
    {"role": "curator", "answer": {"changes": [{"op": "ADD", "insights": [1]}]}},
)  # fmt: skip

CASES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("no such file", ("learn", "none.jsonl", *SCRIPTED), 2),
    ("a folder in place of a file", ("learn", ".", *SCRIPTED), 2),
    *((f"tasks: {what}", ("learn", name, *SCRIPTED), 2) for what, (name, _) in FILES.items()),
    *((f"tasks: {what}", ("learn", name, *SCRIPTED, "--out", name[:-6]), 0) for what, (name, _) in HANDLED.items()),
    ("no model is named", LEARN, 2),
    ("an unknown model", (*LEARN, "--model", "gpt-9"), 2),
    ("no key", (*LEARN, "--model", "openai:gpt-4.1-mini"), 2),
    ("no key of another provider", (*LEARN, "--model", "anthropic:claude-haiku-4-5"), 2),
    ("an address with a password", (*LEARN, "--model", "http://me:secret@localhost:1/v1#small"), 2),
    ("an address without a model", (*LEARN, "--model", "http://localhost:1/v1"), 2),
    ("a server that is down", (*LEARN, "--model", "{down}"), 1),
    ("`run`: a server that is down", ("run", "2 + 2", "--context", "book.md", "--model", "{down}"), 1),
    ("`eval`: a server that is down", ("eval", "{tasks}", "--context", "book.md", "--model", "{down}"), 1),
    ("a wrong key (401)", (*LEARN, "--model", "{e401}"), 1),
    ("a wrong model name (404)", (*LEARN, "--model", "{e404}"), 1),
    ("a page of HTML", (*LEARN, "--model", "{ehtml}"), 1),
    ("errors of the server (500)", (*LEARN, "--model", "{e500}"), 1),
    ("a rate limit that does not end (429)", (*LEARN, "--model", "{e429}"), 1),
    ("no credit left", (*LEARN, "--model", "{eno-credit}"), 1),
    ("a content filter that refuses every request", (*LEARN, "--model", "{econtent-filter}"), 1),
    ("`eval`: an unknown 400 for every request", ("eval", "{tasks}", "--model", "{eunknown-400}"), 1),
    ("model options that are no JSON", (*LEARN, *SCRIPTED, "--model-options", "thinking=off"), 2),
    (
        "a secret in a header",
        (*LEARN, *SCRIPTED, "--model-options", '{{"headers": {{"X-Api-Key": "abc"}}}}'),
        2,
    ),
    ("answers without text", (*LEARN, "--model", "{eempty}"), 1),
    ("refusals", (*LEARN, "--model", "{erefusal}"), 1),
    ("`eval`: thoughts up to the output limit", ("eval", "{tasks}", "--model", "{ereasoning}"), 1),
    ("a negative budget", (*LEARN, *SCRIPTED, "--max-usd", "-1"), 2),
    ("a budget of zero", (*LEARN, *SCRIPTED, "--max-calls", "0"), 2),
    ("a budget too small for a step", (*LEARN, *SCRIPTED, "--max-calls", "1"), 2),
    ("a budget too small for the final evaluation", (*LEARN, *SCRIPTED, "--max-calls", "3", "--test", "{tasks}"), 2),
    ("a budget in dollars, no price known", (*LEARN, "--model", "{down}", "--max-usd", "1"), 2),
    ("a price that is none", (*LEARN, "--model", "{down}", "--price", "in=cheap"), 2),
    ("an unknown method", (*LEARN, *SCRIPTED, "--method", "acee"), 2),
    ("an unknown setting", (*LEARN, *SCRIPTED, "--set", "bacth=3"), 2),
    ("a setting of a wrong type", (*LEARN, *SCRIPTED, "--set", "rounds=many"), 2),
    ("an unknown role", (*LEARN, *SCRIPTED, "--role", "critic=scripted:model"), 2),
    ("an unknown embedder", (*LEARN, *SCRIPTED, "--embedder", "word2vec"), 2),
    ("an unknown scorer", (*LEARN, *SCRIPTED, "--scorer", "vibes"), 2),
    ("an unknown agent", (*LEARN, "--agent", "chatt"), 2),
    ("trusted tools, but no tools", (*LEARN, *SCRIPTED, "--trust-tools"), 2),
    ("an agent that cannot be imported", (*LEARN, *SCRIPTED, "--agent", "agents_here:nobody"), 2),
    ("a program that does not exist", (*LEARN, *SCRIPTED, "--agent", "command:./nobody"), 2),
    ("no choice in --choices", (*LEARN, *SCRIPTED, "--choices", ""), 2),
    ("one choice in --choices", (*LEARN, *SCRIPTED, "--choices", "2"), 2),
    ("an option of nothing", (*LEARN, "--modle", "local"), 2),
    ("an agent that always raises", (*LEARN, *SCRIPTED, "--agent", "agents_here:raises"), 1),
    ("an agent with one parameter", (*LEARN, *SCRIPTED, "--agent", "agents_here:one_argument"), 2),
    ("an agent that returns nothing", (*LEARN, *SCRIPTED, "--agent", "agents_here:returns_none"), 1),
    ("a program that fails", (*LEARN, *SCRIPTED, "--agent", "command:false"), 1),
    ("a scorer that raises", (*LEARN, *SCRIPTED, "--scorer", "agents_here:score_raises"), 1),
    ("a scorer that returns 17", (*LEARN, *SCRIPTED, "--scorer", "agents_here:score_17"), 1),
    ("an --out that holds a run", ("learn", "{tasks}", *SCRIPTED, "--out", "run"), 1),
    ("a folder that is no run", ("show", "empty"), 2),
    ("`resume`: a folder that is no run", ("space", "resume", "empty"), 2),
    ("`resume`: a run that is finished", ("space", "resume", "run"), 2),
    ("a damaged database", ("show", "damaged"), 1),
    ("a run of a newer version", ("show", "newer"), 1),
    ("a run made elsewhere", ("run", "2 + 2", "--context", "theirs", *SCRIPTED), 2),
    ("a database with a trigger", ("show", "active"), 1),
    ("a run that another process writes", ("space", "rollback", "busy", "0", "--yes"), 1),
    ("a version that does not exist", ("show", "run", "--version", "99"), 2),
    ("an entry that does not exist", ("show", "run", "--entry", "e99"), 2),
    ("`review`: an id that does not wait", ("review", "run", "--approve", "9.9"), 2),
    ("`review`: --reason without --reject", ("review", "run", "--reason", "wrong"), 2),
    ("an attempt that does not exist", ("show", "run", "--attempt", "9.t9"), 2),
    ("`export`: an unknown format", ("export", "run", "--format", "yaml"), 2),
    ("`export`: a folder that does not exist", ("export", "run", "--output", "none/x.md"), 0),
    ("`run`: an empty query", ("run", " ", "--context", "run"), 2),
    ("`run`: a context that does not exist", ("run", "2 + 2", "--context", "nowhere"), 2),
    ("`rollback` where nobody can answer", ("space", "rollback", "run", "0"), 2),
    ("`forget`: an unknown task", ("space", "forget", "run", "--task", "t99", "--yes"), 2),
    ("a mistyped command", ("lern", "{tasks}"), 2),
)
"""What is wrong, the command, and its exit code."""


CODES: dict[str, tuple[str, ...]] = {
    "agent.always_failed": ("an agent that always raises", "an agent that returns nothing", "a program that fails"),
    "agent.cannot_start": ("a program that does not exist",),
    "agent.invalid": ("an agent with one parameter",),
    "agent.unknown": ("an unknown agent",),
    "attempt.unknown": ("an attempt that does not exist",),
    "attempts.all_failed": (
        "a server that is down",
        "a page of HTML",
        "errors of the server (500)",
        "a rate limit that does not end (429)",
        "a content filter that refuses every request",
        "`eval`: an unknown 400 for every request",
        "answers without text",
        "refusals",
        "`eval`: thoughts up to the output limit",
    ),
    "budget.too_small": ("a budget too small for a step", "a budget too small for the final evaluation"),
    "code.cannot_load": ("an agent that cannot be imported",),
    "command.invalid": (
        "a budget of zero",
        "an option of nothing",
        "`export`: an unknown format",
        "a mistyped command",
    ),
    "embedder.unknown": ("an unknown embedder",),
    "entry.unknown": ("an entry that does not exist",),
    "extra.missing": ("no key of another provider",),
    "method.unknown": ("an unknown method",),
    "model.invalid_name": ("an address without a model",),
    "model.key_refused": ("a wrong key (401)",),
    "model.missing": ("no model is named",),
    "model.no_credit": ("no credit left",),
    "model.no_key": ("no key",),
    "model.not_found": ("a wrong model name (404)",),
    "model.unknown": ("an unknown model",),
    "model.unreachable": ("`run`: a server that is down", "`eval`: a server that is down"),
    "model.unsafe_key": ("an address with a password",),
    "playbook.not_found": ("`run`: a context that does not exist",),
    "price.invalid": ("a price that is none",),
    "price.unknown": ("a budget in dollars, no price known",),
    "query.empty": ("`run`: an empty query",),
    "review.unknown": ("`review`: an id that does not wait",),
    "role.unknown": ("an unknown role",),
    "run.exists": ("an --out that holds a run",),
    "run.finished": ("`resume`: a run that is finished",),
    "run.not_found": ("a folder that is no run", "`resume`: a folder that is no run"),
    "run.untrusted": ("a run made elsewhere",),
    "scorer.failed": ("a scorer that raises", "a scorer that returns 17"),
    "scorer.unknown": ("an unknown scorer",),
    "settings.invalid": (
        "model options that are no JSON",
        "a secret in a header",
        "a negative budget",
        "a setting of a wrong type",
        "no choice in --choices",
        "one choice in --choices",
    ),
    "settings.unknown": ("an unknown setting",),
    "settings.unused": ("trusted tools, but no tools", "`review`: --reason without --reject"),
    "source.unknown": ("`forget`: an unknown task",),
    "store.busy": ("a run that another process writes",),
    "store.damaged": ("a damaged database",),
    "store.unknown_format": ("a run of a newer version",),
    "store.unsafe": ("a database with a trigger",),
    "tasks.ambiguous_format": ("tasks: several lists",),
    "tasks.damaged": ("tasks: a gzip that is cut",),
    "tasks.duplicate_id": ("tasks: an id that comes twice",),
    "tasks.empty": ("tasks: an empty file",),
    "tasks.invalid_field": ("tasks: a number as input",),
    "tasks.malformed": (
        "tasks: a list",
        "tasks: cut JSON",
        "tasks: CSV with a column too many",
        "tasks: half a surrogate pair",
    ),
    "tasks.missing_field": ("tasks: CSV", "tasks: a blank input", "tasks: no input"),
    "tasks.no_target": ("tasks: no target",),
    "tasks.not_found": ("no such file", "a folder in place of a file"),
    "tasks.unknown_format": ("tasks: a zip archive",),
    "text.not_utf8": ("tasks: a binary file", "tasks: Latin-1"),
    "version.unchanged": ("`rollback` where nobody can answer",),
    "version.unknown": ("a version that does not exist",),
}
"""Error codes, each with the cases that get it."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with every bad file, and servers that fail; each by its name."""
    here = tmp_path_factory.mktemp("bad")
    for name, content in (*FILES.values(), *HANDLED.values()):
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    write_tasks(here / "tasks.jsonl", make_tasks(4))
    (here / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n")
    (here / "agents_here.py").write_text(AGENTS)
    (here / "book.md").write_text("## rules\n- Add the numbers.\n")
    (here / "empty").mkdir()
    seed = run_command(("space", "import", "book.md", "--out", "run"), here)
    assert seed.code == 0
    for copy in ("damaged", "newer", "busy", "theirs", "active"):
        shutil.copytree(here / "run", here / copy)
    raw = bytearray((here / "damaged" / "practicum.sqlite").read_bytes())
    raw[100:4000] = b"x" * 3900
    (here / "damaged" / "practicum.sqlite").write_bytes(bytes(raw))
    with sqlite3.connect(here / "newer" / "practicum.sqlite") as db:
        db.execute("pragma user_version = 99")
    db.close()
    with sqlite3.connect(here / "theirs" / "practicum.sqlite") as db:
        db.execute("update spaces set config = json_set(config, '$.agent', 'shop:act')")
    db.close()
    with sqlite3.connect(here / "active" / "practicum.sqlite") as db:
        db.execute("create trigger emptied after update on spaces begin delete from versions; end")
    db.close()
    with ExitStack() as stack:
        names = {"tasks": "tasks.jsonl", "down": "http://127.0.0.1:9/v1#small"}
        faults = {
            name: name
            for name in (
                "401",
                "404",
                "html",
                "500",
                "429",
                "empty",
                "refusal",
                "no-credit",
                "content-filter",
                "unknown-400",
            )
        }
        for fault, behaviour in {**faults, "reasoning": "only-reasoning-content"}.items():
            server = stack.enter_context(start_process(behaviours=((behaviour, 1),)))
            names[f"e{fault}"] = f"{server.url}#small"
        yield here, names


@pytest.mark.slow
def test_each_bad_input_ends_as_the_documentation_says(
    places: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, names = places
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    expected = {case: code for code, cases in CODES.items() for case in cases}
    wrong = []
    for what, command, status in CASES:
        arguments = [part.format(**names) for part in command]
        with Store.open(here / "busy") if "busy" in command else ExitStack():
            done = run_command([*arguments, "--json"], here)
        if "new" in command:
            shutil.rmtree(here / "new", ignore_errors=True)
        lines = [line for line in done.err.splitlines() if line.startswith("practicum: ")]
        code = json.loads(done.out)["error"]["code"] if done.code else None
        if "Traceback" in done.err or (status and len(lines) != 1):
            wrong.append(f"{what}: {done.err}")
        if (done.code, code) != (status, expected.get(what)):
            wrong.append(f"{what}: exit {done.code} with {code}, not {status} with {expected.get(what)}: {done.err}")
    assert not wrong, "\n".join(wrong)
