"""Worked examples for small models: each must be valid in the form that the model is asked for."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from practicum.blocks.act import network
from practicum.blocks.attempt import propose
from practicum.blocks.reflect import self_contrast
from practicum.blocks.reflect.heads import HEADS, ShortReflections
from practicum.blocks.reflect.per_trace import ShortReflection
from practicum.blocks.update import memory_bank
from practicum.blocks.update.curator import Decisions
from practicum.blocks.update.optimizer_state import State
from practicum.core.bounded import Output
from practicum.core.types import Turn
from practicum.methods import worked_examples
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
