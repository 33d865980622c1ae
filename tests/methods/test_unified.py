"""Memory and playbook in one loop as METHODS section 5 has it, in whole runs: its four links, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from banks import chancy, guessing, refusing, traced
from helpers import client, context_bytes, make_tasks, run_command, world, write_tasks
from labels import changed
from runs import Late, learner
from scripts import (
    FORM,
    Learned,
    learned,
    material,
    memory,
    nothing,
    number,
    resumed,
    right,
    same_after_any_kill,
    scripted,
    shape,
    wrong,
)

import practicum
from practicum import methods
from practicum.blocks.act.show import AVOID, FOLLOW
from practicum.blocks.attempt.propose import OUTCOMES, refinements
from practicum.blocks.update.memory_bank import MEMORIES
from practicum.core.context import Context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.playbook import export
from practicum.core.types import Lesson, Profile, Rollout, Score, Task, Trace
from practicum.methods.unified import SECTION, Settings
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.forget import forget
from practicum.session.records import read_config, step_records
from practicum.store import schema
from practicum.store.database import Store

METHOD = "unified"

PLAIN = {"examples": 0, "weigh": False, "delta_min": 2}
"""No solved tasks and no comparisons; proposals of the two bullets that the scripted model gives."""


def task_of(call: Call) -> int:
    """Which task a proposal is for; elsewhere the last message named."""
    found = re.findall(r"# The next task\nMessage (\d+)", call.prompt.user)
    return int(found[0]) if found else number(call)


WORDS = ("apple", "bridge", "candle", "donkey", "engine", "feather", "garden", "hammer", "island", "jacket")


def bullets_of(word: str) -> list[str]:
    return [f"If it is about the {word}, say so.", f"If a {word} is missing, wait for the next one."]


def thinking(call: Call) -> dict[str, Any]:
    """A proposal names its task by a word of its own, so that no two are taken for one."""
    match shape(call):
        case "Memories":
            return memory(f"the {WORDS[task_of(call) % 10]} way")
        case "Bullets":
            return {"bullets": bullets_of(WORDS[task_of(call) % 10])}
    return {}


def citing(call: Call) -> dict[str, Any]:
    """An agent that is right, and relies on the newest rule and the newest memory it is shown."""
    shown = re.findall(r"^\[(e\d+)\] \((\w+)\)", "\n".join(call.prompt.pages), re.MULTILINE)
    newest = {section: id for id, section in shown}
    return {"answer": right(call), "used": [*newest.values()]}


def model(agent: Any = right, judge: Any = nothing, reflector: Any = thinking) -> ScriptedClient:
    return scripted(agent, reflector, judge=judge)


def run(
    folder: Path, made: ScriptedClient, tasks: Any = 3, settings: Mapping[str, Any] | None = None, **how: Any
) -> Learned:
    return learned(folder, made, tasks, {**PLAIN, **(settings or {})}, METHOD, **how)


def proposals(made: Learned) -> list[Call]:
    """The calls for proposals, and for passes over them."""
    return [call for call in made.calls("reflector") if shape(call) == "Bullets"]


def request_of(call: Call) -> str:
    """What a proposal or a pass is asked to do."""
    return material(call.prompt).rpartition("# Now\n")[2]


def outcomes_in(text: str) -> list[str]:
    """The right answers of the outcomes in a text."""
    return re.findall(r"Feedback: The answer is wrong. The right answer is: (\w+)", text)


def kept(made: Learned) -> tuple[list[Rollout], list[Lesson]]:
    """Rollouts and lessons as they lie in the run's folder."""
    with Store.open(made.folder) as store:
        records = list(step_records(store))
    return [r for _, rollouts, _ in records for r in rollouts], [x for _, _, lessons in records for x in lessons]


# ---- what a task costs


# ---- the four links of the loop, read back from the run's folder


def test_memories_inform_the_bullets_and_bullets_guide_the_attempts(tmp_path: Path) -> None:
    made = run(tmp_path, model(citing), 4, {"online": True})
    rollouts, lessons = kept(made)
    context = made.result.context
    for step, rollout in enumerate(rollouts):
        bullets = [round.lesson for round in rollout.rounds]
        assert [WORDS[step] in x.text for x in bullets] == [True, True]
        # Memory-informed context: which memories a bullet was made from.
        informed = {id for x in bullets for id in x.data["memories"]}
        assert len(informed) == min(step, 5)
        assert all((e := context.get(id)) is not None and e.section == MEMORIES for id in informed)
        assert {id for id, _ in rollout.retrieved} == informed
        # Context-guided trajectories: the attempt relied on its own bullets, which are what it says.
        assert bullets[-1].data["entry"] in rollout.trace.used
        assert bool(informed & set(rollout.trace.used)) is (step > 0)
        assert all((e := context.get(x.data["entry"])) is not None and e.text == x.text for x in bullets)
    proposals = [call.prompt.user for call in made.calls("reflector") if shape(call) == "Bullets"]
    assert "Successful approach: the apple way" in proposals[4]
    # Trajectory-enriched memory, feedback-driven refinement.
    assert [e.data["outcome"] for e in context.in_section(MEMORIES)] == ["success"] * 4
    assert [e.helpful for e in context.in_section(SECTION)] == [0, 1] * 4
    assert sum(e.helpful for e in context.in_section(MEMORIES)) == 3
    assert [x.id for x in lessons if x.data.get("stage") == OUTCOMES] == [f"{r.place}/outcome" for r in rollouts]


def test_a_prompt_has_instructions_playbook_memories_and_task_in_this_order(tmp_path: Path) -> None:
    made = run(tmp_path, model(), 3, {"online": True}, instructions="Be kind.")
    for call in made.calls("agent")[3:]:
        head, order = call.prompt.head, ["Be kind.", "(rules) If", "(memories) Successful approach"]
        assert [head.index(part) for part in order] == sorted(head.index(part) for part in order)
        assert "(rules)" not in head[head.index("(memories)") :]
        assert OUTCOMES not in call.text
        assert call.prompt.user == f"Message {number(call)}: say word{number(call)}"
    asked = [call for call in made.calls("agent") if number(call) == 2]
    assert len({call.prompt for call in asked}) == 1
    assert len(asked) == 3


@pytest.mark.parametrize("outcomes", [1, 0])
def test_a_context_with_more_outcomes_than_are_kept_loses_the_older_ones(tmp_path: Path, outcomes: int) -> None:
    settings = {"online": True, "scaling": "none", "passes": 0}
    before = run(tmp_path / "before", model(wrong), 4, settings).result.context
    made = run(
        tmp_path / "after", model(wrong), make_tasks(1, 7), {**settings, "outcomes": outcomes}, seed_context=before
    )
    assert [outcomes_in(call.prompt.user) for call in proposals(made)] == [["word3"][:outcomes]]
    stored = made.result.context.in_section(OUTCOMES)
    assert [outcomes_in(entry.text) for entry in stored] == [["word7"]][:outcomes]


# ---- the size of a delta


def proposing(*answers: int | list[str] | Exception) -> ScriptedClient:
    """A model whose proposals and passes answer with so many bullets, or with these, one after the other; the last
    answer repeats."""
    left = [*answers]

    def reflector(call: Call) -> dict[str, Any] | Exception:
        if shape(call) != "Bullets":
            return thinking(call)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            return answer
        return {"bullets": numbered(answer) if isinstance(answer, int) else answer}

    return model(reflector=reflector)


def numbered(n: int) -> list[str]:
    """Bullets that nothing merges, since their numbers differ."""
    return [f"If it is about number {i}, say {i}." for i in range(n)]


def test_requests_name_the_numbers_of_the_settings_and_the_second_one_those_given(tmp_path: Path) -> None:
    made = run(tmp_path, proposing(2), 1, {"scaling": "none", "passes": 1, "delta_min": 4, "delta_max": 7})
    numbers = [re.findall(r"\d+", request_of(call)) for call in proposals(made)]
    assert numbers == [["4", "7"], ["4", "7", "2", "4", "7"], ["7"]]
    with Store.open(made.folder) as store:
        places = [row.place for row in store.rows(store.select(schema.journal.c.place))]
    asked = sorted(place.partition("/propose/")[2] for place in places if "/propose/" in place)
    assert asked == ["again/reflector", "pass 0/reflector", "pass 1/reflector"]


def test_the_third_pass_and_each_later_one_remove_redundancy(tmp_path: Path) -> None:
    made = run(tmp_path, proposing(6), 1, {"scaling": "none", "passes": 5})
    kinds = [refinement.full for refinement in refinements(10)]
    assert [kinds.index(request_of(call)) for call in proposals(made)[1:]] == [0, 1, 2, 2, 2]


@pytest.mark.parametrize("bullets", ["all", "relied_on"])
def test_tasks_of_one_step_have_drafts_of_their_own_and_count_their_own_bullets(tmp_path: Path, bullets: str) -> None:
    """Their drafts use the same ids for other bullets, which must not be mixed up."""

    def first_rule(call: Call) -> dict[str, Any]:
        shown = re.findall(r"^\[(e\d+)\] \(rules\)", "\n".join(call.prompt.pages), re.MULTILINE)
        return {"answer": right(call) if number(call) % 2 else "wrong", "used": shown[:1]}

    made = run(tmp_path, model(first_rule), 4, {"batch": 4, "bullets": bullets})
    rollouts, _ = kept(made)
    assert {round.lesson.data["entry"] for r in rollouts for round in r.rounds} == {"e0", "e1"}
    votes = {e.text: (e.helpful, e.harmful) for e in made.result.context.in_section(SECTION)}
    for n, word in enumerate(WORDS[:4]):
        assert votes[f"If it is about the {word}, say so."] == ((1, 0) if n % 2 else (0, 1))
        second = votes.get(f"If a {word} is missing, wait for the next one.")
        assert second == ((0, 0) if bullets == "all" else None)
    left_out = made.result.errors.get("uncited_bullets", 0)
    assert left_out == (0 if bullets == "all" else 4)


def test_a_bullet_that_repeats_a_rule_becomes_a_vote_for_the_rule(tmp_path: Path) -> None:
    def alike(call: Call) -> dict[str, Any]:
        return {"bullets": ["If in doubt, look twice."]} if shape(call) == "Bullets" else thinking(call)

    made = run(tmp_path, model(citing, reflector=alike), 3, {"memory": False, "scaling": "none"})
    (rule,) = made.result.context.in_section(SECTION)
    assert (rule.text, rule.helpful) == ("If in doubt, look twice.", 3)
    assert {"task:t0", "task:t1", "task:t2"} <= set(rule.sources)


def test_rules_that_harm_are_dropped_and_memories_never(tmp_path: Path) -> None:
    def relying(call: Call) -> dict[str, Any]:
        shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
        return {"answer": "wrong", "used": shown[:1] + shown[-1:]}

    made = run(tmp_path, model(relying), 8, {"harmful": 2, "budget": 60, "passes": 0, "scaling": "none"})
    context = made.result.context
    assert made.result.errors["pruned_entries"] > 0
    assert all(e.harmful < 2 for e in context.in_section(SECTION))
    assert len(context.in_section(MEMORIES)) == 8
    assert max(e.harmful for e in context.in_section(MEMORIES)) >= 2


# ---- what fails


def test_proposals_that_fail_leave_the_attempt_as_it_would_be(tmp_path: Path) -> None:
    def silent(call: Call) -> Any:
        return ProviderError("provider.failed", "down") if shape(call) == "Bullets" else thinking(call)

    made = run(tmp_path, model(reflector=silent), 3)
    assert made.result.errors["lost_proposals"] == 3
    assert (len(made.result.context.in_section(SECTION)), len(made.result.context.in_section(MEMORIES))) == (0, 3)


def test_a_run_with_a_failed_reflector_stops(tmp_path: Path) -> None:
    """Although it has outcomes to keep: they teach nothing by themselves."""
    with pytest.raises(ProviderError, match="3 steps in a row were lost: nobody there"):
        run(tmp_path, model(reflector=lambda call: ProviderError("provider.failed", "nobody there")), 9)


def test_a_run_with_failed_calls_resumes_to_the_same_result(tmp_path: Path) -> None:
    def flaky(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "overloaded") if (call.options.seed or 0) % 7 == 0 else world(call)

    made = run(tmp_path, client(flaky), 8, {"batch": 2}, labels=False)
    assert made.result.errors
    again = resumed(made, client())
    assert again.model.calls == []
    assert context_bytes(again.result) == context_bytes(made.result)
    assert again.result.errors == made.result.errors


@pytest.mark.parametrize("memory", [True, False])
def test_stored_traces_teach_memories_and_no_bullets(tmp_path: Path, memory: bool) -> None:
    tasks = [traced(0, Score(1.0, True)), traced(1, Score(0.0, False))]
    made = run(tmp_path, model(), tasks, {"memory": memory}, from_traces=True)
    assert len(made.model.calls) == (2 if memory else 0)
    assert {shape(call) for call in made.model.calls} == ({"Memories"} if memory else set())


# ---- resume, determinism, labels, forgetting

WAYS: tuple[dict[str, Any], ...] = (
    {"batch": 2, "k": 2, "passes": 1},
    {"scaling": "sequential", "k": 1, "passes": 1, "online": True, "bullets": "relied_on"},
    {"memory": False, "scaling": "none", "harmful": 1, "delta_min": 3},
)


@pytest.mark.slow
@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_a_run_killed_at_any_call_resumes_to_the_same_result_and_repeats_no_call(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole = run(tmp_path / "whole", client(chancy), 4, settings)
    same_after_any_kill(whole, chancy, tmp_path / "cut", lambda at, model: run(at, model, 4, settings))


@pytest.mark.parametrize("settings", WAYS, ids=str)
@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_in_whatever_order_answers_come(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    runs = [run(tmp_path / str(n), Late(chancy, seed=n), 4, settings, labels=False, concurrency=n) for n in (1, 3, 50)]
    assert len({context_bytes(made.result) for made in runs}) == 1
    assert all(made.rollouts == runs[0].rollouts for made in runs)


def test_in_a_stream_no_target_decides_which_attempt_stands(tmp_path: Path) -> None:
    tasks = make_tasks(12)
    runs = [
        run(tmp_path / str(n), client(chancy), made, {"online": True, "batch": 12, "passes": 0})
        for n, made in enumerate((tasks, changed(tasks, "other")))
    ]
    assert [r.place for r in runs[0].rollouts] == [r.place for r in runs[1].rollouts]
    assert [r.feedback.success for r in runs[0].rollouts] != [r.feedback.success for r in runs[1].rollouts]


def test_neither_the_agent_nor_a_judge_sees_the_target(tmp_path: Path) -> None:
    tasks = [Task(f"t{n}", f"Message {n}: what is it?", f"zebra{n}") for n in range(4)]
    for labels in (True, False):
        made = run(tmp_path / str(labels), model(wrong, refusing), tasks, labels=labels)
        assert not [call for call in (*made.calls("agent"), *made.calls("judge")) if "zebra" in call.text]
        assert any("zebra" in call.text for call in made.calls("reflector")) is labels


def test_a_task_that_is_forgotten_leaves_nothing_of_what_was_made_from_it(tmp_path: Path) -> None:
    """Its memories, its outcome and its bullets go, and so do the bullets that were proposed with these in sight."""
    made = run(tmp_path, model(guessing), 5, {"online": True, "scaling": "none"})
    with Store.open(made.folder) as store:
        report = forget(store, "run", tasks=["t2"])
    assert report.left == 0
    gone = {e.section for e in report.removed}
    assert gone == {MEMORIES, OUTCOMES, SECTION}
    left = practicum.load_context(made.folder)
    assert not [e for e in left if "task:t2" in e.sources or "candle" in e.text]
    assert [e.text for e in left.in_section(SECTION)] == [
        text for word in WORDS[:2] for text in bullets_of(word)
    ]  # fmt: skip
    assert b"word2" not in (made.folder / "run.sqlite").read_bytes()


STEPS = """\
Lists come in pages, and the last one is short.
1. Ask for the largest page:
   ```python
   while batch := api.list(page=page, limit=20):
       items += batch
   ```
2. Count the items before you answer."""


def test_memories_and_bullets_of_several_lines_reach_agent_and_export_word_for_word(tmp_path: Path) -> None:
    def thorough(call: Call) -> dict[str, Any]:
        n = number(call)
        if shape(call) == "Memories":
            return {"items": [{"title": f"Way {n}", "description": "A list has pages.", "content": f"{n}: {STEPS}"}]}
        return {"bullets": [f"Rule {n}: {STEPS}"]} if shape(call) == "Bullets" else {}

    made = run(tmp_path, model(guessing, reflector=thorough), 4, {"online": True, "threshold": 1.0}, profile="full")
    context = made.result.context
    assert f"Rule 0: {STEPS}" in {e.text for e in context.in_section(SECTION)}
    assert any(e.text.endswith(f"Way 0 (A list has pages.)\n0: {STEPS}") for e in context.in_section(MEMORIES))
    again = practicum.load_context(exported(context, tmp_path))
    assert sorted(e.text for e in again) == sorted(e.text for e in context if not e.hidden)
    last = made.calls("agent")[-1].prompt.head
    assert all(line.strip() in last for line in STEPS.splitlines())
    worked, failed = last.index(FOLLOW), last.index(AVOID)
    assert worked < failed
    assert "Failed approach" not in last[worked:failed]
    assert "Successful approach" not in last[failed:]


def exported(context: Context, folder: Path) -> Path:
    file = folder / "playbook.md"
    file.write_text(export(context, "markdown"), encoding="utf-8")
    return file


# ---- settings


def test_the_defaults_are_those_of_the_specification() -> None:
    s = Settings()
    assert (s.attempts, s.memories, s.items, s.passes, s.threshold) == (3, 5, 3, 3, "auto")
    assert (s.memory, s.bullets, s.warmth) == (True, "all", 0.7)
    assert (s.delta_min, s.delta_max, s.outcomes) == (5, 10, 3)
    small = methods.read_settings(METHOD, {}, "small")
    assert isinstance(small, Settings)
    assert (small.delta_min, small.delta_max, small.outcomes) == (0, 10, 3)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"preset": "routine"}, (1, 3, 3)),
        ({"preset": "standard"}, (3, 3, 5)),
        ({"preset": "critical"}, (5, 5, 10)),
        ({"preset": "routine", "scaling": "sequential"}, (1, 3, 3)),
        ({"preset": "standard", "scaling": "sequential"}, (6, 3, 5)),
        ({"preset": "critical", "scaling": "sequential"}, (6, 5, 10)),
        ({"preset": "critical", "passes": 1, "k": 2}, (2, 1, 10)),
        ({"preset": "critical", "memory": False, "scaling": "none"}, (1, 5, 10)),
    ],
    ids=str,
)
def test_what_is_set_by_hand_goes_before_a_preset(given: dict[str, Any], found: tuple[int, int, int]) -> None:
    s = Settings.model_validate(given)
    assert (s.attempts, s.passes, s.memories) == found


@pytest.mark.parametrize("preset", ["routine", "standard", "critical"])
@pytest.mark.parametrize(
    ("profile", "given"), [("small", {}), ("small", {"scaling": "sequential"}), ("full", {"rules": "reflected"})]
)
def test_a_preset_leaves_out_what_has_no_effect(profile: Profile, given: dict[str, Any], preset: str) -> None:
    s = methods.read_settings(METHOD, {"preset": preset, **given}, profile)
    assert isinstance(s, Settings)
    assert s.rules == "reflected"
    assert "passes" not in s.model_fields_set
    sequence = 1 if preset == "routine" else 6
    assert s.attempts == (
        sequence if given.get("scaling") else 1 if profile == "small" else Settings.PRESETS[preset]["k"]
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"memory": False, "items": 2, "consolidate": True}, "consolidate, items needs memory=true"),
        ({"memory": False, "memories": 2}, "memories needs memory=true"),
        ({"memory": False, "preset": "routine", "items": 2}, "items needs memory=true"),
        ({"preset": ["routine"]}, "setting preset=['routine'] of"),
        ({"passes": -1}, "setting passes=-1 of"),
        ({"k": 0}, "k=0 needs scaling=sequential"),
        ({"budget": 0}, "setting budget=0 of"),
        ({"bullets": "some"}, "setting bullets='some' of"),
        ({"delta_min": 8, "delta_max": 7}, "delta_min=8 is more than delta_max=7"),
        ({"delta_max": 3}, "delta_min=5 is more than delta_max=3"),
        ({"delta_min": -1}, "setting delta_min=-1 of"),
        ({"delta_max": 0}, "setting delta_max=0 of"),
        ({"delta_max": 51}, "setting delta_max=51 of"),
        ({"outcomes": -1}, "setting outcomes=-1 of"),
        ({"rules": "reflected", "outcomes": 1, "delta_max": 9}, "delta_max, outcomes needs rules=proposed"),
        ({"preset": "specification", "memory": False, "items": 2}, "items needs memory=true"),
        ({"preset": "specification", "delta_max": 4}, "delta_min=5 is more than delta_max=4"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        methods.build(METHOD, settings)
    assert str(refused.value).removeprefix(f"method {METHOD}: ").startswith(line)


SPECIFIED: dict[str, Any] = {
    "memory": True, "memories": 5, "extract": "chosen", "examples": 0, "weigh": False, "rules": "proposed", "passes": 3,
    "proposal": 0.7, "delta_min": 5, "delta_max": 10, "bullets": "all", "threshold": 0.85, "harmful": 0,
    "scaling": "parallel", "k": 3, "batch": 1,
}  # fmt: skip


@pytest.mark.parametrize("profile", ["full", "small"])
@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        ({"k": 5, "examples": 2, "weigh": "true", "threshold": "auto"},
         {"k": 5, "examples": 2, "weigh": True, "threshold": "auto"}),
        ({"delta_min": 0, "passes": "5", "extract": "all"}, {"delta_min": 0, "passes": 5, "extract": "all"}),
        ({"scaling": "sequential"}, {"scaling": "sequential", "k": None}),
        ({"scaling": "none"}, {"scaling": "none", "k": None}),
        ({"memory": "false"}, {"memory": False, "extract": "all"}),
    ],
    ids=str,
)  # fmt: skip
def test_explicit_settings_override_those_of_the_preset_specification(
    given: dict[str, Any], changed: dict[str, Any], profile: Profile
) -> None:
    settings = methods.read_settings(METHOD, {"preset": "specification", **given}, profile).model_dump()
    assert {name: settings[name] for name in SPECIFIED} == {**SPECIFIED, **changed}


def test_the_preset_specification_has_no_effect_on_rules_from_failures() -> None:
    reflected = methods.read_settings(METHOD, {"preset": "specification", "rules": "reflected"})
    assert not {"passes", "proposal", "delta_min", "delta_max", "bullets"} & reflected.model_fields_set


def test_the_preset_specification_is_of_unified_alone() -> None:
    with pytest.raises(UsageError, match="setting preset='specification' of method reasoning_bank"):
        methods.read_settings("reasoning_bank", {"preset": "specification"})


def test_the_command_line_takes_the_preset(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(1))
    (tmp_path / "model").write_text(json.dumps({"answer": {**FORM, "answer": "word0"}}) + "\n", encoding="utf-8")
    words = ["learn", "tasks.jsonl", "--model", "scripted:model", "--preset", "specification", "--out", "run", "--json"]
    refused = run_command([*words, "--method", "reasoning_bank"], tmp_path)
    assert (refused.code, "preset='specification' of method reasoning_bank" in refused.err) == (2, True)
    taken = run_command([*words, "--method", METHOD], tmp_path)
    assert taken.code == 0, taken.err
    with Store.open(tmp_path / "run") as store:
        assert read_config(store)[0].settings == {"preset": "specification"}


def put(place: str) -> str:
    """Put the thing in its place."""
    return f"put on {place}"


def putting(call: Call) -> str:
    """Puts everything on the floor, until it is shown where it belongs, or is told. Told what was wrong, it only
    repeats that where it may, as small models do."""
    if call.role == "reflector":
        return json.dumps({**dict.fromkeys(("kind", "correction", "diagnosis"), "so"), "insight": "Look.", "tags": []})
    made = [turn.assistant for turn in call.prompt.turns]
    if made and "put" in made[-1] and call.prompt.user.startswith("Observation"):
        return json.dumps({"used": [], "thought": "done", "action": {"finish": {"answer": "done"}}})
    if "What was found" in call.prompt.user and '"finish"' in json.dumps(call.schema):
        return json.dumps({"used": [], "thought": "so", "action": {"finish": {"answer": call.prompt.user}}})
    asked = "\n".join([call.prompt.user, *made])
    place = "the shelf" if "the shelf" in asked else "the floor"
    return json.dumps({"used": [], "thought": "so", "action": {"put": {"place": place}}})


def in_place(task: Task, answer: str, trace: Trace) -> Score:
    right = any(step.kind == "action" and "the shelf" in step.text for step in trace.steps)
    return Score(float(right), right, "" if right else "it should be on the shelf")


def test_with_tools_what_is_solved_once_told_what_was_wrong_is_shown_to_later_tasks(tmp_path: Path) -> None:
    model, tasks = client(putting), make_tasks(3)
    parts = practicum.Parts(clients={"agent": model}, tools=[put], scorer=in_place)
    how = {"method": METHOD, "settings": {"batch": 1, "weigh": False}, "profile": "small", "trust_tools": True}
    result = practicum.run_sync(
        practicum.learn(tasks[:1], test=tasks[1:], before=True, out=tmp_path / "run", parts=parts, **how)
    )
    assert (result.scores["before"], result.scores["test"]) == (0.0, 1.0)
    assert (
        sum("nothing of it is left. What was found: The answer is wrong" in call.prompt.user for call in model.calls)
        == 1
    )
    (solved,) = (entry for entry in result.context if entry.section == "episodes")
    assert (solved.text, solved.data["good"]) == (tasks[0].input, True)
    assert ["action", 'put {"place": "the shelf"}'] in solved.data["steps"]
    # It confirms no rule.
    assert [entry.section for entry in result.context] == ["episodes"]


def test_an_agent_that_only_answers_is_not_told_what_was_wrong(tmp_path: Path) -> None:
    model = client(lambda call: learner(call) if call.role == "reflector" else "wrong")
    parts = practicum.Parts(clients={"agent": model})
    how = {"method": METHOD, "settings": {"weigh": False}, "profile": "small"}
    practicum.run_sync(practicum.learn(make_tasks(2), out=tmp_path / "run", parts=parts, **how))
    assert not [call for call in model.calls if "nothing of it is left" in call.prompt.user]
