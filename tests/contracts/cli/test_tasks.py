"""Files of tasks, advice, public data sets, scorers, and the sandbox for code from a model."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import practicum
from practicum import Count

from .kit import Model, Shell, write_lines

ONE = {"id": "a", "input": "say one", "target": "one"}
TWO = {"id": "b", "input": "say two", "target": "two"}
AGENT = "def last(text, context):\n    return text.split()[-1]\n"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with an agent that answers with the last word of its task."""
    folder = Shell(tmp_path)
    folder.file("last_word.py", AGENT)
    return folder


def table(separator: str) -> bytes:
    return "".join(separator.join(row) + "\r\n" for row in ([*ONE], ONE.values(), TWO.values())).encode()


LINES = b"".join(json.dumps(task).encode() + b"\n" for task in (ONE, TWO))
FILES: dict[str, bytes] = {
    "JSON lines": LINES,
    "a JSON array": json.dumps([ONE, TWO], indent=1).encode(),
    "a JSON object with one list": json.dumps({"version": "1.1", "data": [ONE, TWO]}).encode(),
    "CSV": table(","),
    "TSV": table("\t"),
    "a packed table": gzip.compress(table(",")),
    "a byte order mark and Windows line ends": b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n"),
}


def test_tasks_are_read_from_any_kind_of_file_by_its_content(shell: Shell) -> None:
    for kind, content in FILES.items():
        (shell / "tasks.any").write_bytes(content)
        tasks = practicum.load_tasks(shell / "tasks.any")
        assert [(t.id, t.input, t.target) for t in tasks] == [("a", "say one", "one"), ("b", "say two", "two")], kind
    value = shell.json("eval tasks.any --agent last_word:last")
    assert [(a["id"], a["correct"]) for a in value["attempts"]] == [("a", True), ("b", True)]
    # Fields may have other names, and lines are ids.
    write_lines(shell / "tasks.jsonl", [{"question": "say one", "answer": "one"}, {"question": "x", "answer": "x"}])
    value = shell.json("eval tasks.jsonl --fields input=question,target=answer --agent last_word:last")
    assert [(a["id"], a["value"]) for a in value["attempts"]] == [("line-1", 1), ("line-2", 1)]


ASKED, REPLIED = {"role": "user", "content": "say one"}, {"role": "assistant", "content": "one"}
SHAPES: dict[str, tuple[Any, str]] = {
    "fine-tuning": ({"messages": [{"role": "system", "content": "Obey."}, ASKED, REPLIED]}, "messages"),
    "ShareGPT": ({"conversations": [
        {"from": "human", "value": "say one"}, {"from": "gpt", "value": "one"}]}, "conversations"),
    "evals": ({"input": [ASKED], "ideal": ["one", "1"]}, "input`/`ideal"),
    "completion": ({"prompt": "say one", "completion": " one"}, "prompt`/`completion"),
    "a chat to complete": ({"prompt": [ASKED], "completion": [REPLIED]}, "prompt`/`completion"),
    "question": ({"question": "say one", "answer": "one"}, "question`/`answer"),
    "query": ({"query": "say one", "response": "one"}, "query`/`response"),
    "Alpaca": (
        {"instruction": "say", "input": "", "output": "one", "history": [["a", "b"]]}, "instruction`/`input`/`output"),
    "datasets server": ({"features": [{"name": "question"}], "rows": [
        {"row_idx": 0, "row": {"question": "say one", "answer": "one", "x": "cut"}, "truncated_cells": ["x"]},
    ]}, "question`/`answer"),
    "a conversation": ({"input": [{"role": "user", "content": "Hi."}, REPLIED, ASKED], "target": "one"}, ""),
}  # fmt: skip


def test_the_shapes_of_other_files_are_recognized_and_reported(shell: Shell) -> None:
    for kind, (record, shape) in SHAPES.items():
        write_lines(shell / "tasks.any", [record])
        (task,) = practicum.load_tasks(shell / "tasks.any")
        assert (task.input.split()[0], task.target) == ("say", "one"), kind
        assert (bool(task.history), task.system) == (
            kind in ("Alpaca", "a conversation"),
            "Obey." * (kind == "fine-tuning"),
        )
        done = shell("eval tasks.any --agent last_word:last --json")
        assert (f"`{shape}`" in done.err) == bool(shape), kind
    # A question about a text in another field is not the whole task, and a public data set is converted.
    write_lines(shell / "tasks.any", [{"question": "Who?", "context": "It was Ada.", "answer": "Ada"}])
    shell.fails("eval tasks.any --agent last_word:last", error="tasks.missing_field")
    write_lines(shell / "tasks.any", [{"question": "2+2?", "answer": "2+2=4\n#### 4"}])
    shell.fails("eval tasks.any --agent last_word:last", error="tasks.are_data_set")


def test_the_agent_sees_the_turns_of_a_conversation(shell: Shell, model: Model) -> None:
    texts = {"system": "Obey.", "user": "Hi.", "assistant": "Hello."}
    turns = [{"role": role, "content": text} for role, text in texts.items()]
    turns.append({"role": "user", "content": "It rains in the cellar."})
    write_lines(shell / "tasks.jsonl", [{"id": "t", "input": turns, "target": "K2"}])
    shell.json(f"learn tasks.jsonl --method ace --model {model.name} --out run")
    sent = model.bodies[0]["messages"]
    assert sent[0]["content"].startswith("Obey.")
    assert sent[1:] == turns[1:]
    assert any("User: Hi.\n\nAgent: Hello." in json.dumps(body).replace("\\n", "\n") for body in model.bodies[1:])
    assert "Agent: Hello." in shell.json("show run --attempts")["attempts"][0]["input"]
    # A function gets the messages, and an export can be read again.
    (shell / "seen.py").write_text(
        "def agent(input, context, messages):\n    return 'K2' if [m['role'] for m in messages][1:] == "
        "['user', 'assistant', 'user'] and input.startswith('Obey.') else 'K5'\n"
    )
    assert shell.json("eval tasks.jsonl --agent seen:agent")["score"] == 1


def test_scorers_read_meta_fields_and_models_do_not(shell: Shell, model: Model) -> None:
    write_lines(
        shell / "tasks.jsonl", [{"input": "say one", "hint": "zebra"}, {"input": "x", "meta": {"hint": "zebra"}}]
    )
    shell.file("hinted.py", "def score(task, answer):\n    return task.meta['hint'] == 'zebra'\n")
    assert shell.json(f"eval tasks.jsonl --model {model.name} --scorer hinted:score")["score"] == 1.0
    assert len(model.texts) == 2
    assert not any("zebra" in text for text in model.texts)


BAD: dict[str, tuple[bytes | None, str]] = {
    "no file": (None, "tasks.not_found"),
    "an empty file": (b"", "tasks.empty"),
    "a list of numbers": (b"[1, 2]\n", "tasks.malformed"),
    "cut JSON": (b'{"input": "1 +\n', "tasks.malformed"),
    "no UTF-8": ('{"input": "für"}\n'.encode("latin-1"), "text.not_utf8"),
    "a binary file": (b"\x89PNG\r\n\x1a\n\x00\x00", "text.not_utf8"),
    "no input": (b'{"question": "a"}\n', "tasks.missing_field"),
    "a blank input": (b'{"input": " ", "target": "x"}\n', "tasks.missing_field"),
    "a number as input": (b'{"input": 7}\n', "tasks.invalid_field"),
    "an id that comes twice": (LINES + LINES, "tasks.duplicate_id"),
    "no target": (b'{"input": "a"}\n', "tasks.no_target"),
    "too many columns": (b"input,target\na,b,c\n", "tasks.malformed"),
    "several lists": (json.dumps({"train": [ONE], "test": [TWO]}).encode(), "tasks.ambiguous_format"),
    "a cut gzip": (gzip.compress(LINES)[:-4], "tasks.damaged"),
    "another archive": (b"PK\x03\x04", "tasks.unknown_format"),
}


def test_an_unusable_file_is_refused_before_the_first_call_with_its_line_and_field(shell: Shell, model: Model) -> None:
    write_lines(shell / "good.jsonl", [ONE])
    commands = ["eval bad.jsonl", "learn bad.jsonl --out run", "learn good.jsonl --test bad.jsonl --out run",
                "learn good.jsonl --val bad.jsonl --out run"]  # fmt: skip
    for number, (kind, (content, error)) in enumerate(BAD.items()):
        if content is not None:
            (shell / "bad.jsonl").write_bytes(content)
        for typed in commands if not number else commands[number % 4 :][:1]:
            shell.fails(f"{typed} --model {model.name}", error=error)
        (shell / "bad.jsonl").unlink(missing_ok=True)
        assert not (shell / "run").exists(), kind
    assert model.bodies == []
    (shell / "bad.jsonl").write_bytes(LINES + b'{"question": "a"}\n')
    line = shell.fails("eval bad.jsonl --agent last_word:last", error="tasks.missing_field")
    assert all(part in line for part in ("bad.jsonl", "line 3", "'input'"))


def test_advise_names_a_method_its_reason_its_price_and_a_command_that_learn_takes(shell: Shell) -> None:
    """Nothing is asked and nothing is written."""
    tasks = [{"input": f"where is my card {n}", "target": "cards"} for n in range(20)]
    tasks += [{"input": f"money back please {n}", "target": "refunds"} for n in range(20)]
    write_lines(shell / "train.jsonl", tasks)
    write_lines(shell / "test.jsonl", [{"input": "my card is lost", "target": "cards"}])
    before = {*shell.folder.iterdir()}
    value = shell.json("bench advise train.jsonl --test test.jsonl --model openai:gpt-4.1-mini")
    assert {*shell.folder.iterdir()} == before
    assert (value["tasks"], value["model"], value["method"]) == ("choices", "capable", "episodes")
    assert value["reason"]
    assert value["nearest"]["right"] > 0.9
    assert (value["learning"]["calls"], value["evaluation"]["calls"]) == (0, 1)
    words = shlex.split(value["command"])
    assert words[:3] == ["practicum", "learn", "train.jsonl"]
    shell.file("model.jsonl", '{"role": "agent", "answer": {"answer": "cards"}}\n')
    words[words.index("openai:gpt-4.1-mini")] = "scripted:model.jsonl"
    assert shell.json("", *words[1:], "--out", "run")["scores"] == {"test": 1.0}


def test_advise_distinguishes_kinds_of_tasks_and_models_and_heeds_the_budget(shell: Shell) -> None:
    for target, options, tasks, model in (
        (lambda n: "ab"[n % 2], "", "choices", "capable"),
        (lambda n: f"answer {n}", "--profile small", "answers", "small"),
        (lambda n: None, "--scorer judge --model local", "text", "tiny"),
        (lambda n: "x" * 90, "", "text", "capable"),
        (lambda n: f"a {n}", "--no-labels --judge", "text", "capable"),
    ):
        write_lines(shell / "train.jsonl", [{"input": f"q{n}", "target": target(n)} for n in range(20)])
        value = shell.json(f"bench advise train.jsonl {options}")
        assert (value["tasks"], value["model"]) == (tasks, model)
    write_lines(shell / "train.jsonl", [{"input": f"q{n}", "target": f"answer {n}"} for n in range(40)])
    free, bound = shell.json("bench advise train.jsonl"), shell.json("bench advise train.jsonl --max-calls 20")
    assert free["learning"]["calls"] > 20
    assert (free["method"], bound["method"], len(bound["notes"])) == ("ace", "episodes", 1)


def test_a_checked_advice_pays_on_held_out_tasks_or_is_none(shell: Shell) -> None:
    tasks = [{"input": f"where is my card {n}", "target": "cards"} for n in range(24)]
    tasks += [{"input": f"money back please {n}", "target": "refunds"} for n in range(24)]
    write_lines(shell / "train.jsonl", tasks)
    shown = {"role": "agent", "match": r"please \d+\nrefunds\n(?s:.*)money back please \d+$", "answer": "refunds"}
    other = {"role": "agent", "answer": "cards"}
    write_lines(shell / "learns.jsonl", [shown, other])
    write_lines(shell / "stays.jsonl", [other])
    command = "bench advise train.jsonl --check --out {0} --model scripted:{0}.jsonl"
    value = shell.json(command.format("learns"))
    assert (value["method"], value["check"]["method"], value["check"]["held_out"]) == ("episodes", "episodes", 16)
    assert value["check"]["scores"]["episodes"] == 1.0 > value["check"]["scores"]["none"]
    value = shell.json(command.format("stays"))
    assert (value["method"], value["check"]["scores"].keys()) == ("none", {"none", "episodes", "icl"})
    assert "--method none" in value["command"]
    assert value["learning"]["calls"] == 0
    # The same command continues the check, and the limits are for all its runs together.
    assert shell.json(command.format("learns"))["check"]["scores"]["episodes"] == 1.0
    shell.fails("bench advise train.jsonl --check --max-calls 3 --model scripted:stays.jsonl", error="budget.too_small")
    shell.fails("bench advise train.jsonl --check", error="settings.missing")
    shell.fails("bench advise train.jsonl --out c --model scripted:stays.jsonl", error="settings.unused")
    write_lines(shell / "train.jsonl", tasks[:20])
    shell.fails("bench advise train.jsonl --check --model scripted:stays.jsonl", error="tasks.missing")


HEAD = "You know XBRL. Here is a list of US GAAP tags options: ,A,B."
ASK = " Answer the following 1 independent questions by 1 answers. Provide nothing else. \n"
SETS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "humaneval": ({"task_id": "H/0", "prompt": "def f():\n    '''One.'''\n", "canonical_solution": "    return 1\n",
                   "test": "def check(c):\n    assert c() == 1\n", "entry_point": "f"},
                  {"target": "def f():\n    '''One.'''\n    return 1\n"}, "tests"),
    "gsm8k": ({"question": "1000 and 1?", "answer": "Add <<1000+1=1001>>them.\n#### 1,001"},
              {"input": "1000 and 1?", "target": "Add them.\n#### 1,001"}, "numeric"),
    "commongen": ({"concepts": ["dog", "run"]}, {"input": "dog, run"}, "commongen"),
    "mmlu": ({"question": "Which?", "choices": ["x", "y"], "answer": 1, "subject": "law"},
             {"input": "Which?\nA. x\nB. y", "target": "B"}, "choice"),
    "finer": ({"context": f"{HEAD}{ASK}1. Which tag has 7?\nOutput US GAAP tags:", "target": "A"},
              {"input": "1. Which tag has 7?", "target": "A"}, "list"),
    "formula": ({"context": "Use formula Ratio (R) to answer the question. Formula: R = a / b, Explanation: a: one."
                            ' Question:  "How large is R for 1 and 2?". Answer:', "target": "0.5"},
                {"input": "How large is R for 1 and 2?", "target": "0.5"}, "numeric"),
    "rewardbench2": ({"id": "7", "prompt": "Say hi.", "chosen": ["Hi!"], "rejected": ["No.", "Why?", "Bye."],
                      "subset": "Focus"}, {"id": "7"}, "choice"),
    "ddxplus": ({"PATIENT_PROFILE": "Coughs. ", "PATHOLOGY": "URTI", "AGE": 5},
                {"input": "Coughs.", "target": "URTI"}, "choice"),
    "hotpotqa": ({"id": "q1", "question": "Who?", "answer": "Ann",
                  "context": {"title": ["T", "U"], "sentences": [["Ann did.", " Yes."], ["Nothing."]]}},
                 {"id": "q1", "input": "T: Ann did. Yes.\n\nU: Nothing.\n\nQuestion: Who?", "target": "Ann"}, "squad"),
    "classification": ({"text": "Where is my card?", "category": "arrival"},
                       {"input": "Where is my card?", "target": "arrival"}, "choice"),
    "srdd": ({"Name": "Till", "Description": "Adds up prices.", "Category": "Shop"}, {}, "software"),
}  # fmt: skip


def test_the_file_of_a_data_set_becomes_tasks_with_fitting_options(shell: Shell) -> None:
    for name, (record, expected, scorer) in SETS.items():
        second = {**record, **({"category": "hello"} if name == "classification" else {})}
        second = {**second, **({"PATHOLOGY": "Flu"} if name == "ddxplus" else {})}
        second = {key: f"{value}x" if key in ("task_id", "id") else value for key, value in second.items()}
        write_lines(shell / "data.jsonl", [record, second])
        before = {*shell.folder.iterdir()}
        value = shell.json("bench tasks data.jsonl")
        assert (value["format"], value["tasks"], value["scorer"], value["out"]) == (name, 2, scorer, None)
        assert {*shell.folder.iterdir()} == before  # without --out nothing is written
        assert shell.json(f"bench tasks data.jsonl --format {name} --out {name}.jsonl")["out"] == f"{name}.jsonl"
        (task, *_) = (json.loads(line) for line in (shell / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
        assert {key: task[key] for key in expected} == expected
        assert (shell / f"{name}.instructions.txt").read_text(encoding="utf-8").strip() == value["instructions"]
        assert (shell / f"{name}.choices.txt").exists() == bool(value["choices"])


def scored(shell: Shell, scorer: str, answer: str, task: dict[str, Any], *more: str) -> dict[str, Any]:
    """The attempt of an agent that gives this answer."""
    write_lines(shell / "tasks.jsonl", [{"input": "q", **task}])
    write_lines(shell / "model.jsonl", [{"role": "agent", "match": "^", "answer": answer.replace("\\", "\\\\")}])
    value = shell.json(f"eval tasks.jsonl --model scripted:model.jsonl --scorer {scorer}", *more)
    (attempt,) = value["attempts"]
    return {**attempt, "counts": value["counts"]}


def test_coverage_is_a_share_of_concepts_and_a_judge_scores_an_answer(shell: Shell, model: Model) -> None:
    attempt = scored(shell, "coverage", "Two dogs ran.", {"meta": {"concepts": ["dog", "run", "cat"]}})
    assert attempt["value"] == pytest.approx(2 / 3)
    how = f"--agent last_word:last --scorer judge --role judge={model.name} --model {model.name}"
    value = shell.json(f"eval tasks.jsonl {how}")
    assert value["by_role"]["judge"]["calls"] == 1
    assert value["score"] in (0.0, 1.0)


def test_a_function_of_the_user_scores_and_its_failure_names_the_task(shell: Shell) -> None:
    shell.file(
        "own_scorer_b.py",
        "def quarter(task, answer):\n    return 0.25\n\ndef yes(task, answer):\n    return True\n\n"
        "def high(task, answer):\n    return 7\n\ndef bad(task, answer):\n    raise KeyError(1)\n",
    )
    write_lines(shell / "tasks.jsonl", [ONE])
    evaluate = "eval tasks.jsonl --agent last_word:last --scorer own_scorer_b"
    for scorer, value in (("quarter", 0.25), ("yes", 1.0)):
        assert shell.json(f"{evaluate}:{scorer}")["score"] == value
    for scorer in ("high", "bad"):
        line = shell.fails(f"{evaluate}:{scorer}", error="scorer.failed", code=1)
        assert f"own_scorer_b:{scorer}" in line
        assert "'a'" in line


def test_a_task_without_the_data_of_its_scorer_is_refused(shell: Shell, model: Model) -> None:
    write_lines(shell / "tasks.jsonl", [{"input": "q"}])
    for scorer in ("exact", "tests", "coverage"):
        shell.fails(f"eval tasks.jsonl --model {model.name} --scorer {scorer}")
    for tests in (["x = 1"], ["def test_it():\n    assert add(1, 1) == 2"], ["assert 1 == 1"]):
        write_lines(shell / "tasks.jsonl", [{"input": "q", "meta": {"tests": tests}}])
        shell.fails(f"eval tasks.jsonl --model {model.name} --scorer tests")
    assert model.bodies == []


TESTS = {"meta": {"tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"], "entry_point": "add"}}
ANSWERS: dict[str, tuple[str, float, str]] = {
    "a function": ("def add(a, b):\n    return a + b\n", 1, ""),
    "a wrong one": ("def add(a, b):\n    return a - b\n", 0, ""),
    "no code": ("I cannot.", 0, ""),
    "no network": ("import socket\nsocket.socket()\ndef add(a, b):\n    return a + b\n", 0, "s"),
    "no new process": ("import os\nos.fork()\ndef add(a, b):\n    return a + b\n", 0, "s"),
    "no file outside": ("open('OUTSIDE', 'w').write('x')\ndef add(a, b):\n    return a + b\n", 0, "s"),
    "no reading of your files": ("open('SECRET').read()\ndef add(a, b):\n    return a + b\n", 0, "s"),
}  # fmt: skip


FAST = ("a function", "no file outside")


@pytest.mark.parametrize("kinds", [FAST, pytest.param({*ANSWERS} - {*FAST}, marks=pytest.mark.slow)])
def test_code_is_scored_by_its_tests_in_a_sandbox(shell: Shell, kinds: Iterable[str]) -> None:
    secret = shell.file("secret.txt", "zebra")
    for kind in kinds:
        answer, value, stopped = ANSWERS[kind]
        answer = answer.replace("OUTSIDE", str(shell / "written")).replace("SECRET", str(secret))
        try:
            attempt = scored(shell, "tests", answer, TESTS)
        except AssertionError as error:
            if "sandbox" in str(error):
                pytest.skip("this machine has no sandbox")
            raise
        assert attempt["value"] == value, kind
        assert bool(attempt["counts"].get(Count.STOPPED_PROGRAMS.value)) == bool(stopped)
        assert not (shell / "written").exists()
        assert value == 1 or attempt["note"]


@pytest.mark.slow
def test_a_small_project_is_run_and_measured(shell: Shell) -> None:
    task = {"input": "A till that adds up prices, one a line.", "entry": "main.py", "stdin": "3\n4\n"}
    answers = {
        "till": "main.py\n```python\nimport sys\nprint(sum(int(line) for line in sys.stdin))\n```",
        "open": "main.py\n```python\ndef total():\n    pass\n```",
    }
    shell.file(
        "projects.py", "".join(f"def {name}(text, context):\n    return {answers[name]!r}\n" for name in answers)
    )
    write_lines(shell / "tasks.jsonl", [task])
    value = shell.json("eval tasks.jsonl --agent projects:till --scorer software")
    measures = value["measures"]
    assert (measures["completeness"], measures["executability"]) == (1.0, 1.0)
    assert (measures["files"], measures["lines"]) == (1, 2)
    assert value["score"] == pytest.approx(measures["consistency"])
    assert shell.json("eval tasks.jsonl --agent projects:open --scorer software")["score"] == 0
