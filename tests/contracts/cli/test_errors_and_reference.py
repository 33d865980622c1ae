"""docs/errors.md and docs/reference.md: exit codes, one JSON object, models and their servers, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from practicum import Count

from .kit import INSTALLED, Body, Model, Shell, serving, started, write_lines

MODEL = "--model scripted:script.jsonl"

# ---- exit codes and lines

WRONG: dict[str, tuple[str, str]] = {
    "no model": ("learn train.jsonl", "model.missing"),
    "an unknown model": ("learn train.jsonl --model gpt-9", "model.unknown"),
    "no key": ("learn train.jsonl --model openai:gpt-4.1-mini", "model.no_key"),
    "an address with a password": ("learn train.jsonl --model http://me:secret@localhost:1/v1#m", "model.unsafe_key"),
    "an address without a model": ("learn train.jsonl --model http://localhost:1/v1", "model.invalid_name"),
    "model options": (f"learn train.jsonl {MODEL} --model-options thinking=off", "settings.invalid"),
    "a price": ("learn train.jsonl --model http://127.0.0.1:9/v1#x --price in=cheap", "price.invalid"),
    "an unknown method": (f"learn train.jsonl {MODEL} --method acee", "method.unknown"),
    "an unknown setting": (f"learn train.jsonl {MODEL} --set bacth=3", "settings.unknown"),
    "a setting of a wrong type": (f"learn train.jsonl {MODEL} --set rounds=many", "settings.invalid"),
    "an unknown role": (f"learn train.jsonl {MODEL} --role critic=local", "role.unknown"),
    "an unused role": (f"learn train.jsonl {MODEL} --method episodes --role reflector=local", "role.unused"),
    "an unknown embedder": (f"learn train.jsonl {MODEL} --embedder word2vec", "embedder.unknown"),
    "an unknown scorer": (f"learn train.jsonl {MODEL} --scorer vibes", "scorer.unknown"),
    "an unknown agent": ("learn train.jsonl --agent chatt", "agent.unknown"),
    "an agent that cannot be imported": (f"learn train.jsonl {MODEL} --agent nowhere_at_all:act", "code.cannot_load"),
    "a program that does not exist": (f"learn train.jsonl {MODEL} --agent command:./nobody", "agent.cannot_start"),
    "one choice": (f"learn train.jsonl {MODEL} --choices one", ""),
    "unsuitable choices": (f"eval train.jsonl {MODEL} --choices auto", ""),
    "an unknown tracker": (f"learn train.jsonl {MODEL} --log comet", "tracker.unknown"),
    "instructions": (f"learn train.jsonl {MODEL} --instructions @nowhere", "file.unreadable"),
    "a playbook": (f"learn train.jsonl {MODEL} --seed-playbook nowhere", "playbook.not_found"),
    "steps and epochs": (f"learn train.jsonl {MODEL} --steps 3 --epochs 2", ""),
    "a setting that is not used": (f"learn train.jsonl {MODEL} --method none --epochs 2", ""),
    "a version": ("show runs/first --version 99", "version.unknown"),
    "an entry": ("show runs/first --entry e99", "entry.unknown"),
    "an attempt": ("show runs/first --attempt 9.t9", "attempt.unknown"),
    "a review": ("review runs/first --approve 9.9", "review.unknown"),
    "a format": ("export runs/first --format yaml", "command.invalid"),
    "a query": ("run ' ' --context runs/first", "query.empty"),
    "a context": ("run hello --context nowhere", "playbook.not_found"),
    "no confirmation": ("space rollback runs/first 1", "confirmation.missing"),
    "the last version": ("space rollback runs/first 11 --yes", "version.unchanged"),
    "a source": ("space forget runs/first --task t99 --yes", "source.unknown"),
    "no run": ("show nowhere", "run.not_found"),
    "an option": ("learn train.jsonl --modle local", "command.invalid"),
    "a command": ("lern train.jsonl", "command.invalid"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_use_ends_with_2_one_line_and_a_code_before_anything_is_made(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    typed, error = WRONG[kind]
    shell.fails(f"{typed}{' --out made' if typed.startswith('learn') else ''}", error=error)
    assert not (shell / "made").exists()


@pytest.mark.parametrize(
    ("typed", "meant"),
    {"lern": "practicum learn", "resume": "practicum space resume", "rolback run 1": "practicum space rollback",
     "list": "practicum space memory list or practicum key list",
     "methods": "practicum bench methods",
     "space memory serch": "practicum space memory search"}.items(),
)  # fmt: skip
def test_a_wrong_command_names_the_one_that_is_meant(workshop: Shell, typed: str, meant: str) -> None:
    assert f"did you mean {meant}?" in workshop.fails(typed, error="command.invalid")


def test_the_help_of_a_wrong_command_names_the_one_that_is_meant(workshop: Shell) -> None:
    assert "did you mean practicum learn?" in workshop("help lern", code=2).line


@pytest.mark.parametrize("kind", ["401", "402", "403", "404"])
def test_a_failure_of_the_provider_ends_with_1_and_says_that_nothing_was_paid_for(shell: Shell, kind: str) -> None:
    write_lines(shell / "failing.jsonl", [{"error": kind}])
    line = shell.fails("learn train.jsonl --model scripted:failing.jsonl --out made", code=1)
    assert "Nothing was paid for yet" in line


def test_a_server_that_is_down_ends_with_1(shell: Shell) -> None:
    down = "http://127.0.0.1:9/v1#x"
    assert down in shell.fails(f"eval test.jsonl --model {down}", code=1)
    assert down in shell.fails(f"run hello --context runs/first --model {down}", code=1)


def test_a_spent_budget_ends_with_0(shell: Shell) -> None:
    assert shell.json(f"learn train.jsonl {MODEL} --choices auto --max-calls 9 --out run")["stopped"]


@pytest.mark.parametrize("body", ["raise RuntimeError('no route')", "return None"])
def test_an_agent_that_always_fails_ends_with_1(shell: Shell, body: str) -> None:
    name = f"failing_agent_{len(body)}"
    shell.file(f"{name}.py", f"def act(text, context):\n    {body}\n")
    shell.fails(f"learn train.jsonl --agent {name}:act {MODEL} --out run", error="agent.always_failed", code=1)


def test_an_agent_with_the_wrong_parameters_ends_with_2(shell: Shell) -> None:
    shell.file("one_parameter.py", "def act(text):\n    return text\n")
    shell.fails(f"learn train.jsonl --agent one_parameter:act {MODEL} --out run", error="agent.invalid")


@pytest.mark.slow
def test_debug_adds_a_traceback(shell: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from practicum.cli.app import main; main()", "show", "nowhere", "--debug"],
        cwd=shell.folder, env={"PYTHONPATH": INSTALLED, "PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("practicum: ")


def test_a_reader_that_leaves_is_no_failure(workshop: Shell) -> None:
    with started(workshop.folder, "show", "runs/first", "--calls") as process:
        assert process.process.stdout is not None
        process.process.stdout.close()
        process.process.stdout = None
        assert process.end().code == 0


def test_the_output_of_your_functions_is_separate_from_the_json(shell: Shell) -> None:
    shell.file("printing_agent.py", "def act(text, context):\n    print('at work')\n    return 'K5'\n")
    done = shell("eval test.jsonl --agent printing_agent:act --json")
    assert done.json["n"] == 4
    assert done.err.count("at work") == 4


def test_the_shell_can_complete_commands(workshop: Shell) -> None:
    assert "--install-completion" in workshop("--help").out


# ---- models and servers


def test_one_model_on_several_servers_goes_on_where_one_is_down(shell: Shell, model: Model) -> None:
    down = "http://127.0.0.1:9/v1"
    value = shell.json(f"learn train.jsonl --test test.jsonl --method none --model {down},{model.name} --out run")
    assert len(model.bodies) == 4
    assert value["errors"].get(Count.MOVED_CALLS.value, 0) >= 0
    with serving() as second:
        value = shell.json(f"eval test.jsonl --model {model.url},{second.name}")
        assert value["n"] == 4
        assert len(model.bodies) - 4 + len(second.bodies) == 4
    shell.fails(f"eval test.jsonl --model {model.url},{model.name}")


def test_a_role_gets_its_own_model(shell: Shell, model: Model) -> None:
    learn = f"learn train.jsonl --batch-size 8 --choices auto {MODEL} --out run"
    used = shell.json(f"{learn} --role reflector={model.name} --role mutator={model.name}")["by_role"]
    assert len(model.bodies) == used["reflector"]["calls"] + used.get("curator", {"calls": 0})["calls"]
    assert used["agent"]["calls"] >= 8


def test_sampling_and_limits_reach_every_request(shell: Shell, model: Model) -> None:
    shell.json(f"eval test.jsonl --model {model.name} --temperature 0.5 --max-output-tokens 77 --seed 5")
    assert {(body["temperature"], body["max_tokens"]) for body in model.bodies} == {(0.5, 77)}


@pytest.mark.parametrize("structure", ["native", "tool", "prompted"])
def test_structured_output_is_asked_for_as_chosen(shell: Shell, model: Model, structure: str) -> None:
    shell(f"learn train.jsonl --steps 1 --model {model.name} --structure {structure} --out run")
    schemas = [body for body in model.bodies if (body.get("response_format") or {}).get("type") == "json_schema"]
    tools = [body for body in model.bodies if "tools" in body]
    assert (bool(schemas), bool(tools)) == (structure == "native", structure == "tool")


def test_an_answer_that_does_not_fit_is_asked_for_again_and_then_lost(shell: Shell, model: Model) -> None:
    def nonsense(body: Body) -> str | None:
        return "no JSON" if "response_format" in body else None

    model.answer = nonsense
    shell.fails(f"learn train.jsonl --set rounds=0 --model {model.name} --steps 2 --out run", code=1)
    asked = [body for body in model.bodies if "response_format" in body]
    assert len(asked) % 3 == 0
    assert len(asked) >= 3


def test_profiles_choose_prompts_and_defaults(shell: Shell, model: Model) -> None:
    for profile in ("full", "small"):
        shell(f"learn train.jsonl --steps 1 --model {model.name} --profile {profile} --out {profile}")
    full, small = (body["max_tokens"] for body in (model.bodies[0], model.bodies[-1]))
    assert (full, small) == (4096, 1024)


# ---- files


def test_a_run_is_a_folder_with_these_files(workshop: Shell) -> None:
    names = {path.name for path in (workshop / "runs/first").iterdir()}
    assert (
        {"practicum.sqlite", "lock"}
        <= names
        <= {"practicum.sqlite", "practicum.sqlite-wal", "practicum.sqlite-shm", "lock", "flight"}
    )


PLAYBOOKS: dict[str, str] = {
    "markdown": "# Ours\n\n## rules\n\n- [e7] Be brief. (+3/-1)\n* Be kind.\n",
    "JSON": json.dumps({"entries": [{"id": "e7", "section": "rules", "text": "Be brief.", "helpful": 3, "harmful": 1},
                                    {"section": "rules", "text": "Be kind."}]}),
    "a JSON list": json.dumps([{"id": "e7", "section": "rules", "text": "Be brief.", "helpful": 3, "harmful": 1},
                               {"section": "rules", "text": "Be kind."}]),
}  # fmt: skip


@pytest.mark.parametrize("form", PLAYBOOKS)
def test_a_playbook_keeps_ids_and_votes_and_new_items_get_new_ids(shell: Shell, form: str) -> None:
    shell.file("book", PLAYBOOKS[form])
    assert shell.json("space import book --out seed")["entries"] == 2
    entries = shell.json("show seed")["entries"]
    found = {e["text"]: (e["id"], e["section"], e["helpful"], e["harmful"]) for e in entries}
    assert found["Be brief."] == ("e7", "rules", 3, 1)
    assert found["Be kind."][0] != "e7"


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_an_export_can_be_imported_evaluated_and_learned_from_unchanged(shell: Shell, form: str) -> None:
    shell(f"export runs/first --format {form} --output book")
    shell("space import book --out seed")
    assert shell("export seed --format agents-md").out == shell("export runs/first --format agents-md").out
    same = [(e["id"], e["text"], e["helpful"], e["harmful"]) for e in shell.json("show seed")["entries"]]
    assert same == [(e["id"], e["text"], e["helpful"], e["harmful"]) for e in shell.json("show runs/first")["entries"]]
    value = shell.json(f"eval test.jsonl --context book {MODEL} --choices K2,K5,K7,K9")
    assert value["score"] == 1.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("## rules\n- [e1] a\n- [e1] b\n", "playbook.malformed"),
        ("", "playbook.malformed"), ('{"entries": []}', "playbook.malformed"), ('{"entries": 3}', "playbook.malformed"),
        ("[1, 2]", "playbook.malformed"), ("{", "playbook.malformed"),
    ],
)  # fmt: skip
def test_a_playbook_that_cannot_be_used_is_one_line(shell: Shell, text: str, error: str) -> None:
    shell.file("book", text)
    line = shell.fails("space import book --out seed")
    assert line.startswith("book")
    assert not (shell / "seed").exists()


@pytest.mark.slow
def test_every_result_is_one_json_object_on_standard_output_and_all_else_on_standard_error(workshop: Shell) -> None:
    """Each command that only looks, in a process of its own for one of them."""
    with started(workshop.folder, "show", "runs/first", "--json") as process:
        done = process.end()
    assert done.json["run"] == "runs/first"
    assert "[e0]" in done.err
    quiet: list[str] = ["show runs/first", "show runs/first --calls", "export runs/first", "space monitor runs/first",
                        "space diff runs/first 1 2", "space name runs/first", "review runs/first",
                        "space memory list runs/bank",
                        "space memory search runs/bank x", "bench methods none", "bench advise train.jsonl",
                        "bench paper"]  # fmt: skip
    for typed in quiet:
        value: Any = workshop(f"{typed} --json").json
        assert value
        assert "\x1b" not in workshop(typed).out


def test_paths_with_signs_of_markup_are_printed_as_they_are(shell: Shell) -> None:
    odd = Path("x[bold]y[/bold] :smile:")
    told = shell(f"learn test.jsonl --method none {MODEL} --out", odd)
    assert f"stored in {odd}" in told.out
