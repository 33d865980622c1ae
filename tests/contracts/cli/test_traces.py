"""docs/traces.md: what is read of stored traces of each format, whose they are, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from practicum import Count

from .kit import Model, Shell, all_bytes, write_lines

USER = {"role": "user", "content": "Where is order 17?"}
SAID = {"role": "assistant", "content": "It was sent."}
TURNS = [{"role": "system", "content": "You help in a shop."}, USER, SAID]


def span(name: str, attributes: dict[str, Any], start: int) -> dict[str, Any]:
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    ids = {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": f"00f067aa0ba902b{start}"}
    return {
        **ids,
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 1),
        "attributes": values,
    }


MESSAGES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": USER["content"]}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": SAID["content"]}], "finish_reason": "stop"}]
    ),
}
OTLP = {"resourceSpans": [{"scopeSpans": [{"spans": [span("chat gpt", MESSAGES, 1)]}]}]}
SWE = {
    "trajectory": [
        {"thought": "Look.", "action": "grep x\n", "observation": "12\n", "response": "Look.", "state": "{}"}
    ],
    "history": [{"role": "system", "content": "s"}, {"role": "user", "content": USER["content"]}],
    "info": {"submission": SAID["content"], "exit_status": "submitted"},
}
MINI = {
    "trajectory_format": "mini-swe-agent-1",
    "info": {"submission": SAID["content"], "exit_status": "Submitted", "config": {}},
    "messages": [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "Let me see."}],
}
ATIF = {
    "schema_version": "ATIF-v1.2", "session_id": "s-1", "agent": {"name": "terminus", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": USER["content"]},
        {"step_id": 2, "source": "agent", "message": SAID["content"]},
    ],
}  # fmt: skip
CLAUDE = [
    {"type": "user", "sessionId": "5f0c", "uuid": "1", "parentUuid": None, "message": USER, "cwd": "/x"},
    {"type": "assistant", "sessionId": "5f0c", "uuid": "2", "parentUuid": "1",
     "message": {"role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": SAID["content"]}]}},
]  # fmt: skip


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


FORMATS: dict[str, tuple[str, bytes, str]] = {
    "chat": ("log.jsonl", lines({"id": "order-17", "messages": TURNS}), "chat"),
    "a bare list": ("log.jsonl", lines(TURNS), "chat"),
    "one document": ("log.json", json.dumps([{"messages": TURNS}], indent=1).encode(), "chat"),
    "OTLP": ("spans.json", json.dumps(OTLP, indent=1).encode(), "otel"),
    "one export a line": ("spans.jsonl", lines(OTLP), "otel"),
    "SWE-agent": ("x.traj", json.dumps(SWE).encode(), "swe-agent"),
    "mini-swe-agent": ("x.traj.json", json.dumps(MINI).encode(), "mini-swe-agent"),
    "ATIF": ("trajectory.json", json.dumps(ATIF).encode(), "atif"),
    "Claude Code": ("session.jsonl", lines(*CLAUDE), "claude-code"),
    "gzip": ("log.jsonl.gz", gzip.compress(lines({"messages": TURNS})), "chat"),
}
EPISODES = "--method episodes --model scripted:script.jsonl --out"


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_is_read_and_detected_by_its_content(shell: Shell, kind: str) -> None:
    """The task is what the user asked; the answer is what the agent said last or submitted."""
    name, content, form = FORMATS[kind]
    for number, path in enumerate((name, "traces.any")):
        (shell / f"{number}").mkdir()
        (shell / f"{number}" / path).write_bytes(content)
        told = shell(f"learn --from-traces {number}/{path} --trust own {EPISODES} run{number} --json")
        (entry,) = told.json["entries"]
        assert (entry["text"], entry["data"]["answer"]) == (USER["content"], SAID["content"])
        assert f"1 of {form}" in told.err
        assert told.json["usage"]["calls"] == 0
        if kind == "gzip":
            break  # told by the name


def test_an_agents_steps_are_those_of_the_trace(shell: Shell) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id": 17}'}}
    turns = [USER, {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c", "content": "sent"}, SAID]  # fmt: skip
    write_lines(shell / "log.jsonl", [{"messages": turns}])
    shell(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    (line,) = shell.json("show run --attempts")["attempts"]
    told = json.dumps(shell.json("show run --attempt", line["id"]))
    assert "find(" in told
    assert "sent" in told


def test_a_run_of_practicum_is_read_with_its_scores_and_pays_for_no_attempt(shell: Shell) -> None:
    learn = "learn --from-traces runs/first --trust own --method combee --batch-size 16 --choices auto"
    value = shell.json(f"{learn} --model scripted:script.jsonl --out again")
    assert "agent" not in value["by_role"]
    attempts = shell.json("show again --attempts")["attempts"]
    theirs = [a for a in shell.json("show runs/first --attempts")["attempts"] if not a["reused"]]
    assert len(attempts) == len(theirs)
    assert sum(a["correct"] for a in attempts) == sum(a["correct"] for a in theirs)
    assert {a["task"] for a in attempts} >= {"r7", "r7#2"}
    assert len(value["entries"]) == 3


def test_a_folder_may_hold_files_of_several_formats(shell: Shell) -> None:
    for number, (name, content, _) in enumerate(FORMATS.values()):
        path = shell / "traces" / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (shell / "traces" / "notes.txt").write_text("no traces")
    value = shell.json(f"learn --from-traces traces --trust own --batch-size 20 {EPISODES} run")
    assert len(shell.json("show run --attempts")["attempts"]) == len(FORMATS)
    assert len(value["entries"]) >= 1


def test_traces_are_read_from_parquet_and_urls(shell: Shell) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.Table.from_pylist([{"id": "a", "messages": TURNS}]), shell / "log.parquet")
    assert len(shell.json(f"learn --from-traces log.parquet --trust own {EPISODES} run")["entries"]) == 1
    pytest.importorskip("fsspec")
    write_lines(shell / "log.jsonl", [{"messages": TURNS}])
    url = f"file://{shell / 'log.jsonl'}"
    assert len(shell.json(f"learn --from-traces {url} --trust own {EPISODES} url")["entries"]) == 1


# ---- scores


@pytest.mark.parametrize(
    ("fields", "score", "correct"),
    [
        ({"score": 0.75}, 0.75, True), ({"reward": 0.25}, 0.25, False), ({"resolved": True}, 1.0, True),
        ({"success": False}, 0.0, False), ({"passed": True}, 1.0, True), ({"correct": False}, 0.0, False),
        ({"metadata": {"score": 0.5}}, 0.5, True), ({"info": {"resolved": True}}, 1.0, True),
        ({"score": 0.75, "passed": False}, 0.75, False), ({"score": 7}, None, None), ({}, None, None),
    ],
)  # fmt: skip
def test_a_score_is_found_where_it_stands(shell: Shell, fields: dict[str, Any], score: Any, correct: Any) -> None:
    write_lines(shell / "log.jsonl", [{"messages": TURNS, **fields}])
    value = shell.json(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    (attempt,) = shell.json("show run --attempts")["attempts"]
    assert (attempt["score"], attempt["correct"]) == (score, correct)
    assert bool(value["errors"].get(Count.TRACE_FAULTS.value)) == (fields == {"score": 7})


def test_harbors_reward_beside_the_trajectory_counts(shell: Shell) -> None:
    (shell / "job" / "agent").mkdir(parents=True)
    (shell / "job" / "agent" / "trajectory.json").write_text(json.dumps(ATIF))
    result = {"task_name": "hello", "trial_name": "hello__1", "verifier_result": {"rewards": {"reward": 1.0}}}
    (shell / "job" / "result.json").write_text(json.dumps(result))
    shell(f"learn --from-traces job --trust own {EPISODES} run")
    assert [a["score"] for a in shell.json("show run --attempts")["attempts"]] == [1.0]


def test_a_score_of_a_strangers_trace_is_left_out_unless_you_say_that_it_counts(shell: Shell) -> None:
    told = shell(f"learn --from-traces logs.jsonl {EPISODES} run --json")
    assert "the score or right answer of 3 traces" in told.err
    assert {a["score"] for a in shell.json("show run --attempts")["attempts"]} == {None}
    shell(f"learn --from-traces logs.jsonl --trust-scores {EPISODES} scored")
    assert {a["score"] for a in shell.json("show scored --attempts")["attempts"]} == {0.0}


@pytest.mark.parametrize(("options", "judged"), [("--judge", 1), ("--judge --no-labels", 2), ("", 0)])
def test_a_judge_judges_traces_without_a_score(shell: Shell, model: Model, options: str, judged: int) -> None:
    write_lines(
        shell / "log.jsonl", [{"messages": TURNS}, {"messages": [{**USER, "content": "And 18?"}, SAID], "score": 1}]
    )
    how = f"--trust own --method ace {options} --model {model.name}"
    value = shell.json(f"learn --from-traces log.jsonl {how} --out run")
    assert value["by_role"].get("judge", {"calls": 0})["calls"] == judged


# ---- what cannot be read


def test_nothing_is_dropped_silently(shell: Shell) -> None:
    folder = shell / "stored"
    write_lines(folder / "a.jsonl", [{"messages": TURNS}])
    (folder / "b.jsonl").write_text('{"messages": [\n')
    (folder / "notes.json").write_text('{"title": "x", "text": "y"}\n')
    write_lines(folder / "c.jsonl", [{"messages": [USER]}, {"messages": [SAID]}, {"messages": []}])
    told = shell(f"learn --from-traces stored --trust own {EPISODES} run --json")
    assert len(told.json["entries"]) == 1
    assert told.json["errors"][Count.TRACE_FAULTS.value] == 5
    for name in ("stored/b.jsonl", "stored/notes.json", "stored/c.jsonl"):
        assert name in told.err
    assert "in all, 5 parts could not be read in full" in told.err


def test_if_nothing_can_be_read_the_command_ends_with_the_reasons(shell: Shell) -> None:
    shell.file("notes.json", '{"title": "x"}\n')
    assert "notes.json" in shell.fails(f"learn --from-traces notes.json {EPISODES} run", error="traces.unreadable")
    shell.fails(f"learn --from-traces nowhere {EPISODES} run", error="traces.not_found")
    assert not (shell / "run").exists()


def test_a_part_that_is_not_text_is_shown_as_its_type_and_reported(shell: Shell) -> None:
    content = [{"type": "text", "text": "What is on it?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    write_lines(shell / "log.jsonl", [{"messages": [{"role": "user", "content": content}, SAID]}])
    told = shell(f"learn --from-traces log.jsonl --trust own {EPISODES} run --json")
    assert told.json["entries"][0]["text"] == "What is on it?\n[image_url]"
    assert told.json["errors"][Count.TRACE_FAULTS.value] == 1


def test_ids_that_are_taken_get_a_number(shell: Shell) -> None:
    write_lines(shell / "log.jsonl", [{"id": "x", "messages": [{**USER, "content": f"q{n}"}, SAID]} for n in range(3)])
    shell(f"learn --from-traces log.jsonl --trust own --batch-size 3 {EPISODES} run")
    assert {a["task"] for a in shell.json("show run --attempts")["attempts"]} == {"x", "x#2", "x#3"}
    assert shell.json("space forget run --task x --yes --no-copy")["left"] == 0


def test_the_source_may_vanish_once_the_run_has_begun(shell: Shell) -> None:
    learn = (
        "learn --from-traces logs.jsonl --trust own --method ace --choices K2,K5,K7,K9 --model scripted:script.jsonl"
    )
    assert shell.json(f"{learn} --max-calls 2 --out run")["stopped"]
    (shell / "logs.jsonl").unlink()
    assert len(shell.json("space resume run --max-calls 100")["entries"]) == 3


# ---- what is refused


@pytest.mark.parametrize(
    "options",
    ["train.jsonl", "--online", "--set rounds=1", "--set refine=true", "--set lessons=3", "--method none",
     "--method icl", "--method tf_grpo", "--method mael", "--method gepa", "--method opro", "--method rcl"],
)  # fmt: skip
def test_what_would_attempt_again_is_refused_before_anything_is_paid_for(
    shell: Shell, model: Model, options: str
) -> None:
    shell.fails(f"learn --from-traces logs.jsonl --model {model.name} --out run {options}")
    assert model.bodies == []
    assert not (shell / "run").exists()


@pytest.mark.parametrize(
    "method", ["ace", "combee", "naive", "top_k", "summarized", "reasoning_bank", "unified", "episodes",
               "rcl --set group=1 --set twin=false --set replay=0 --set attempted=none"],
)  # fmt: skip
def test_these_methods_learn_from_traces_and_run_no_agent(shell: Shell, model: Model, method: str) -> None:
    value = shell.json(
        f"learn --from-traces logs.jsonl --trust own --batch-size 3 --model {model.name} --out run --method {method}"
    )
    assert "agent" not in value["by_role"]
    assert len(shell.json("show run --attempts")["attempts"]) == 3


def test_traces_are_redacted_before_anything_is_stored_or_sent(shell: Shell, model: Model) -> None:
    mail = "ann.smith@example.com"
    write_lines(
        shell / "log.jsonl", [{"messages": [{**USER, "content": f"I am {mail}"}, {**SAID, "content": f"Hi {mail}"}]}]
    )
    shell(f"learn --from-traces log.jsonl --trust own --redact emails --model {model.name} --out run")
    assert model.bodies
    assert not any(mail in text for text in model.texts)
    assert mail.encode() not in all_bytes(Path(shell / "run"))
