"""Exit codes, error codes, the JSON object, models and their servers, playbook files (the reference of the manual)."""

from __future__ import annotations

import json

import pytest

from .kit import Model, Shell, serving, started

MODEL = "--model scripted:script.jsonl"

LEARN, SCRIPTED = "learn train.jsonl", f"learn train.jsonl {MODEL}"
WRONG: dict[str, dict[str, str]] = {
    "models": {
        LEARN: "model.missing", f"{LEARN} --model gpt-9": "model.unknown",
        f"{LEARN} --model openai:gpt-4.1-mini": "model.no_key",
        f"{LEARN} --model groq:llama-3.3-70b-versatile": "extra.missing",
        f"{LEARN} --model http://me:secret@localhost:1/v1#m": "model.unsafe_key",
        f"{LEARN} --model http://localhost:1/v1": "model.invalid_name", f"{LEARN} --model cli:x": "program.unknown",
        f"{LEARN} --model http://127.0.0.1:9/v1#x --price in=cheap": "price.invalid",
        f"{SCRIPTED} --model-options thinking=off": "settings.invalid",
        f"{SCRIPTED} --role critic=local": "role.unknown",
        f"{SCRIPTED} --method episodes --role reflector=local": "role.unused",
        f"{SCRIPTED} --embedder word2vec": "embedder.unknown", f"{SCRIPTED} --log comet": "tracker.unknown",
    },
    "settings": {
        f"{SCRIPTED} --method acee": "method.unknown", f"{SCRIPTED} --set bacth=3": "settings.unknown",
        f"{SCRIPTED} --set rounds=many": "settings.invalid", f"{SCRIPTED} --choices one": "settings.invalid",
        f"{SCRIPTED} --trust-tools": "settings.unused", f"eval train.jsonl {MODEL} --choices auto": "",
        f"{SCRIPTED} --steps 3 --epochs 2": "", f"{SCRIPTED} --method none --epochs 2": "",
        f"{SCRIPTED} --instructions @nowhere": "file.unreadable",
        f"{SCRIPTED} --seed-playbook nowhere": "playbook.not_found", f"{SCRIPTED} --scorer vibes": "scorer.unknown",
        f"{LEARN} --agent chatt": "agent.unknown", f"{SCRIPTED} --agent nowhere_at_all:act": "code.cannot_load",
        f"{SCRIPTED} --agent command:./missing": "agent.cannot_start", f"{SCRIPTED} --agent cli:x": "program.unknown",
        f"{SCRIPTED} --agent failing_agent:none": "agent.always_failed",
        f"{SCRIPTED} --agent failing_agent:one": "agent.invalid",
    },
    "runs": {
        "show runs/first --version 99": "version.unknown", "show runs/first --entry e99": "entry.unknown",
        "show runs/first --attempt 9.t9": "attempt.unknown", "review runs/first --approve 9.9": "review.unknown",
        "export runs/first --format yaml": "command.invalid", "run ' ' --context runs/first": "query.empty",
        "run hello --context nowhere": "playbook.not_found", "space rollback runs/first 1": "confirmation.missing",
        "space rollback runs/first 11 --yes": "version.unchanged", "show nowhere": "run.not_found",
        "space forget runs/first --task t99 --yes": "source.unknown", f"{LEARN} --modle local": "command.invalid",
        "lern train.jsonl": "command.invalid",
    },
}  # fmt: skip


@pytest.mark.parametrize("group", WRONG)
def test_wrong_use_ends_with_its_exit_code_error_code_and_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    shell.file("failing_agent.py", "def none(text, context):\n    return None\n\ndef one(text):\n    return text\n")
    for typed, error in WRONG[group].items():
        out = f" --out {'failed' if 'always' in error else 'new'}" if typed.startswith("learn") else ""
        shell.fails(typed + out, error=error, code=1 if "always" in error else 2)
    assert not (shell / "new").exists()


def test_a_wrong_command_names_the_nearest_one(workshop: Shell) -> None:
    for typed, command in {
        "lern": "practicum learn", "rolback run 1": "practicum space rollback",
        "list": "practicum space memory list or practicum key list",
        "space memory serch": "practicum space memory search",
    }.items():  # fmt: skip
        assert f"{command}?" in workshop.fails(typed, error="command.invalid")


def test_the_code_of_a_bug(workshop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a slip")

    monkeypatch.setattr("practicum.cli.output.Printer.result", broken)
    assert workshop("bench methods --json", code=1).json["error"]["code"] == "practicum.bug"


def test_a_server_that_is_down_ends_with_1(shell: Shell) -> None:
    down = "http://127.0.0.1:9/v1#x"
    for typed in ("eval test.jsonl", "run hello --context runs/first"):
        assert down in shell.fails(f"{typed} --retries 0 --model {down}", error="attempts.all_failed", code=1)


def test_the_output_of_user_functions_is_separate_from_the_json(shell: Shell) -> None:
    shell.file("printing_agent.py", "def act(text, context):\n    print('at work')\n    return 'K5'\n")
    done = shell("eval test.jsonl --agent printing_agent:act --json")
    assert done.json["n"] == 4
    assert done.err.count("at work") == 4


@pytest.mark.slow
def test_a_process_prints_one_json_object_and_a_traceback_only_with_debug(workshop: Shell) -> None:
    """A closed pipe does not fail."""
    with started(workshop.folder, "show", "runs/first", "--json") as process:
        done = process.end()
    assert done.json["run"] == "runs/first"
    assert "[e0]" in done.err
    with started(workshop.folder, "show", "nowhere", "--debug") as process:
        done = process.end()
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("practicum: ")
    with started(workshop.folder, "show", "runs/first", "--calls") as process:
        assert process.process.stdout is not None
        process.process.stdout.close()
        process.process.stdout = None
        assert process.end().code == 0


def test_one_model_on_several_servers_continues_where_one_is_down(shell: Shell, model: Model) -> None:
    down = "http://127.0.0.1:9/v1"
    shell(f"learn train.jsonl --test test.jsonl --method none --model {down},{model.name} --out run")
    assert len(model.bodies) == 4
    with serving() as second:
        assert shell.json(f"eval test.jsonl --model {model.url},{second.name}")["n"] == 4
        assert len(model.bodies) - 4 + len(second.bodies) == 4
    shell.fails(f"eval test.jsonl --model {model.url},{model.name}")


def test_sampling_and_limits_reach_every_request(shell: Shell, model: Model) -> None:
    shell.json(f"eval test.jsonl --model {model.name} --temperature 0.5 --max-output-tokens 77 --seed 5 --repeat 3")
    assert [(body["temperature"], body["max_tokens"]) for body in model.bodies] == [(0.5, 77)] * 12


def test_structured_output_is_requested_as_chosen_and_profiles_choose_limits(shell: Shell, model: Model) -> None:
    for structure, profile, limit in (("native", "full", 4096), ("tool", "small", 1024), ("prompted", "small", 1024)):
        model.reset()
        how = f"--steps 1 --model {model.name} --structure {structure} --profile {profile}"
        shell(f"learn train.jsonl {how} --out {structure}")
        schemas = [body for body in model.bodies if (body.get("response_format") or {}).get("type") == "json_schema"]
        tools = [body for body in model.bodies if "tools" in body]
        assert (bool(schemas), bool(tools)) == (structure == "native", structure == "tool")
        assert model.bodies[0]["max_tokens"] == limit


RECORDS = [
    {"id": "e7", "section": "rules", "text": "Be brief.", "helpful": 3, "harmful": 1},
    {"section": "rules", "text": "Be kind."},
]
PLAYBOOKS = {
    "markdown": "# Ours\n\n## rules\n\n- [e7] Be brief. (+3/-1)\n* Be kind.\n",
    "JSON": json.dumps({"entries": RECORDS}),
    "a JSON list": json.dumps(RECORDS),
}


def test_a_playbook_keeps_ids_and_votes_and_new_items_get_new_ids(shell: Shell) -> None:
    for form, text in PLAYBOOKS.items():
        shell.file("book", text)
        assert shell.json("space import book --out", form)["entries"] == 2
        shown = shell.json("show", form)["entries"]
        entries = {e["text"]: (e["id"], e["section"], e["helpful"], e["harmful"]) for e in shown}
        assert entries["Be brief."] == ("e7", "rules", 3, 1)
        assert entries["Be kind."][0] != "e7"


def test_an_export_can_be_imported_evaluated_and_learned_from_unchanged(shell: Shell) -> None:
    original = shell.json("show runs/first")["entries"]
    for form in ("markdown", "json"):
        shell(f"export runs/first --format {form} --output book")
        shell("space import book --out", form)
        assert shell(f"export {form} --format agents-md").out == shell("export runs/first --format agents-md").out
        copy = shell.json("show", form)["entries"]
        for part in ("id", "text", "helpful", "harmful"):
            assert [entry[part] for entry in copy] == [entry[part] for entry in original]
    assert shell.json(f"eval test.jsonl --context book {MODEL} --choices K2,K5,K7,K9")["score"] == 1.0


def test_a_playbook_that_cannot_be_read_is_refused_with_its_name(shell: Shell) -> None:
    for text, error in {"## rules\n- [e1] a\n- [e1] b\n": "playbook.duplicate_id", "": "playbook.empty",
                        '{"entries": []}': "playbook.empty", '{"entries": 3}': "playbook.malformed",
                        "[1, 2]": "playbook.malformed", "{": "playbook.malformed"}.items():  # fmt: skip
        shell.file("book", text)
        assert shell.fails("space import book --out seed", error=error).startswith("book")
        assert not (shell / "seed").exists()
