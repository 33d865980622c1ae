"""Sections: the user's, those of a seed, and the set for any task; names that models write are matched to them."""

import pytest
from runs import indoors

from practicum.blocks.sections import FULL, SMALL, default_sections, described, parse_sections, section_of
from practicum.core.context import seed_context
from practicum.engine.run import Run
from practicum.session.config import config_from


def run_with(sections: dict[str, str]) -> Run:
    run = indoors(lambda call: "")
    run._state.sections = sections
    return run


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("code", "code"),
        (" Code ", "code"),
        ("FACTS & FORMULAS", "facts and formulas"),
        ("facts_and_formulas", "facts and formulas"),
        ("formula", "facts and formulas"),
        ("Strategy", "strategies"),
        ("2. Pitfall", "pitfalls"),
        ("## checks", "checks"),
        ("verification checks", "checks"),
    ],
)
def test_case_punctuation_plurals_and_missing_words_do_not_matter(name: str, section: str) -> None:
    run = run_with(FULL)
    assert section_of(name, run) == section
    assert not run.counts


@pytest.mark.parametrize("name", ["weather", "code checks", "7"])
def test_a_name_that_fits_no_section_or_several_stands_for_the_first_and_is_counted(name: str) -> None:
    run = run_with(FULL)
    assert section_of(name, run) == "strategies"
    assert run.counts["unknown_sections"] == 1


def test_an_empty_name_stands_for_the_first_section_and_is_not_counted() -> None:
    run = run_with(SMALL)
    assert section_of("", run) == "rules"
    assert not run.counts["unknown_sections"]


def test_an_equal_name_goes_before_one_that_shares_words() -> None:
    run = run_with({"code review": "", "code": ""})
    assert section_of("Code", run) == "code"


def test_prompts_list_each_section_with_what_belongs_there() -> None:
    run = run_with(parse_sections(["APIs: how each is called", "", "other"]))
    assert described(run) == "- APIs: how each is called\n- other"


@pytest.mark.parametrize(
    ("lines", "wrong"), [([": text"], "names no section"), ([".hidden"], "names no section"), (["a", "A."], "twice")]
)
def test_a_list_that_names_nothing_or_one_thing_twice_is_refused(lines: list[str], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_sections(lines)


def test_a_configuration_takes_lines_or_a_mapping_and_keeps_their_order() -> None:
    made = config_from({"sections": ["code: to use again", "checks"]})
    assert list(made.sections.items()) == [("code", "to use again"), ("checks", "")]
    assert type(made).model_validate_json(made.model_dump_json()) == made


def test_a_run_starts_with_the_sections_of_its_seed_then_the_others() -> None:
    seed = seed_context([("Interfaces", "a"), (".state", "b"), ("Code", "c")])
    made = default_sections("full", seed)
    assert list(made) == ["Interfaces", "Code", *(name for name in FULL if name != "code")]
    assert made["Code"] == FULL["code"]
    assert default_sections("small", seed) == SMALL
