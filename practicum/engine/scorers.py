"""Scorers that need a run in addition to the answer, for embeddings or a judge's grades.

`software` is completeness x executability x consistency of a small project (MAEL, section 3.1, as in ChatDev).
`commongen` is concept coverage x the mean of a judge's grades for grammar, fluency, relevance and logic. The MAEL paper
names the coverage and the four grades, but not the formula that combines them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from practicum.core.bounded import MaxChars, Output
from practicum.core.errors import TaskFileError
from practicum.core.types import Prompt, Score, Task, Trace
from practicum.engine.run import Run
from practicum.tasks.sandbox.runner import Sandbox
from practicum.tasks.scoring.code_blocks import project_files
from practicum.tasks.scoring.coverage import concept_coverage, concepts_fault
from practicum.tasks.scoring.rules import PASS_MARK
from practicum.tasks.scoring.software import inspect_project, run_project, software_fault

QUALITIES = ("completeness", "executability", "consistency")
"""The three measures whose product is the quality of software (MAEL, table 2)."""

SHOWN = 3
"""Maximum number of gaps in a project that the note of a score names."""


class SoftwareScorer:
    """Scorer of software: the product of the three qualities. The answer is correct if the project is complete and
    runs. The score is journaled, because running the project is an effect."""

    name, needs_target, pure = "software", False, False

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self.sandbox = sandbox or Sandbox()

    async def __call__(self, task: Task, trace: Trace, run: Run) -> Score:
        """Return the score, whose note names the faults. Raises TaskFileError if the task describes the project
        wrongly."""
        if fault := software_fault(task.meta):
            raise TaskFileError("tasks.missing_field", f"task {task.id!r} {fault}")
        files = project_files(trace.answer)
        if not files:
            return Score(0.0, False, "the answer holds no files", dict.fromkeys(QUALITIES, 0.0))
        project = await inspect_project(files, self.sandbox)
        ran = await run_project(task.meta, files, self.sandbox)
        consistency = 0.0
        if project.code.strip():
            # The cosine of the embeddings of the requirement and of the code without comments, in [0, 1].
            asked, written = await run.embed([task.input, project.code])
            consistency = min(max(float(asked @ written), 0.0), 1.0)
        qualities = (float(not project.gaps), float(not ran.reason), consistency)
        whole = not project.gaps and not ran.reason
        notes = [f"left open: {'; '.join(project.gaps[:SHOWN])}"] if project.gaps else []
        notes += [f"run, it {ran.reason}"] if ran.reason else []
        parts = f"complete {int(not project.gaps)}, runs {int(not ran.reason)}, consistent {consistency:.2f}"
        value, note = consistency if whole else 0.0, ". ".join([parts, *notes])
        measures = {**dict(zip(QUALITIES, qualities, strict=True)), **project.measures}
        return Score(value, whole, note, measures, ran.stopped, unfenced=ran.unfenced)


class Grades(Output):
    """What a judge says of a text."""

    reason: Annotated[str, MaxChars(300)] = Field(description="what speaks for and against the text")
    grammar: int = Field(ge=0, le=10, description="whether it is correct English")
    fluency: int = Field(ge=0, le=10, description="whether it reads naturally")
    relevance: int = Field(ge=0, le=10, description="whether the concepts belong to what it tells")
    logic: int = Field(ge=0, le=10, description="whether it makes sense and holds together")

    @property
    def mean(self) -> float:
        """Mean of the four grades, in [0, 1]."""
        return (self.grammar + self.fluency + self.relevance + self.logic) / 40


class CommonGenScorer:
    """Scorer for CommonGen: coverage times a judge's mean grade. The judge's call is journaled, so the score is
    computed from this call and not journaled itself."""

    name, needs_target, pure = "commongen", False, True

    async def __call__(self, task: Task, trace: Trace, run: Run) -> Score:
        """Return the score, in [0, 1]. Raises TaskFileError for a task without concepts."""
        if fault := concepts_fault(task.meta, self.name):
            raise TaskFileError("tasks.missing_field", f"task {task.id!r} {fault}")
        coverage = concept_coverage(task.meta["concepts"], trace.answer)
        if not trace.answer.strip():
            return coverage
        parts = [f"# Concepts\n{', '.join(task.meta['concepts'])}", f"# Text\n{trace.answer}"]
        prompt = Prompt.from_parts(GRADE, parts)
        grades = await run.at("score").ask_fitted("judge", prompt, Grades, temperature=0.0)
        value = coverage.value * grades.mean
        return Score(value, value >= PASS_MARK, " ".join(filter(None, (coverage.note, grades.reason))))


GRADE = """\
You grade a short text that was to use all of the given concepts. Concepts it leaves out are counted elsewhere: grade \
what is there. Give each grade from 0, unusable, to 10, nothing to improve; 5 is a text with clear faults. A list of \
loosely joined sentences may be correct and fluent, but deserves few points for relevance and logic. First say what \
speaks for and against the text, then grade it."""
