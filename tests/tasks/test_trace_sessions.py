"""Sessions of coding agents: requests, evidence about them, and the odd lines of each program. Pairs and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from practicum.core.types import Feedback, Task, Trace, Turn
from practicum.tasks import traces
from practicum.tasks.traces.evidence import evidence, followup
from practicum.tasks.traces.trace import Item

load_traces = partial(traces.load_traces, trust="own")

USER, AGENT = partial(Item, "user"), partial(Item, "message")
EDIT = Item("action", 'Edit({"old_string":"a","new_string":"b"})', "e")
NOTES = Item("action", 'Write({"file_path":"NOTES.md","content":"c"})')
STOPPED = Item("interruption", "stopped")


def ran(command: str, result: str) -> tuple[Item, Item]:
    return Item("action", f'Bash({{"command":"{command}"}})', command), Item("observation", result, command)


def write(folder: Path, records: Sequence[Any], name: str = "session.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def trace_of(task: Task) -> Trace:
    assert task.recorded is not None
    return task.recorded.trace


def steps(task: Task) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in trace_of(task).steps]


# ---- Which message begins a request.

WORK = [USER("Add a login page."), EDIT]
DONE, ASKING = AGENT("It is done."), AGENT("Should the page also have a link for new users?")


@pytest.mark.parametrize(
    ("request_", "text", "same"),
    [
        ([*WORK, DONE], "Now write the release notes for version two.", False),
        ([*WORK, DONE], "No, the button must be on the left.", True),
        ([*WORK, DONE], "The page is not showing the button anymore", True),
        ([*WORK, DONE], "Traceback (most recent call last):\n  File x", True),
        ([*WORK, DONE], "thanks, great work", True),
        ([*WORK, DONE], "commit and push", True),
        ([*WORK, DONE], "go ahead", True),
        ([*WORK, DONE], "/review all", False),
        ([*WORK, DONE], "Nein, das ist falsch.", True),
        ([*WORK, DONE], "不对，请重新检查这个文件", True),
        ([*WORK, DONE], "请为这个项目写一个新的说明文件", False),
        ([*WORK, ASKING], "A link to the help page as well, on the left side", True),
        (
            [*WORK, ASKING],
            "Why does the second test of the parser take forty seconds on my old machine at home?",
            False,
        ),
        (
            [USER("Plan it."), ASKING],
            "It has a link to the help page, and the colours are those of the old page there",
            True,
        ),
        ([*WORK, ASKING], "b", True),
        (WORK, "Also for the tablets, please, and for everybody who has an account at the shop", True),
        ([*WORK, STOPPED], "Look at the other file first, and read the whole of it before you start", True),
        ([USER("Say hi."), Item("error", "overloaded")], "Say hi.", True),
        ([USER("Say hi."), Item("error", "overloaded")], "Write a poem about the sea at night.", False),
    ],
)
def test_a_message_begins_a_request_or_belongs_to_a_request(request_: list[Item], text: str, same: bool) -> None:
    assert followup(request_, text) is same


# ---- What followed the work.

NEXT = USER("Now write the release notes for version two.")


@pytest.mark.parametrize(
    ("request_", "later", "signals"),
    [
        ([*WORK, DONE], [NEXT], []),
        ([*WORK, DONE, USER("No, the button must be on the left."), DONE], [], ["objection"]),
        ([USER("Plan it."), ASKING, USER("No, without it.")], [], []),
        ([*WORK, DONE, USER("Perfect, thanks!")], [], ["approval"]),
        ([*WORK, DONE], [USER("Great! Now write the notes.")], ["approval"]),
        ([*WORK, DONE], [USER("Better, but the button is still on the right. Move it.")], []),
        ([*WORK, STOPPED], [], ["interruption"]),
        ([*WORK, STOPPED, USER("continue"), DONE], [], []),
        ([*WORK, *ran("pytest -q", "3 passed in 1s"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("mise run test", "11/11"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("npm test", "Tests: 1 failed, 2 passed"), DONE], [], ["tests failed"]),
        ([*WORK, *ran("cargo test", "test result: FAILED. 1 failed"), EDIT, DONE], [], []),
        ([*WORK, *ran("cargo +nightly test", "test result: ok. 3 passed; 0 failed"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("go test ./...", "FAIL"), *ran("go test ./...", "ok  x 1s"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("pytest", "3 passed in 1s"), NOTES, Item("action", "TodoWrite({})"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("dotnet test", "Başarılı!  - Başarısız:  0, Geçti:  29"), DONE], [], ["tests passed"]),
        ([*WORK, *ran("cat pytest.ini", "OK"), DONE], [], []),
        ([*WORK, DONE], [NEXT, *ran("git checkout -- login.py", "")], ["taken back"]),
        ([USER("Look."), DONE], [NEXT, *ran("git restore login.py", "")], []),
        ([*WORK, DONE], [NEXT, Item("action", 'Edit({"old_string":"b","new_string":"a"})')], ["taken back"]),
        ([*WORK, Item("error", "overloaded")], [], []),
    ],
)
def test_evidence_about_a_request(request_: list[Item], later: list[Item], signals: list[str]) -> None:
    assert [one.signal for one in evidence(request_, later)] == signals


# ---- Claude Code.


def claude(*lines: Any) -> list[dict[str, Any]]:
    """Lines of a session. A text is a message: of the user at even positions, of the agent at odd positions."""
    records = []
    for n, line in enumerate(lines):
        record = line if isinstance(line, dict) else {"message": {"content": line}}
        type = ("user", "assistant")[n % 2]
        records.append({"type": type, "sessionId": "s", "uuid": f"u{n}", "timestamp": f"t{n}", **record})
    return records


def result(text: str) -> dict[str, Any]:
    return {"message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": text, "is_error": True}]}}


def test_requests_of_a_session_are_tasks_with_the_earlier_requests_as_history(tmp_path: Path) -> None:
    path = write(
        tmp_path, claude("Add a login page.", "Done.", "Now write the release notes.", "Written.", "thanks", "Bye.")
    )
    first, second = load_traces(path).tasks
    assert [(t.id, t.input, trace_of(t).answer, t.history) for t in (first, second)] == [
        ("s/1", "Add a login page.", "Done.", ()),
        ("s/2", "Now write the release notes.", "Bye.", (Turn("Add a login page.", "Done."),)),
    ]
    assert second.recorded is not None
    assert second.recorded.outcome == Feedback(
        True, 'What followed shows that the work was right: the user approved: "thanks".'
    )
    assert "User: Add a login page.\n\nAgent: Done." in second.text


def test_a_command_that_the_agent_worked_on_is_a_request_and_a_notification_is_none(tmp_path: Path) -> None:
    def typed(text: str) -> dict[str, Any]:
        return {"type": "user", "message": {"content": text}}

    def command(name: str, args: str) -> dict[str, Any]:
        name, args = f"<command-name>{name}</command-name>", f"<command-args>{args}</command-args>"
        return typed(f"<command-message>x</command-message>\n{name}{args}")

    event = typed("<ci-monitor-event>2 checks passed</ci-monitor-event>")
    finished = {
        "type": "queue-operation",
        "operation": "enqueue",
        "content": '{"task_id":"b9","task_type":"local_bash"}',
    }
    by_program = {"type": "assistant", "message": {"model": "<synthetic>", "content": "No response requested."}}
    lines = claude(
        command("/model", "best"), typed("<local-command-stdout>Set</local-command-stdout>"),
        command("/explore", "the parser"), "I explored it.", event, "Good.", "Write a test for numbers.", "Written.",
        command("/exit", ""), by_program, finished,
    )  # fmt: skip
    tasks = load_traces(write(tmp_path, lines)).tasks
    assert [task.input for task in tasks] == ["/explore the parser", "Write a test for numbers."]
    assert [step for step in steps(tasks[1]) if step[0] != "system"] == []


def test_a_rejected_call_with_its_reason_and_a_queued_prompt_belong_to_the_request(tmp_path: Path) -> None:
    call = {"message": {"content": [{"type": "tool_use", "id": "c", "name": "Edit", "input": {"f": "x"}}]}}
    why = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nUse tabs."
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "Be quick.", "message": None}
    sent = {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "Be quick."}}
    note = {"message": {"content": "<task-notification>x</task-notification>"}}
    (task,) = load_traces(write(tmp_path, claude("Tidy up.", call, result(why), queued, sent, "Done.", note))).tasks
    assert [step for step in steps(task) if step[0] != "system"] == [
        ("action", 'Edit({"f":"x"})'), ("observation", why), ("interruption", "The user rejected the tool call."),
        ("user", "Use tabs."), ("user", "Be quick."),
    ]  # fmt: skip
    assert task.recorded is not None
    assert [sign.signal for sign in task.recorded.evidence] == ["interruption"]


def test_a_session_that_is_still_being_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path, claude("Write it.", "x" * 200_000, "And more about the sea.", "Half of"))
    path.write_bytes(path.read_bytes()[:-20])
    read = load_traces(path)
    (task,) = read.tasks
    assert len(trace_of(task).answer) < 101_000
    assert read.faults == 3  # the long text, the cut line, and the request that it would have answered


# ---- Codex.


def codex(*payloads: Any, **meta: Any) -> list[dict[str, Any]]:
    """Lines of a rollout: texts are messages of the user, payloads with a `msg` are events."""
    lines = [{"type": "session_meta", "payload": {"id": "019c", "cwd": "/x", **meta}}]
    for number, payload in enumerate(payloads, 1):
        if isinstance(payload, str):
            payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": payload}]}
        type = "event_msg" if "msg" in payload else "response_item"
        lines.append({"type": type, "ordinal": number, "payload": payload.get("msg", payload)})
    return lines


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"msg": {"type": type, **fields}}


def test_items_and_events_of_a_rollout(tmp_path: Path) -> None:
    lines = codex(
        "<user_instructions>Be kind.</user_instructions>",
        "# Context from my IDE setup:\n## My request for Codex:\nList it.",
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gAAA"},
        {"type": "function_call", "namespace": "mcp__x", "name": "ls", "arguments": '{"a":1}', "call_id": "1"},
        {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}},
        {"type": "function_call_output", "call_id": "1", "output": '{"output":"bin","metadata":{"exit_code":0}}'},
        message("Two files."), event("token_count", info={"total_token_usage": {"total_tokens": 70}}),
        "Delete both of them, and the folder.", message("I begin."), event("turn_aborted", reason="interrupted"),
    )  # fmt: skip
    lines[1:1] = [{"type": "turn_context", "payload": {"model": "gpt-x"}}]
    first, second = load_traces(write(tmp_path, [*lines, {"type": "of_tomorrow", "payload": {}}])).tasks
    assert (first.input, trace_of(first).answer) == ("List it.", "Two files.")
    assert steps(first) == [
        ("thought", "Hm."), ("action", 'mcp__x.ls({"a":1})'),
        ("action", 'web_search({"type":"search","query":"q"})'), ("observation", "bin"),
    ]  # fmt: skip
    assert {k: first.meta[k] for k in ("model", "folder", "tokens", "system")} == {
        "model": "gpt-x", "folder": "/x", "tokens": 70, "system": "<user_instructions>Be kind.</user_instructions>",
    }  # fmt: skip
    assert (second.input, trace_of(second).error) == (
        "Delete both of them, and the folder.", "The user stopped the agent.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("meta", "turn"),
    [
        ({"forked_from_id": "018a"}, {"turn_id": "019d"}),
        ({"subagent_history_start_ordinal": 4, "parent_thread_id": "018a"}, {}),
    ],
    ids=["fork", "subagent"],
)
def test_the_copied_lines_of_the_parent_are_skipped(tmp_path: Path, meta: dict[str, Any], turn: dict[str, Any]) -> None:
    copied = ["Parent's request.", message("Parent's answer."), event("task_started", turn_id="0189")]
    lines = codex(*copied, event("task_started", **turn), "Own request.", message("Own answer."), **meta)
    (task,) = load_traces(write(tmp_path, lines)).tasks
    assert (task.input, trace_of(task).answer, task.meta["parent"]) == ("Own request.", "Own answer.", "018a")


def test_early_rollouts_have_bare_items_or_one_document(tmp_path: Path) -> None:
    bare = [{"id": "a1", "timestamp": "t", "instructions": None}, {"record_type": "state"},
            *(line["payload"] for line in codex("List it.", message("Two."))[1:])]  # fmt: skip
    (tmp_path / "old.json").write_text(json.dumps({"session": {"id": "a2", "instructions": ""}, "items": bare[2:]}))
    write(tmp_path, bare)
    assert {(t.id, t.input, trace_of(t).answer) for t in load_traces(tmp_path).tasks} == {
        ("a1", "List it.", "Two."), ("a2", "List it.", "Two."),
    }  # fmt: skip


def test_events_without_a_request_are_named_with_the_place_of_the_traces(tmp_path: Path) -> None:
    write(tmp_path, codex("List it.", message("Two.")), "rollout.jsonl")
    write(
        tmp_path, [{"type": "thread.started", "thread_id": "x"}, {"type": "item.completed", "item": {}}], "exec.jsonl"
    )
    write(tmp_path, [{"type": "text", "sessionID": "ses_1", "part": {}}], "run.jsonl")
    read = load_traces(tmp_path)
    assert read.formats == {"codex": 1}
    assert [problem.count for problem in read.problems] == [2, 1]
    assert all("exec" in str(p) or "export" in str(p) for p in read.problems)


# ---- opencode, Gemini CLI and Cursor.


def test_parts_of_opencode(tmp_path: Path) -> None:
    tool = {
        "type": "tool",
        "callID": "c",
        "tool": "ls",
        "state": {"status": "completed", "input": {"a": 1}, "output": "bin"},
    }
    cut = {"type": "tool", "callID": "d", "tool": "rm", "state": {"status": "error", "input": {}, "error": "Aborted",
                                                                  "metadata": {"interrupted": True}}}  # fmt: skip
    messages = [
        ("user", {}, [{"type": "text", "text": '"List it."'}, {"type": "text", "text": "File: x", "synthetic": True},
                      {"type": "file", "mime": "image/png", "url": "data:"}]),
        ("assistant", {"finish": "stop", "modelID": "m"}, [
            {"type": "step-start"}, {"type": "reasoning", "text": "Hm."}, tool, cut, {"type": "text", "text": "Two."}]),
        ("user", {}, [{"type": "text", "text": "Summarize all of our work here."}, {"type": "compaction"}]),
        ("assistant", {"summary": True}, [{"type": "text", "text": "## Goal"}]),
        ("assistant", {"error": {"name": "APIError", "data": {"message": "bad"}}}, []),
    ]  # fmt: skip
    export = {
        "info": {"id": "ses_1", "version": "1.18", "tokens": {"input": 3, "output": 4}, "time": {"created": 0}},
        "messages": [{"info": {"role": role, **info}, "parts": parts} for role, info, parts in messages],
    }
    read = load_traces(write(tmp_path, [export], "export.json"))
    (task,) = read.tasks
    assert (task.input, trace_of(task).answer) == ("List it.\n[image]", "Two.")
    assert steps(task) == [
        ("system", "File: x"), ("thought", "Hm."), ("action", 'ls({"a":1})'), ("observation", "bin"),
        ("action", "rm()"), ("observation", "Aborted"), ("interruption", "The user stopped the tool."),
    ]  # fmt: skip
    assert (task.meta["tokens"], task.meta["time"]) == (7, "1970-01-01T00:00:00+00:00")


def test_changes_of_a_gemini_session_are_replayed(tmp_path: Path) -> None:
    call = {"id": "c", "name": "ls", "args": {"a": 1}, "status": "success",
            "result": [{"functionResponse": {"id": "c", "name": "ls", "response": {"output": "bin"}}}]}  # fmt: skip
    session = [
        {"sessionId": "a3", "projectHash": "e4", "startTime": "t"},
        {"$set": {"messages": [{"id": "0", "type": "user", "content": [{"text": "<session_context>x"}]}]}},
        {"id": "1", "type": "user", "content": "Wrong one."}, {"$rewindTo": "1"},
        {"id": "2", "type": "user", "content": [{"text": "List it."}]},
        {"id": "3", "type": "gemini", "content": "I look."},
        {"id": "3", "type": "gemini", "content": "I look.", "thoughts": [{"subject": "Look", "description": "first"}],
         "toolCalls": [call], "tokens": {"total": 9}, "model": "g"},
        {"id": "4", "type": "user", "content": [call["result"][0]]},  # a copy
        {"id": "5", "type": "gemini", "content": [{"text": "So.", "thought": True}, {"text": "Two."}]},
        {"id": "6", "type": "info", "content": "x"},
    ]  # fmt: skip
    (task,) = load_traces(write(tmp_path, session)).tasks
    assert (task.input, trace_of(task).answer, trace_of(task).reasoning) == ("List it.", "Two.", "So.")
    assert steps(task) == [
        ("thought", "Look: first"), ("message", "I look."), ("action", 'ls({"a":1})'), ("observation", "bin"),
    ]  # fmt: skip
    assert (task.meta["tokens"], task.meta["model"]) == (9, "g")


def test_events_of_cursor(tmp_path: Path) -> None:
    def tool(subtype: str, **body: Any) -> dict[str, Any]:
        return {"type": "tool_call", "subtype": subtype, "call_id": "c", "tool_call": {"shellToolCall": body}}

    events = [
        {"type": "system", "subtype": "init", "apiKeySource": "x", "permissionMode": "default", "model": "A"},
        {"type": "user", "message": {"content": [{"type": "text", "text": "List it."}]}},
        *({"type": "thinking", "subtype": kind, "text": text} for kind, text in (("delta", "H"), ("completed", "m"))),
        tool("started", args={"command": "ls"}), tool("completed", args={}, result={"success": {"stdout": "bin"}}),
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Two."}]}},
        {"type": "result", "is_error": False, "result": "Two."},
    ]  # fmt: skip
    (task,) = load_traces(write(tmp_path, [{**event, "session_id": "x"} for event in events])).tasks
    assert (task.id, task.input, trace_of(task).answer, task.meta["model"]) == ("x", "List it.", "Two.", "A")
    assert steps(task) == [("thought", "Hm"), ("action", 'shell({"command":"ls"})'), ("observation", "bin")]


# ---- Pairs of requests and responses.


def test_a_growing_conversation_is_one_trace(tmp_path: Path) -> None:
    """Each request repeats the conversation; a response of the Responses API names the earlier response."""
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]}
    turns = [{"role": "user", "content": "List it."}, call, {"role": "tool", "tool_call_id": "c", "content": "bin"},
             {"role": "assistant", "content": "Two.", "reasoning_content": "So."}]  # fmt: skip
    pairs = [
        {
            "id": str(n),
            "request": {"messages": turns[:n]},
            "response": {"choices": [{"message": turns[n]}]},
            "score": n / 4,
        }
        for n in (1, 3)
    ]
    reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    pairs += [
        {"request": {"input": f"Hi {n}.", **({"previous_response_id": "r0"} if n else {})},
         "response": {"object": "response", "id": f"r{n}", "output": [reply]}} for n in (0, 1)
    ]  # fmt: skip
    first, second = load_traces(write(tmp_path, pairs)).tasks
    assert (first.id, first.input, trace_of(first).answer, trace_of(first).reasoning) == (
        "1",
        "List it.",
        "Two.",
        "So.",
    )
    assert steps(first) == [("action", "ls()"), ("observation", "bin")]
    assert first.recorded is not None
    assert first.recorded.score is not None
    assert first.recorded.score.value == 0.75
    assert steps(second) == [("message", "Hello."), ("user", "Hi 1.")]


def test_a_batch_is_joined_over_files_and_the_rest_is_reported(tmp_path: Path) -> None:
    def asked(id: str) -> dict[str, Any]:
        return {
            "custom_id": id,
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"ask {id}"}]},
        }

    def answered(id: str, **body: Any) -> dict[str, Any]:
        return {"custom_id": id, "error": None, "response": {"status_code": 200, "body": body}}

    choices = [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "length"}]
    write(tmp_path, [answered("b", choices=choices), answered("x", choices=choices)], "a-output.jsonl")
    write(tmp_path, [asked("a"), asked("b")], "z-input.jsonl")
    read = load_traces(tmp_path)
    (task,) = read.tasks
    assert (task.id, task.input, trace_of(task).answer) == ("b", "ask b", "yes")
    assert trace_of(task).error == "the answer ended early: length"
    assert [(Path(problem.path).name, problem.count) for problem in read.problems] == [
        ("a-output.jsonl", 1), ("z-input.jsonl", 1),
    ]  # fmt: skip


def test_tools_of_the_ai_sdk(tmp_path: Path) -> None:
    """Versions 5 to 7 in parts, version 4 in fields that repeat the parts, and messages for models."""
    done = {"toolCallId": "c", "state": "output-available", "input": {"a": 1}, "output": "bin"}
    old = {"toolCallId": "c", "toolName": "ls", "state": "result", "args": {"a": 1}, "result": "bin"}
    asked = {"role": "user", "parts": [{"type": "text", "text": "List it."}]}
    for number, turns in enumerate([
        [asked, {"role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "tool-ls", **done}, {"type": "data-x", "data": 1},
            {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "d", "state": "output-error", "errorText": "no"},
            {"type": "text", "text": "Two."}]}],
        [{**asked, "content": "List it."}, {"role": "assistant", "content": "Two.", "toolInvocations": [old], "parts": [
            {"type": "tool-invocation", "toolInvocation": old}, {"type": "text", "text": "Two."}]}],
        [{"role": "user", "content": "List it."},
         {"role": "assistant", "content": [
             {"type": "tool-call", "toolCallId": "c", "toolName": "ls", "input": {"a": 1}}]},
         {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "ls",
                                       "output": {"type": "text", "value": "bin"}}]},
         {"role": "assistant", "content": "Two."}],
    ]):  # fmt: skip
        (task,) = load_traces(write(tmp_path, [{"id": str(number), "messages": turns}])).tasks
        assert (task.input, trace_of(task).answer) == ("List it.", "Two.")
        assert steps(task)[:2] == [("action", 'ls({"a":1})'), ("observation", "bin")]
        assert steps(task)[2:] == ([("action", "rm()"), ("observation", "no")] if number == 0 else [])
