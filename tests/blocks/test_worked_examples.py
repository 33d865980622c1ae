"""Worked examples for small models: each must be valid in the form that the model is asked for."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from practicum.blocks.act import network
from practicum.blocks.attempt import propose
from practicum.blocks.reflect import self_contrast, self_reflection
from practicum.blocks.reflect.heads import HEADS, ShortReflections
from practicum.blocks.reflect.per_trace import ShortReflection
from practicum.blocks.search import demonstrations, examples, exemplars, expansion
from practicum.blocks.search.candidates import Instruction
from practicum.blocks.update import cheatsheet, insights, memory_bank
from practicum.blocks.update.curator import Decisions
from practicum.blocks.update.optimizer_state import State
from practicum.core.bounded import Output
from practicum.core.types import Turn
from practicum.methods import (
    ape,
    dynamic_cheatsheet,
    erm,
    evoprompt,
    expel,
    gepa,
    opro,
    protegi,
    textgrad,
    tf_grpo,
    worked_examples,
)
from practicum.models.prompting import json_schema

SHOWN: list[tuple[str, type[Output], tuple[Turn, ...]]] = [
    ("reflections", ShortReflection, worked_examples.EXAMPLES),
    ("without rules", ShortReflection, worked_examples.WITHOUT_RULES),
    ("several", ShortReflections, (worked_examples.AT_A_TIME,)),
    ("decisions", Decisions, worked_examples.CURATED),
    ("notes", State, worked_examples.NOTED),
    ("memories", memory_bank.form(1), memory_bank.EXTRACTED),
    ("bullets", propose.form(10), propose.proposing(0, 10).examples),
    ("one bullet", propose.form(1), propose.proposing(1, 1).examples),
    ("contrasts", self_contrast.Contrast, self_contrast.CONTRASTED),
    ("self-reflections", self_reflection.ShortSelfReflection, self_reflection.SELF.examples),
    ("comparisons", insights.Operations, expel.COMPARE.examples),
    ("generalizations", insights.Operations, expel.GENERALIZE.examples),
    ("sheets", cheatsheet.Sheet, dynamic_cheatsheet.WRITER.examples),
    ("prepared sheets", cheatsheet.Sheet, dynamic_cheatsheet.PREPARER.examples),
    ("advantages", tf_grpo.Advantage, tf_grpo.ADVANTAGE.examples),
    ("guesses", Instruction, demonstrations.INDUCE.examples),
    ("opro", Instruction, opro.OPTIMIZER.examples),
    ("variants", Instruction, ape.VARY.examples),
    ("offspring", Instruction, evoprompt.CROSS.examples),
    ("breeding: starts", Instruction, examples.STARTED),
    ("breeding: advice followed", Instruction, examples.FOLLOWED),
    ("breeding: lists", Instruction, examples.CONTINUED),
    ("breeding: advice", Instruction, examples.ADVISED),
    ("erm: failures worked out", exemplars.Reflected, erm.REFLECT.examples),
    ("protegi: gradients", expansion.Criticism, protegi.GRADIENT.examples),
    ("protegi: edits", Instruction, protegi.EDIT.examples),
    ("textgrad: gradients", textgrad.Gradient, textgrad.GRADIENT.examples),
    ("textgrad: descent", Instruction, textgrad.OPTIMIZER.examples),
    ("gepa", Instruction, gepa.REFLECTOR.examples),
    ("gepa: joins", Instruction, gepa.JOINER.examples),
    ("network: judge", network.Ability, network.ASKED["judge"].examples),
    ("network: decompose", network.Plan, network.ASKED["decompose"].examples),
    ("network: solve", network.PartSolution, network.ASKED["solve"].examples),
    ("network: critique", network.Critique, network.ASKED["critique"].examples),
    ("network: aggregate", network.PartSolution, network.ASKED["aggregate"].examples),
]
PARTS, WHOLE = HEADS["small"]


@pytest.mark.parametrize(("form", "turns"), [one[1:] for one in SHOWN], ids=[one[0] for one in SHOWN])
def test_examples_keep_to_their_form(form: type[Output], turns: tuple[Turn, ...]) -> None:
    assert turns
    for turn in turns:
        said = json.loads(turn.assistant)
        Draft202012Validator(json_schema(form, "small")).validate(said)
        # Without white space, as a grammar has small models write.
        assert turn.assistant == json.dumps(said, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("form", [*PARTS, WHOLE])
def test_diagnoses_keep_to_the_form_of_each_head(form: type[Output]) -> None:
    for _, whole in worked_examples.DIAGNOSED:
        said = whole.model_dump(include=set(form.model_fields))
        Draft202012Validator(json_schema(form, "small")).validate(said)
