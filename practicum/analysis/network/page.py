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
from practicum.analysis.png import data_url
from practicum.core.edits import Add
from practicum.session.ask import Answered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from practicum.agents.team import Team

Move = Mapping[str, Any]
"""One step of an agent, as the network's act records it in the trace."""

VERBS: Mapping[Kind, str] = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip

INK, SOFT, LINE = "#1a1a1a", "#5c636d", "#c4c8ce"


def answer_page(answered: Answered, team: Team | None) -> str:
    """The page of an answer; `team` is the network that gave it, if one did."""
    trace, usage = answered.rollout.trace, answered.usage
    moves: Sequence[Move] = trace.data.get("moves", ())
    facts = [f"{usage.calls} calls", f"{usage.tokens:,} tokens", f"{answered.seconds:.1f} s"]
    if (rounds := trace.data.get("rounds")) is not None:
        facts.append(f"{rounds} rounds of critique")
    rewards = _rewards(answered)
    steps = [(step.kind, step.text) for step in trace.steps]
    return render(
        "answer.html",
        task=answered.rollout.task.input,
        answer=trace.answer if trace.error is None else f"no answer: {trace.error}",
        facts=", ".join(facts),
        network=None if team is None else data_url(network_figure(team, moves)),
        title=None if team is None else f"The network: {len(team.members)} agents, {len(team.edges)} links",
        kinds=[(verb, KIND_COLOURS[kind]) for kind, verb in VERBS.items()],
        moves=[
            {
                **move,
                "verb": VERBS[move["kind"]],
                "colour": KIND_COLOURS[move["kind"]],
                "depth": str(move["task"]).count(".") + 1 if move["task"] else 0,
                "reward": rewards.get(number),
                "experience": answered.context.get(str(move["experience"])),
            }
            for number, move in enumerate(moves)
        ],
        steps=[("thought", trace.reasoning), *steps] if trace.reasoning else steps,
        retrieved=[] if team is not None else [hit.entry for hit in answered.retrieved],
    )


def _rewards(answered: Answered) -> dict[int, float]:
    """The rewards of this attempt's steps by number, which are known where the query was learned from."""
    edits = [done.edit for done in answered.learned.applied] if answered.learned is not None else []
    own = [edit for edit in edits if isinstance(edit, Add) and edit.data.get("trace") == answered.rollout.place]
    return {int(edit.lessons[0].rpartition("/")[2]): float(edit.data["reward"]) for edit in own}


def network_figure(team: Team, moves: Sequence[Move]) -> Figure:
    """The graph of agents: the number of steps in each, and above it a dot for each kind of step it made.

    The entry agent has a thick ring, an agent without steps a grey one; a thick line means that a part was handed over.
    The layout follows the lengths of paths (Kamada and Kawai), so that it is the same each time.
    """
    import networkx as nx
    from matplotlib.figure import Figure

    places = nx.kamada_kawai_layout(team.graph) if len(team.members) > 1 else {team.entry: (0.0, 0.0)}
    kinds = {name: [move["kind"] for move in moves if move["agent"] == name] for name in places}
    handed = {frozenset((move["agent"], receiver)) for move in moves for receiver in move["to"]}
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.margins(0.12, 0.16)
    for link in sorted(team.edges):
        thick = frozenset(link) in handed
        axes.plot(
            *zip(*(places[name] for name in link), strict=True), color=INK if thick else LINE, lw=2.4 if thick else 1,
            zorder=1, gid="handed" if thick else "link",
        )  # fmt: skip
    for name, (x, y) in sorted(places.items()):
        role = "entry" if name == team.entry else "agent" if kinds[name] else "idle"
        axes.plot(
            x, y, "o", ms=23, mfc="white", mec=LINE if role == "idle" else INK, mew=3.5 if role == "entry" else 1.4,
            zorder=2, gid=role,
        )  # fmt: skip
        around: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center", "zorder": 4}
        axes.annotate(str(len(kinds[name])), (x, y), (0, 0), fontsize=10, fontweight="bold", color=INK, **around)
        label = name if len(name) <= 14 else f"{name[:13]}…"
        backdrop: dict[str, Any] = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
        axes.annotate(label, (x, y), (0, -21), fontsize=9, color=INK, bbox=backdrop, **around)
        own = [kind for kind in VERBS if kind in kinds[name]]
        for i, kind in enumerate(own):
            offset = (7 * (i - (len(own) - 1) / 2), 17)
            axes.annotate("●", (x, y), offset, fontsize=7, color=KIND_COLOURS[kind], **around)
    return figure
