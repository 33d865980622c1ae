"""Stored traces: formats, trust, scores, and refusals."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

import practicum
from practicum import Count

from .kit import Model, Shell, write_lines

QUESTION, ANSWER = "Where is order 17?", "It was sent."
USER, REPLY = {"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}
TURNS = [{"role": "system", "content": "You help in a shop."}, USER, REPLY]


def span(name: str, attributes: dict[str, Any], start: int) -> dict[str, Any]:
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    ids = {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": f"00f067aa0ba902b{start}"}
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 1)}
    return {**ids, **times, "name": name, "attributes": values}


MESSAGES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
    ),
}
OTLP = {"resourceSpans": [{"scopeSpans": [{"spans": [span("chat gpt", MESSAGES, 1)]}]}]}
SWE = {
    "trajectory": [
        {"thought": "Look.", "action": "grep x\n", "observation": "12\n", "response": "Look.", "state": "{}"}
    ],
    "history": [{"role": "system", "content": "s"}, {"role": "user", "content": QUESTION}],
    "info": {"submission": ANSWER, "exit_status": "submitted"},
}
MINI = {
    "trajectory_format": "mini-swe-agent-1",
    "info": {"submission": ANSWER, "exit_status": "Submitted", "config": {}},
    "messages": [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "Let me see."}],
}
ATIF = {
    "schema_version": "ATIF-v1.2", "session_id": "s-1", "agent": {"name": "terminus", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": QUESTION},
        {"step_id": 2, "source": "agent", "message": ANSWER},
    ],
}  # fmt: skip
CLAUDE = [
    {"type": "user", "sessionId": "5f0c", "uuid": "1", "parentUuid": None, "message": USER, "cwd": "/x"},
    {"type": "assistant", "sessionId": "5f0c", "uuid": "2", "parentUuid": "1",
     "message": {"role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": ANSWER}]}},
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


def test_each_format_is_detected_by_its_content_and_a_folder_may_hold_several(shell: Shell) -> None:
    """The task is the user's question; the answer is the agent's last message or its submission."""
    for number, (kind, (name, content, form)) in enumerate(FORMATS.items()):
        path = shell / "traces" / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        other = path if kind == "gzip" else path.rename(shell / "traces.any")
        read = practicum.load_traces(other, trust="own")
        assert [(t.input, t.recorded and t.recorded.trace.answer) for t in read.tasks] == [(QUESTION, ANSWER)], kind
        assert read.formats == {form: 1}
        other.rename(path)
    (shell / "traces" / "notes.txt").write_text("no traces")
    done = shell(f"learn --from-traces traces --trust own --batch-size 20 {EPISODES} run --json")
    assert {(e["text"], e["data"]["answer"]) for e in done.json["entries"]} == {(QUESTION, ANSWER)}
    assert all(form in done.err for _, _, form in FORMATS.values())
    assert done.json["usage"]["calls"] == 0
    assert len(shell.json("show run --attempts")["attempts"]) == len(FORMATS)


def test_the_steps_of_an_agent_are_those_of_the_trace(shell: Shell) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id": 17}'}}
    content = [{"type": "text", "text": "What happens?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    turns = [{"role": "user", "content": content}, {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c", "content": "sent"}, REPLY]  # fmt: skip
    write_lines(shell / "log.jsonl", [{"messages": turns}])
    value = shell.json(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    # A part that is not text is its medium, and is counted.
    assert value["entries"][0]["text"] == "What happens?\n[image]"
    assert value["errors"][Count.TRACE_FAULTS.value] == 1
    (line,) = shell.json("show run --attempts")["attempts"]
    attempt = json.dumps(shell.json("show run --attempt", line["id"]))
    assert "find(" in attempt
    assert "sent" in attempt


def test_a_run_of_practicum_is_read_with_its_scores_and_pays_for_no_attempt(shell: Shell) -> None:
    learn = "learn --from-traces runs/first --trust own --method combee --batch-size 16 --choices auto"
    value = shell.json(f"{learn} --model scripted:script.jsonl --out again")
    assert "agent" not in value["by_role"]
    attempts = shell.json("show again --attempts")["attempts"]
    original = [a for a in shell.json("show runs/first --attempts")["attempts"] if not a["reused"]]
    assert len(attempts) == len(original)
    assert sum(a["correct"] for a in attempts) == sum(a["correct"] for a in original)
    assert {a["task"] for a in attempts} >= {"r7", "r7#2"}
    assert len(value["entries"]) == 3


def test_scores_are_read_from_every_usual_field(shell: Shell) -> None:
    cases: list[tuple[dict[str, Any], float | None, bool | None]] = [
        ({"score": 0.75}, 0.75, True), ({"reward": 0.25}, 0.25, False), ({"resolved": True}, 1.0, True),
        ({"success": False}, 0.0, False), ({"passed": True}, 1.0, True), ({"correct": False}, 0.0, False),
        ({"metadata": {"score": 0.5}}, 0.5, True), ({"info": {"resolved": True}}, 1.0, True),
        ({"score": 0.75, "passed": False}, 0.75, False), ({"score": 7}, None, None), ({}, None, None),
    ]  # fmt: skip
    write_lines(shell / "log.jsonl", [{"id": f"t{n}", "messages": TURNS, **case[0]} for n, case in enumerate(cases)])
    value = shell.json(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    attempts = {a["task"]: (a["score"], a["correct"]) for a in shell.json("show run --attempts")["attempts"]}
    assert attempts == {f"t{n}": case[1:] for n, case in enumerate(cases)}
    assert value["errors"][Count.TRACE_FAULTS.value] == 1  # the score 7


def test_the_reward_in_the_result_file_of_harbor_counts(shell: Shell) -> None:
    (shell / "job" / "agent").mkdir(parents=True)
    (shell / "job" / "agent" / "trajectory.json").write_text(json.dumps(ATIF))
    result = {"task_name": "hello", "trial_name": "hello__1", "verifier_result": {"rewards": {"reward": 1.0}}}
    (shell / "job" / "result.json").write_text(json.dumps(result))
    shell(f"learn --from-traces job --trust own {EPISODES} run")
    assert [a["score"] for a in shell.json("show run --attempts")["attempts"]] == [1.0]


def test_a_judge_judges_traces_without_a_score(shell: Shell, model: Model) -> None:
    other = {"messages": [{**USER, "content": "And 18?"}, REPLY], "score": 1}
    write_lines(shell / "log.jsonl", [{"messages": TURNS}, other])
    for judged, options in enumerate(("", "--judge", "--judge --no-labels")):
        how = f"--trust own --method ace --batch-size 2 {options} --model {model.name}"
        value = shell.json(f"learn --from-traces log.jsonl {how} --out run{judged}")
        assert value["by_role"].get("judge", {"calls": 0})["calls"] == judged


def test_every_unreadable_part_is_counted_and_named(shell: Shell) -> None:
    folder = shell / "stored"
    write_lines(folder / "a.jsonl", [{"messages": TURNS}])
    (folder / "b.jsonl").write_text('{"messages": [\n')
    (folder / "notes.json").write_text('{"title": "x", "text": "y"}\n')
    write_lines(folder / "c.jsonl", [{"messages": [USER]}, {"messages": [REPLY]}, {"messages": []}])
    done = shell(f"learn --from-traces stored --trust own {EPISODES} run --json")
    assert len(done.json["entries"]) == 1
    assert done.json["errors"][Count.TRACE_FAULTS.value] == 5
    for name in ("stored/b.jsonl", "stored/notes.json", "stored/c.jsonl"):
        assert name in done.err


def test_if_nothing_can_be_read_the_command_ends_with_the_reasons(shell: Shell) -> None:
    shell.file("notes.json", '{"title": "x"}\n')
    assert "notes.json" in shell.fails(f"learn --from-traces notes.json {EPISODES} run", error="traces.unreadable")
    shell.fails(f"learn --from-traces nowhere {EPISODES} run", error="traces.not_found")
    assert not (shell / "run").exists()


def test_the_source_may_vanish_once_the_run_has_begun(shell: Shell) -> None:
    learn = (
        "learn --from-traces logs.jsonl --trust own --method ace --choices K2,K5,K7,K9 --model scripted:script.jsonl"
    )
    assert shell.json(f"{learn} --max-calls 2 --out run")["stopped"]
    (shell / "logs.jsonl").unlink()
    assert len(shell.json("space resume run --max-calls 100")["entries"]) == 3


def test_methods_and_settings_that_attempt_again_are_refused_before_the_first_call(shell: Shell, model: Model) -> None:
    for options in ("train.jsonl", "--online", "--set rounds=1", "--set refine=true", "--set lessons=3",
                    "--method none", "--method icl", "--method mael", "--method gepa", "--method rcl"):  # fmt: skip
        shell.fails(f"learn --from-traces logs.jsonl --model {model.name} --out run {options}")
    assert model.bodies == []
    assert not (shell / "run").exists()


@pytest.mark.slow
def test_these_methods_learn_from_traces_and_run_no_agent(shell: Shell, model: Model) -> None:
    bare = "rcl --set group=1 --set twin=false --set replay=0 --set attempted=none"
    methods = ("ace", "combee", "episodes", "naive", "top_k", "summarized", "reasoning_bank", "unified", bare)
    for number, method in enumerate(methods):
        how = f"--trust own --batch-size 3 --model {model.name} --method {method}"
        value = shell.json(f"learn --from-traces logs.jsonl {how} --out run{number}")
        assert "agent" not in value["by_role"], method
        assert len(shell.json(f"show run{number} --attempts")["attempts"]) == 3
