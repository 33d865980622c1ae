"""One answer as a page of HTML that needs no other file.

For a network of agents it shows the graph, who did what for which part of the task, rewards where they are known, and
the experience each step was given. For any other method it shows the steps of the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from practicum.agents.network import Kind
from practicum.analysis.network.pools import KIND_COLOURS
from practicum.analysis.pages import render
from practicum.analysis.png import INK, data_url, new_figure
from practicum.core.edits import Add
from practicum.session.ask import Answered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from practicum.agents.team import Team

MoveData = Mapping[str, Any]
"""One step of an agent, as the network's act records it in the trace."""

VERBS: Mapping[Kind, str] = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip

LINE = "#C4C8CE"


def answer_page(answered: Answered, team: Team | None) -> str:
    """The page of an answer; `team` is the network that gave it, if one did."""
    moves: Sequence[MoveData] = answered.rollout.trace.data.get("moves", ())
    # The rewards of this attempt's steps are known where the query was learned from.
    edits = [done.edit for done in answered.learned.applied] if answered.learned is not None else []
    own = [edit for edit in edits if isinstance(edit, Add) and edit.data.get("trace") == answered.rollout.place]
    return render(
        "answer.html",
        answered=answered,
        trace=answered.rollout.trace,
        team=team,
        network=None if team is None else data_url(network_figure(team, moves)),
        moves=moves,
        verbs=VERBS,
        colours=KIND_COLOURS,
        rewards={int(edit.lessons[0].rpartition("/")[2]): float(edit.data["reward"]) for edit in own},
    )


def network_figure(team: Team, moves: Sequence[MoveData]) -> Figure:
    """The graph of agents: the number of steps in each, and above it a dot for each kind of step it made.

    The entry agent has a thick ring, an agent without steps a grey one; a thick line means that a part was handed over.
    The layout follows the lengths of paths (Kamada and Kawai), so that it is the same each time.
    """
    import networkx as nx

    places = nx.kamada_kawai_layout(team.graph) if len(team.members) > 1 else {team.entry: (0.0, 0.0)}
    kinds = {name: [move["kind"] for move in moves if move["agent"] == name] for name in places}
    handed = {frozenset((move["agent"], receiver)) for move in moves for receiver in move["to"]}
    figure = new_figure(5.2, 3.6)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.margins(0.12, 0.16)
    for link in sorted(team.edges):
        ends = [places[name] for name in link]
        thick = frozenset(link) in handed
        colour, width, gid = (INK, 2.4, "handed") if thick else (LINE, 1, "link")
        axes.plot([x for x, _ in ends], [y for _, y in ends], color=colour, lw=width, zorder=1, gid=gid)
    around: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center", "zorder": 4}
    for name, (x, y) in sorted(places.items()):
        role = "entry" if name == team.entry else "agent" if kinds[name] else "idle"
        ring = {"entry": (INK, 3.5), "agent": (INK, 1.4), "idle": (LINE, 1.4)}[role]
        axes.plot(x, y, "o", ms=23, mfc="white", mec=ring[0], mew=ring[1], zorder=2, gid=role)
        axes.annotate(str(len(kinds[name])), (x, y), (0, 0), fontsize=10, fontweight="bold", color=INK, **around)
        label = name if len(name) <= 14 else f"{name[:13]}…"
        backdrop: dict[str, Any] = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
        axes.annotate(label, (x, y), (0, -21), fontsize=9, color=INK, bbox=backdrop, **around)
        own = [kind for kind in VERBS if kind in kinds[name]]
        for i, kind in enumerate(own):
            offset = (7 * (i - (len(own) - 1) / 2), 17)
            axes.annotate("●", (x, y), offset, fontsize=7, color=KIND_COLOURS[kind], **around)
    return figure
