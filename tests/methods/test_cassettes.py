"""Replay of recorded sessions with capable models: the learned entries are like the entries in the papers.

A cassette (cassettes/NAME.jsonl) is a script with the raw answers of all roles in one session, in the profile `full`.
NAME.learned.json has the entries that are to be learned: section, votes, and the lines of the text.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, learned, playbook

import practicum
from practicum import Prompt, ScriptedClient, Task
from practicum.models.client import JSON, CallOptions, Reply

CASSETTES = Path(__file__).parent / "cassettes"


@dataclass
class Cassette(ScriptedClient):
    """Replay of a cassette. If a prompt is asked for the nth time, the rules of the role "ROLE, take n" come first. An
    answer whose JSON ends too early is marked as cut at the output limit."""

    takes: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        reply = await super().complete(role, prompt, schema, options)
        return replace(reply, cut=schema is not None and reply.text.count("{") > reply.text.count("}"))


def cassette(name: str) -> Cassette:
    tape = ScriptedClient.from_file(CASSETTES / f"{name}.jsonl")

    def respond(call: Any) -> str | Exception:
        played.takes[call.role, call.text] += 1
        take = tape.respond(replace(call, role=f"{call.role}, take {played.takes[call.role, call.text]}"))
        return tape.respond(call) if isinstance(take, Exception) else take

    played = Cassette(respond)
    return played


def expected(name: str) -> list[dict[str, Any]]:
    entries = json.loads((CASSETTES / f"{name}.learned.json").read_text(encoding="utf-8"))
    whole = [
        {key: "\n".join(value) if isinstance(value, list) else value for key, value in entry.items()}
        for entry in entries
    ]
    return sorted(whole, key=lambda entry: str(entry["text"]))


def new_entries(seen: Seen) -> list[dict[str, Any]]:
    """The learned entries that agents see, in the form of `expected`."""
    shown = (e for e in seen.result.context if not e.hidden)
    return [
        {"section": e.section, "helpful": e.helpful, "harmful": e.harmful, "text": e.text}
        for e in sorted(shown, key=lambda e: e.text)
    ]


# ---- ACE: an agent with the interfaces of a phone, a payment app and a music app

PAYMENTS = [
    {"from": "Ana", "amount": 30, "note": "flat, power"}, {"from": "Ana", "amount": 15, "note": "flat, water"},
    {"from": "Béla", "amount": 38, "note": ""}, {"from": "Cleo", "amount": 12, "note": "my flat tyre"},
]  # fmt: skip


def show_transactions(page_index: int = 0) -> list[dict[str, Any]]:
    """The payments that I received, two a page."""
    return PAYMENTS[2 * page_index : 2 * page_index + 2]


def search_contacts(relationship: str) -> list[str]:
    """My contacts of this relation."""
    return {"roommate": ["Ana", "Béla"]}.get(relationship, [])


def show_song_library(page_index: int = 0) -> list[str]:
    """My songs, two a page."""
    return ["Alba", "Brume", "Çiçek"][2 * page_index : 2 * page_index + 2]


TOOLS = [show_transactions, search_contacts, show_song_library]

ACE_TASKS = [
    Task("bill", "How much did my roommates pay me for the electricity bill in May?", "83"),
    Task("songs", "How many songs are in my library?", "3"),
    Task("rate", "A loan has a nominal rate of 12 %, compounded monthly. Effective annual rate in %?", "12.68"),
    Task("wire", "When did the wire transfer to my landlord leave?", "8 May"),
    Task("rent", "Give 9 May 2026 as a due date, written as the bank wants it.", "2026-05-09"),
    Task("tip", "A receipt says 69 and, after tax, 75.33. What is a tip of 15 %?", "11.30"),
]
ACE_SEED = (
    {"section": "tools and formats", "text": "Read the documentation of an interface before its first call."},
    {"section": "pitfalls", "text": "Payments come in pages; the first page is enough."},
    {"section": "checks", "text": "Count the items of a list before you answer with their number."},
    {"section": "checks", "text": "Before you answer with a number of items, count them again."},
    {"section": "facts and formulas", "text": "The effective annual rate is r/n, in %."},
)


@pytest.fixture(scope="module")
def ace(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("ace")
    how: dict[str, Any] = {"parts": {"tools": TOOLS}, "trust_tools": True}
    return learned(folder, ACE_TASKS, cassette("ace"), seed_context=playbook(folder, *ACE_SEED), **how)


def test_insights_of_a_capable_model_arrive_whole_in_their_sections_with_their_votes(ace: Seen) -> None:
    """A fenced block, nested lists, a formula, an argument list, non-ASCII text, and several sentences, as in ACE's
    figure 3. They come in fences with prose, with trailing commas, raw line breaks and single backslashes."""
    assert new_entries(ace) == expected("ace")
    assert [attempt.solved is not None for report in ace.steps for attempt in report.attempts].count(True) == 5
    code, formula = ace.entry("```python").text, ace.entry("EAR").text
    assert code.splitlines()[3:5] == ["rows, page = [], 0", "while True:"]
    assert r"\left(1 + \frac{r}{n}\right)^{n} - 1" in formula
    assert "\n   1. On a 401 log in again" in ace.entry("show_song_library").text
    assert max(len(entry.text) for entry in ace.result.context) > 600


def test_refused_and_cut_answers_are_counted_and_cost_no_other_lesson(ace: Seen) -> None:
    assert ace.result.errors == {
        # The reflection on a wire transfer is refused three times.
        "lost_reflections": 1, "unparsed_outputs": 1 + 1,
        # A cut reflection is given in full when it is asked again. A cut curation is lost, and its lesson with it.
        "repaired_outputs": 2 + 1 + 2, "lost_updates": 1, "dropped_lessons": 1 + 1,
        "mended_json": 3, "unknown_tags": 1, "held_back_unknown_entry": 1,
    }  # fmt: skip
    cut = [call for call in ace.calls("reflector") if "cut off at the output limit" in call.text]
    assert len(cut) == 1


def test_edits_of_a_capable_curator_have_their_reasons(ace: Seen) -> None:
    edits = [done.edit for report in ace.steps for done in report.applied if done.edit.op != "vote"]
    reasons = {(edit.op, edit.id): edit.reason for edit in edits if edit.op in ("update", "delete")}
    assert reasons == {
        ("delete", "e1"): "It stopped the agent after page 0; its record is harmful 1, helpful 0.",
        ("update", "e4"): 'The entry divides where it should compound; "r/n" is the rate of one period.',
    }
    (merge,) = [edit for edit in edits if edit.op == "merge"]
    assert (merge.ids, merge.reason) == (("e2", "e3"), "Both ask for a count before the answer.")
    assert [edit.op for edit in edits].count("add") == 4
    confirmed = [x.confirmed for report in ace.steps for x in report.lessons if "roommate" in x.text]
    assert confirmed == [True]


def test_a_cassette_is_a_model_of_its_own(ace: Seen, tmp_path: Path) -> None:
    work = practicum.learn(
        ACE_TASKS, method="ace", model=f"scripted:{CASSETTES / 'ace.jsonl'}", out=tmp_path / "run", trust_tools=True,
        profile="full", parts=practicum.Parts(tools=TOOLS), seed_context=playbook(tmp_path, *ACE_SEED),
    )  # fmt: skip
    result = practicum.run_sync(work)
    assert practicum.export(result.context, "json") == ace.exported


# ---- RCL: questions about interfaces, with a playbook like RCL's figures 10 and 11

RCL_TASKS = [
    Task("end", "Which call ends a task that only asks to play a song?", "apis.supervisor.complete_task()"),
    Task("pages", "Which values of page_index does a list of 40 songs need, in pages of 20, to the end?", "0, 1, 2"),
    Task("credentials", "Where do the credentials of an app come from? The example has maria / 1234.", "supervisor"),
    Task("one", "How many songs does one call return at most?", "20"),
    Task("pay", "Which arguments does send_money take?", "receiver_email, amount, note"),
    Task("siblings", "Which app knows who my siblings are?", "phone"),
]
RCL_SEED = (
    {
        "section": "strategies_and_hard_rules",
        "text": "Fetch credentials from the supervisor app; those in examples are made up.",
    },
    {
        "section": "apis_to_use_for_specific_information",
        "text": "People, and their relation to me: the phone app.",
    },
    {
        "section": "useful_code_snippets_and_templates",
        "text": "One page of a list: apis.spotify.show_song_library(page_index=0)",
    },
    {"section": "common_mistakes_and_correct_strategies", "text": "Texts of examples are no facts."},
    {"section": "verification_checklist", "text": "Always end with apis.supervisor.complete_task(answer=...)."},
)


@pytest.fixture(scope="module")
def rcl(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two epochs, because the mutator sees the state in the second step."""
    folder, how = tmp_path_factory.mktemp("rcl"), {"epochs": 2}
    return learned(folder, RCL_TASKS, cassette("rcl"), "rcl", how, seed_context=playbook(folder, *RCL_SEED))


def diagnoses(seen: Seen) -> dict[str, dict[str, Any]]:
    """The diagnosis of each task that was reflected on: the findings of the three heads."""
    reflected = [x for report in seen.steps for x in report.lessons if "attribution" in x.data and not x.of]
    return {x.sources[0].removeprefix("task:"): dict(x.data) for x in reflected}


def test_the_mutator_of_rcl_edits_whole_entries_of_named_sections(rcl: Seen) -> None:
    assert new_entries(rcl) == expected("rcl")
    edits = [done.edit for report in rcl.steps for done in report.applied if done.edit.op in ("update", "delete")]
    assert [(edit.op, edit.id, edit.reason) for edit in edits if edit.reason] == [
        ("update", "e4", "[e4] holds for questions alone."),
        ("update", "e5", "It applies to whole lists only; the ledger suspected this."),
        ("delete", "e2", "The example of one page invites the mistake that [e5] prevents."),
    ]  # fmt: skip
    assert rcl.result.errors == {
        # A refusal of one head loses the diagnosis of one task. A MERGE is not allowed, and asked again.
        "lost_reflections": 1, "unparsed_outputs": 1, "repaired_outputs": 2 + 1, "held_back_unknown_entry": 1,
        "unknown_tags": 1, "mended_json": 2, "actionable_gaps": 3, "execution_variance": 1,
    }  # fmt: skip


def test_three_heads_give_a_diagnosis_and_chance_harms_no_entry(rcl: Seen) -> None:
    by_task = diagnoses(rcl)
    assert {task: data["attribution"] for task, data in by_task.items()} == {
        "credentials": "execution_variance", "end": "actionable_gap", "pages": "actionable_gap",
        "one": "actionable_gap",
    }  # fmt: skip
    assert all({"evidence", "cause", "gap", "correction"} <= data.keys() for data in by_task.values())
    assert by_task["credentials"]["verdicts"] == {"e0": "neutral"}
    assert by_task["end"]["verdicts"] == {"e4": "harmful"}
    # The mutator reads the whole diagnosis of a failure that was due to chance, too.
    first = rcl.calls("curator")[0].text
    assert all(by_task["credentials"][part] in first for part in ("evidence", "cause", "gap", "correction"))


def test_a_group_and_its_twin_reach_the_heads(rcl: Seen) -> None:
    attempts = {attempt.task.id: attempt for attempt in rcl.steps[0].attempts}
    end = attempts["end"]
    assert [one.feedback.success for one in end.group] == [False, True, False]
    assert end.twin.data["doubts"] == {"e4": 'says "always", although nothing is asked for here'}
    heads = [call.text for call in rcl.calls("reflector") if RCL_TASKS[0].input in call.text]
    assert len(heads) == 3
    for text in heads:
        assert 'Answer: apis.supervisor.complete_task(answer="done")\nFeedback' in text
        assert "Answer: apis.supervisor.complete_task()\nFeedback" in text
        assert end.twin.data["missing"] in text
    # Contrast first: the tasks with both outcomes are reflected on before the others.
    assert [x.sources[0] for x in rcl.steps[0].lessons if not x.of][2] == "task:pages"
    assert set(rcl.steps[1].batch.data["replayed"]) == {"pages"}


def test_the_state_document_is_read_by_the_mutator_of_the_next_step(rcl: Seen) -> None:
    (state,) = [entry for entry in rcl.result.context if entry.hidden]
    assert (state.section, state.data["phase"], len(state.data["ledger"])) == (".state", "convergent", 3)
    assert state.data["assessment"] == [{"id": "e1", "says": "helped in each run"}]
    suspected = "The agent may use the paging code where one call is enough."
    seeing = {role: sum(suspected in call.text for call in rcl.calls(role)) for role in rcl.roles}
    assert seeing == {"agent": 0, "reflector": 0, "curator": 1, "state": 1}


# ---- ReasoningBank: tasks on the web

WEB_TASKS = [
    Task("first", "On which day did I place my first order?", "2018-03-02"),
    Task("jacket", "Which one has the best rating among the jackets under 50 €?", "Aurora Shell"),
    Task("mail", "What is the e-mail address of the person who wrote the top comment?", "ada@example.org"),
    Task("walk", "How many minutes is the walk from the museum to the station?", "14"),
    Task("cancelled", "On which day did I place my last cancelled order?", "2021-11-30"),
]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A stream without labels, as in the paper: a judge says what went well."""
    folder, how = tmp_path_factory.mktemp("bank"), {"online": True}
    played = cassette("reasoning_bank")
    return learned(folder, WEB_TASKS, played, "reasoning_bank", how, reasoning=True, labels=False)


def memories(seen: Seen) -> list[dict[str, Any]]:
    """The learned memories, in the form of `expected`."""
    entries = [e for e in seen.result.context if e.section == "memories"]
    votes = {e.text: {"section": e.section, "helpful": e.helpful, "harmful": e.harmful} for e in entries}
    return [{**votes[e.text], **e.data, "text": e.text} for e in sorted(entries, key=lambda e: e.text)]


def test_memories_have_whole_contents_and_come_from_successes_and_failures(bank: Seen) -> None:
    assert memories(bank) == expected("reasoning_bank")
    outcomes = {e.sources[0]: set[str]() for e in bank.result.context}
    for entry in bank.result.context:
        outcomes[entry.sources[0]].add(entry.data["outcome"])
    assert outcomes == {"task:first": {"success", "failure"}, "task:jacket": {"success"}, "task:walk": {"failure"}}
    far_end = bank.entry("far end")
    assert "\n   - newest first" in far_end.text
    assert "   ```text\n   /sales/order/history/?p=<last page>\n   ```\n4. " in far_end.text
    # The later task is shown the memory with its lines, and its agent cites it.
    last = bank.calls("agent")[-1].prompt.head
    assert all(f"  {line}" in last for line in far_end.text.splitlines() if line)
    assert bank.steps[-1].attempts[0].trace.used == (far_end.id,)


def test_a_refused_extraction_and_a_cut_contrast_cost_nothing_else(bank: Seen) -> None:
    assert bank.result.errors == {
        "lost_extractions": 1, "lost_contrasts": 1, "unparsed_outputs": 2, "repaired_outputs": 2 + 2 + 1,
        "excess_memories": 1, "no_memories": 1, "mended_json": 1,
    }  # fmt: skip
    first = bank.steps[0].attempts[0]
    assert (first.choice["number"], first.choice["by"], first.choice["verdicts"]) == (2, "judge", [False, True, False])
    # A finding of several lines reaches the extraction whole.
    (finding,) = first.choice["contrast"]["separates"]
    extractions = [call.text for call in bank.calls("reflector") if "\n# The attempt" in call.text]
    assert finding.count("\n") == 3
    assert sum(all(f"  {line}\n" in text for line in finding.splitlines()) for text in extractions) == 2


# ---- the unified method: medical cases

CASES = [
    Task("croup", "A child of 2: a barking cough at night and stridor. Which disease?", "croup"),
    Task("epi", "A child of 4: drooling and leaning forward, stridor, no cough, 39.6 °C. Which disease?",
         "epiglottitis"),
    Task("dose", "Paracetamol at 15 mg/kg for a child of 12 kg: how many mg in one dose?", "180"),
    Task("aura", "A woman of 31: a throbbing headache on one side, after zigzag lines. Which disease?",
         "migraine with aura"),
]  # fmt: skip


@pytest.fixture(scope="module")
def unified(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return learned(tmp_path_factory.mktemp("unified"), CASES, cassette("unified"), "unified")


def test_bullets_memories_and_solved_tasks_have_separate_sections(unified: Seen) -> None:
    assert new_entries(unified) == expected("unified")
    assert unified.sections == {
        "rules": 5 + 5 + 5 + 4, "memories": 1 + 2 + 1, "episodes": 4, ".parts": 3, ".outcomes": 3,
    }  # fmt: skip
    rules = [entry for entry in unified.result.context if entry.section == "rules"]
    assert all(not entry.data for entry in rules)
    by_task = Counter(source for entry in rules for source in entry.sources if source == entry.sources[0])
    assert by_task == {"task:epi": 5, "task:aura": 5, "task:dose": 5, "task:croup": 4}
    # The playbook comes before the memories, and the solved tasks are earlier turns.
    prompt = unified.calls("agent")[-1].prompt
    assert 0 < prompt.head.index("(rules)") < prompt.head.index("(memories)")
    assert [turn.user for turn in prompt.turns if turn.user not in {task.input for task in CASES}] == []
    assert "  ```python" in prompt.head


def test_a_bullet_that_two_proposals_have_joins_the_sources(unified: Seen) -> None:
    assert {"task:aura", "task:croup"} <= set(unified.entry("the name of one disease").sources)


def test_passes_are_refused_cut_and_too_long_and_lose_no_bullet(unified: Seen) -> None:
    errors = unified.result.errors
    assert errors == {
        # The first pass over the bullets of one task is refused: its proposal stays. One extraction is refused.
        "lost_proposals": 1, "lost_extractions": 1, "unparsed_outputs": 2, "repaired_outputs": 2 + 2 + 1,
        "excess_bullets": 1, "mended_json": 3,
        # The bullet that two proposals have; the drafts, which merge it too, are not counted.
        "duplicate_entries": 1,
    }  # fmt: skip
    again = [call for call in unified.calls("reflector") if "You gave 2 bullets." in call.text]
    assert len(again) == 1


def test_an_extraction_lists_memories_and_no_solved_tasks(unified: Seen) -> None:
    asked = [call.text for call in unified.calls("reflector") if "\n# The attempt, which" in call.text]
    inputs = [sum(task.input in text for task in CASES) for text in asked]
    assert inputs == [1] * len(asked)
    assert any("Weigh what is absent" in text for text in asked)


# ---- MAEL: a task for one agent, and tasks in parts

TEAM_TASKS = [
    Task("median", "What is the median of 23, 4, 16, 8, 15? Answer with the number.", "15"),
    Task("ratios", "Häfele AG: revenue 120, then 138 million €; short-term assets 50, liabilities 40 million €. Give "
         "growth and current ratio as 'growth %, ratio'.", "15 %, 1.25"),
    Task("shop", "Plan a bicycle shop: a name and the repairs of a week.", "Pedal; 30"),
]  # fmt: skip
TEAM_TEST = [
    Task("other", "Çelik A.Ş.: revenue 200, then 230 million €; short-term assets 60, liabilities 30 million €. Give "
         "growth and current ratio as 'growth %, ratio'.", "15 %, 2.00"),
]  # fmt: skip


@pytest.fixture(scope="module")
def mael(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return learned(tmp_path_factory.mktemp("mael"), TEAM_TASKS, cassette("mael"), "mael", test=TEAM_TEST)


def pools(seen: Seen) -> list[dict[str, Any]]:
    """The experience of all agents, in the form of `expected`, in the order of `key`."""
    names = ("kind", "reward", "whole")
    entries = [
        {"section": e.section, "helpful": e.helpful, "harmful": e.harmful, "text": e.text}
        | {name: e.data[name] for name in names}
        for e in seen.result.context
    ]
    return sorted(entries, key=by_content)


def by_content(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


def test_pools_hold_state_action_and_reward_of_each_kind_of_step(mael: Seen) -> None:
    """A critique earns the gain of the refined solution, or, if it accepts, the quality of the solution."""
    assert pools(mael) == sorted(expected("mael"), key=by_content)
    states = {(e.data["kind"], e.section): e.key for e in mael.result.context if e.sources[0] == "task:ratios"}
    whole = TEAM_TASKS[1].input
    assert states["judge", "pool agent1"] == states["decompose", "pool agent1"] == whole
    assert states["critique", "pool agent1"].startswith(f"{whole}\n\n# A part of it\n")
    assert states["aggregate", "pool agent1"].startswith(f"{whole}\n\n# What came back\n")
    # The state of a refined solution has the whole critique, with its fenced block and its list.
    critique = mael.entry("The fraction is upside down").text
    assert critique in states["solve", "pool agent3"]
    assert "```text\nshort-term assets / short-term liabilities = 50 / 40\n```" in critique
    assert len({e.data["trace"] for e in mael.result.context}) == 3


def test_plans_and_verdicts_in_wrong_forms_are_counted(mael: Seen) -> None:
    assert mael.result.errors == {
        # A part without a verdict gives no experience, and so do the steps whose reward depends on it.
        "unjudged_attempts": 1, "unparsed_outputs": 1, "repaired_outputs": 2 + 1, "mended_json": 2,
        "dropped_needs": 1, "unknown_colleagues": 1,
    }  # fmt: skip
    plan = json.loads(next(e for e in mael.result.context if e.data["kind"] == "decompose").data["output"])
    solves = [call.prompt.user for call in mael.calls("agent") if "# Your solution so far" not in call.prompt.user]
    for part in plan["parts"]:
        assert sum(text.startswith(f"# Task\n{part['text']}\n\n") for text in solves) == 1


def test_a_test_task_is_shown_whole_experience_of_the_same_kind(mael: Seen) -> None:
    (tested,) = mael.result.attempts["test"]
    assert tested.score.value == 1.0
    context = mael.result.context
    shown = [(move["kind"], move["agent"], context.get(move["experience"])) for move in tested.trace.data["moves"]]
    assert all((e.data["kind"], e.section) == (kind, f"pool {agent}") for kind, agent, e in shown)
    assert len(shown) == 7
    turns = [call.prompt.turns[-1] for call in mael.calls("agent") if call.prompt.turns]
    (refined,) = [turn for turn in turns if "# Your solution so far" in turn.user]
    assert refined.assistant == mael.entry("= 50 / 40\n= 1.25").text
