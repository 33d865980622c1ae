"""`practicum nightly`: learns from the captured sessions of coding agents, and proposes changes of instruction files.

Each project has a space, which goes on learning every night. Lessons wait for review, because a session may contain
text of others. A request of a session is learned from once; if it grows, it is learned from again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import ContextFileError, StoreError
from practicum.core.files import read_bytes, write_atomic
from practicum.core.words import in_number, one_line, quantity
from practicum.models.budget import LIMITS
from practicum.plugins.coding.capture import LOG
from practicum.plugins.coding.connect import BACKUP, rewrite, store_folder

if TYPE_CHECKING:
    from practicum.core.context import Context
    from practicum.core.types import Task
    from practicum.plugins.coding.captured import Project
    from practicum.plugins.coding.proposal import Target
    from practicum.session.result import Result

PROBLEMS_SHOWN = 10


@opt.settings(
    "method", "settings", "model", "roles", "profile", "concurrency", "timeout", "api_key_env", "model_options",
    "prices", "redact", "max_calls", "max_tokens", "max_usd", "max_minutes", method="combee",
)  # fmt: skip
def nightly(
    store: Path | None = opt.option(None, metavar="DIR"),
    apply: bool = Option(False, "--apply", help="Write approved entries to the instruction files and skills."),
    branch: bool = Option(False, "--branch", help="Commit the proposal on a new branch practicum/DATE."),
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Learn from the captured sessions of coding agents.

    Each project has a space below --store. Lessons wait for review; the command prints the change of CLAUDE.md,
    AGENTS.md or skills that their approval would make. The limits hold for all projects together.
    """
    from practicum.cli.inputs import config_values
    from practicum.plugins.coding.captured import read_projects

    folder, out = store_folder(store), Printer(json_)
    projects, faults = read_projects(folder)
    config, code = config_values(options), 0
    left, nights = {name: config.pop(name) for name in LIMITS if name in config}, list[dict[str, Any]]()
    for project in projects:
        night = Night(project, folder / "projects" / project.name, out)
        try:
            result = night.learn(config, left)
            if result is not None:
                left = _left(left, result)
                code = max(code, 130 if result.interrupted else int(result.cut_short))
            nights.append(night.propose(result, apply, branch))
        except (ContextFileError, StoreError) as error:
            # A file of one project does not stop the night of the others.
            project.problems.append(str(error))
            code = max(code, 1)
        if code == 130:
            break
    out.result({"projects": nights})
    _report(projects, faults, folder, out)
    return code


def _left(limits: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """Return the limits of a night, less the usage of a run of learning."""
    usage = result.usage
    spent = {"max_calls": usage.calls, "max_tokens": usage.tokens, "max_usd": usage.usd or 0.0,
             "max_minutes": result.seconds / 60}  # fmt: skip
    return {name: limit - spent[name] for name, limit in limits.items()}


@dataclass
class Night:
    """One night of a project. `space` is the folder of the project's space."""

    project: Project
    space: Path
    out: Printer
    new: int = 0
    """Number of requests that were not learned from before this night."""

    @cached_property
    def target(self) -> Target:
        """The files of the project that are changed."""
        from practicum.plugins.coding.proposal import Target

        return Target.of(self.project.folder, self.project.programs)

    def learn(self, config: Mapping[str, Any], limits: Mapping[str, Any]) -> Result | None:
        """Learn from the requests that were not learned from yet. Return None without such requests, and if the
        limits are spent."""
        import practicum
        from practicum.cli.running import run_live
        from practicum.session.watching import one_watch

        tasks = self._new_tasks(config)
        self.new = len(tasks)
        spent = "; the limits of this night are spent" if any(limit <= 0 for limit in limits.values()) else ""
        new, sessions = quantity(len(tasks), "new request"), quantity(len(self.project.sessions), "session")
        self.out.item(f"{self.project.folder}: {new} in {sessions}{spent if tasks else ''}")
        if not tasks or spent:
            return None

        async def work(watch: Sequence[Any], parts: Any) -> Result:
            async with practicum.open(self.space, parts=parts, **config) as space:
                return await space.learn(tasks, watch=one_watch(watch), **limits)

        result = run_live(work, self.out)
        self.out.usage(result.usage, result.seconds, result.hits, result.by_role)
        self.out.counts(result.errors, result.refused)
        if result.stopped:
            self.out.item(f"stopped early: {result.stopped}; the next night continues")
        return result

    def _new_tasks(self, config: Mapping[str, Any]) -> list[Task]:
        """Open the space, or create it with the project's files as its seed, and return the requests that it has not
        learned from."""
        from practicum.core.context import initial_context
        from practicum.core.edits import Add
        from practicum.core.instructions import is_outside
        from practicum.engine.sessions import JOINED
        from practicum.methods.blocks.show import default_sections
        from practicum.session.components import Parts
        from practicum.session.config import config_from
        from practicum.session.records import create_seed
        from practicum.session.setup import with_defaults
        from practicum.store.database import Store
        from practicum.store.folder import is_run
        from practicum.tasks.stored import StoredTasks

        if not is_run(self.space):
            seed = self.target.seed()
            settings = with_defaults(config_from(config), Parts())
            # Lessons have sections of skills, but not of the user's text.
            topics = initial_context([Add(e.section, e.text) for e in seed if not is_outside(e)])
            sections = settings.sections or default_sections(settings.profile or "full", topics)
            create_seed(self.space, seed, config=settings.model_copy(update={"sections": sections}), flag=False)
        with Store.open(self.space) as store:
            if self.project.folder.is_dir():
                self.target.follow(store)
                self.target.approve_merged(store)
            stored = StoredTasks(store, "train")
            learned = {id for task in stored for id in (task.id, *task.meta.get(JOINED, ()))}
        return [*{task.id: task for task in self.project.tasks() if task.id not in learned}.values()]

    def propose(self, result: Result | None, apply: bool, branch: bool) -> dict[str, Any]:
        """Print the change that the approval of all waiting edits would make, and store it next to the space. Return
        the night as JSON values."""
        from practicum import run_sync
        from practicum.plugins.coding.proposal import sources_of, waiting
        from practicum.store.database import Store
        from practicum.store.snapshot import read_context

        target = self.target
        with Store.read(self.space) as store:
            seed, approved = read_context(store, 0), read_context(store)
            (everything, reviews), (unflagged, chosen) = waiting(store, flagged=True), waiting(store, flagged=False)
        sources = {review.id: sources_of(review) for review in reviews}
        exists = target.project.is_dir()
        diff = target.diff(run_sync(target.changed(everything, seed))) if exists else ""
        text = "".join(f"# {id}, from {', '.join(names)}\n" for id, names in sources.items()) + diff
        file = self.space.with_name(f"{self.space.name}.diff")
        write_atomic(file, text, private=True)
        night = {
            "project": str(self.project.folder), "space": str(self.space), "diff": text, "diff_file": str(file),
            "waiting": sources, "sessions": len(self.project.sessions), "new": self.new, "applied": [],
            "branch": None,
            "result": None if result is None else result.as_json(),
        }  # fmt: skip
        if text:
            self.out.print(text.rstrip())
        if reviews:
            edits = in_number(len(reviews), f"{len(reviews):,} edit[|s] wait[s|]")
            self.out.item(f"{edits} for review: practicum review {self.space}")
        if apply and exists:
            night["applied"] = self._apply(target, run_sync(target.changed(approved, seed)))
        if branch and exists:
            message = "\n".join(["Lessons from the sessions of coding agents", "",
                                 *(f"{one.id}: from {', '.join(sources[one.id])}" for one in chosen)])  # fmt: skip
            night["branch"] = self._branch(target, unflagged, seed, message)
        return night

    def _apply(self, target: Target, files: Mapping[str, bytes]) -> list[str]:
        """Write changed files, each with a backup, and return their paths."""
        if files:
            self.out.print(target.diff(files).rstrip())
        for name, content in files.items():
            path = (target.project / name).resolve()
            if path.exists():
                rewrite(path.with_name(path.name + BACKUP), read_bytes(path), like=path)
            rewrite(path, content, like=path)
            self.out.item(f"written: {path}")
        return [*files]

    def _branch(self, target: Target, context: Context, seed: Context, message: str) -> str | None:
        """Commit the changed files on a branch, and return its name."""
        from practicum import run_sync
        from practicum.plugins.coding.branch import commit

        def files(folder: Path) -> Mapping[str, bytes]:
            return run_sync(replace(target, project=folder).changed(context, seed))

        if not (target.project / ".git").exists():
            self.out.item(f"{target.project} is not a git repository: no branch")
            return None
        name = commit(target.project, f"practicum/{date.today():%Y-%m-%d}", message, files)
        self.out.item(f"no change for a branch in {target.project}" if name is None else f"branch {name}")
        return name


def _report(projects: Sequence[Project], faults: int, folder: Path, out: Printer) -> None:
    """Print what could not be read or captured."""
    try:
        failures = read_bytes(folder / LOG).count(b"\n") if (folder / LOG).exists() else 0
    except OSError as error:
        raise StoreError("store.unreadable", f"cannot read {folder / LOG}: {error.strerror}") from error
    problems = [problem for project in projects for problem in project.problems]
    missing = sum(project.missing for project in projects)
    out.result({"problems": problems, "missing": missing, "unreadable": faults, "capture_failures": failures})
    for problem in problems[:PROBLEMS_SHOWN]:
        out.item(f"could not be read in full: {one_line(problem, 300)}")
    if (more := len(problems) - PROBLEMS_SHOWN) > 0:
        out.item(f"and {quantity(more, 'more such line')}")
    if missing:
        out.item(f"{quantity(missing, 'session')} without a file: deleted, or never stored")
    if faults:
        out.item(f"{quantity(faults, 'line')} of captured.jsonl cannot be read")
    if failures:
        out.item(f"{quantity(failures, 'session')} could not be captured: see {folder / LOG}")
