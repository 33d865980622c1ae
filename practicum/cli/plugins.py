"""`practicum bench plugins`: lists the plug-ins of installed packages and their problems."""

from __future__ import annotations

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.words import quantity


def plugins(json_: opt.Json = False) -> None:
    """List the plug-ins of installed packages.

    Shows the reason if a plug-in cannot be used.
    """
    from practicum.agents.kinds import AGENTS
    from practicum.cli.tree import COMMANDS
    from practicum.engine.workers import ENGINES
    from practicum.methods import METHODS
    from practicum.retrieval.search import INDEXES
    from practicum.session.registries import REGISTRIES
    from practicum.session.trackers import TRACKERS
    from practicum.store.backend import STORES
    from practicum.tasks.formats import FORMATS
    from practicum.tasks.scoring.registry import SCORERS

    groups = (METHODS, AGENTS, SCORERS, STORES, INDEXES, ENGINES, COMMANDS, TRACKERS, REGISTRIES, FORMATS)
    listed = [plugin for group in groups for plugin in group.described()]
    out = Printer(json_)
    out.result({"plugins": [plugin.as_json() for plugin in listed]})
    rows = [(each.kind, each.name, each.package, each.problem or "ready") for each in listed]
    out.table(("kind", "name", "package", "state"), rows, text=("kind", "name", "package", "state"))
    problems = [each for each in listed if each.problem]
    out.print(f"{quantity(len(listed), 'plug-in')}, {len(problems)} of them with a problem")
