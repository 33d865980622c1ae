"""One attempt as a page of HTML that needs nothing else: for a network of agents the graph, who did what for which
part, with rewards where they are known, and the experience each step was shown; for any other method its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from practicum.core.context import Context
from practicum.core.edits import Add, Entry
from practicum.session.ask import Answered

if TYPE_CHECKING:
    from practicum.agents.team import Team

Move = Mapping[str, Any]

DID = {
    "judge": "judged", "decompose": "decomposed", "solve": "solved",
    "critique": "criticised", "aggregate": "aggregated",
}  # fmt: skip
COLOURS = {
    "judge": "#777777", "decompose": "#0072B2", "solve": "#009E73", "critique": "#D55E00", "aggregate": "#CC79A7",
}  # fmt: skip
"""Told apart by people of any colour vision (Okabe and Ito 2008)."""

WIDTH, HEIGHT = 360.0, 240.0
"""Units of the graph's picture, as many as a narrow phone has pixels."""


def picture(found: Answered, team: Team | None) -> str:
    """The page of an answer; `team` is the network that gave it, where one did."""
    task, trace = found.rollout.task.input, found.rollout.trace
    moves: Sequence[Move] = trace.data.get("moves", ())
    parts = [f"<h1>{escape(task)}</h1>", _answer(found)]
    if team is not None:
        parts += [_graph(team, moves), _key(), _course(found, moves)]
    else:
        parts.append(_steps(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(task[:80])}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{chr(10).join(parts)}</main></body></html>\n"
    )


def _answer(found: Answered) -> str:
    trace, usage = found.rollout.trace, found.usage
    said = f"no answer: {trace.error}" if trace.error is not None else trace.answer
    rounds = trace.data.get("rounds")
    facts = [f"{usage.calls} calls", f"{usage.tokens:,} tokens", f"{found.seconds:.1f} s"]
    facts += [] if rounds is None else [f"{rounds} rounds of critique"]
    return f'<pre class="answer">{escape(said)}</pre><p class="soft">{", ".join(facts)}</p>'


# ---- the graph


def _graph(team: Team, moves: Sequence[Move]) -> str:
    places = _places(team)
    did = {name: [m["kind"] for m in moves if m["agent"] == name] for name in places}
    handed = {tuple(sorted((m["agent"], to))) for m in moves for to in m["to"]}

    def parts() -> Iterator[str]:
        for a, b in sorted(team.edges):
            (x1, y1), (x2, y2) = places[a], places[b]
            kind = "handed" if tuple(sorted((a, b))) in handed else "link"
            yield f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'
        for name, (x, y) in places.items():
            entry = " entry" if name == team.entry else ""
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="15" class="agent{entry}{"" if did[name] else " idle"}"/>'
            yield f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle" class="count">{len(did[name])}</text>'
            yield f'<text x="{x:.1f}" y="{y + 31:.1f}" text-anchor="middle" class="name">{escape(_short(name))}</text>'
            yield from _dots(did[name], x, y)

    title = f"The network: {len(team.members)} agents, {len(team.edges)} links"
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{title}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts())}</svg>'
    )


def _places(team: Team) -> dict[str, tuple[float, float]]:
    """Where each agent stands: by the lengths of the ways between them, which needs no chance."""
    import networkx as nx

    at = nx.kamada_kawai_layout(team.graph) if len(team.members) > 1 else {team.entry: (0.0, 0.0)}
    ends = [(min(p[i] for p in at.values()), max(p[i] for p in at.values())) for i in (0, 1)]

    def scaled(value: float, axis: int, low: float, high: float) -> float:
        first, last = ends[axis]
        return (low + high) / 2 if last - first < 1e-6 else low + (high - low) * (value - first) / (last - first)

    return {name: (scaled(x, 0, 50, WIDTH - 50), scaled(y, 1, 34, HEIGHT - 44)) for name, (x, y) in sorted(at.items())}


def _dots(kinds: Sequence[str], x: float, y: float) -> Iterator[str]:
    """What an agent did, as a row of dots above it."""
    own = [kind for kind in DID if kind in kinds]
    for n, kind in enumerate(own):
        left = x + 9 * (n - (len(own) - 1) / 2)
        yield f'<circle cx="{left:.1f}" cy="{y - 23:.1f}" r="3.5" style="fill:{COLOURS[kind]}"/>'


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


def _key() -> str:
    items = "".join(f'<span><i style="background:{COLOURS[kind]}"></i>{did}</span>' for kind, did in DID.items())
    return (
        f'<p class="key">{items}</p><p class="soft">Number: steps an agent made. Thick ring: where the task came in. '
        "Thick line: a part was handed over.</p>"
    )


# ---- what happened


def _course(found: Answered, moves: Sequence[Move]) -> str:
    """Each step in order, further in for parts of parts."""
    rewards = _rewards(found)
    steps = "".join(_step(move, rewards.get(n), found.context) for n, move in enumerate(moves))
    return f'<h2>What happened</h2><ol class="course">{steps}</ol>'


def _rewards(found: Answered) -> dict[int, float]:
    """Rewards of this attempt's steps by number: known where the query was learned from."""
    edits = [done.edit for done in found.learned.applied] if found.learned is not None else []
    made = [edit for edit in edits if isinstance(edit, Add) and edit.data.get("trace") == found.rollout.place]
    return {int(edit.lessons[0].rpartition("/")[2]): float(edit.data["reward"]) for edit in made}


def _step(move: Move, reward: float | None, context: Context) -> str:
    id = str(move["task"])
    depth = id.count(".") + 1 if id else 0
    part = f"part {id}" if id else "the whole"
    round = f", round {move['round']}" if move["round"] else ""
    worth = "" if reward is None else f'<span class="reward">reward {reward:.2f}</span>'
    to = f'<p class="soft">to {escape(", ".join(move["to"]))}</p>' if move["to"] else ""
    entry = context.get(str(move["experience"]))
    return (
        f'<li style="margin-left:{depth * 1.1:.1f}em;border-color:{COLOURS[move["kind"]]}">'
        f"<p><b>{escape(move['agent'])}</b> {DID[move['kind']]} {part}{round}{worth}</p>"
        f"<pre>{escape(str(move['action']))}</pre>{to}"
        f"<details><summary>what was given</summary><pre>{escape(str(move['state']))}</pre></details>"
        f"{'' if entry is None else _shown(entry)}</li>"
    )


def _shown(entry: Entry) -> str:
    """The experience a step was shown."""
    said = f"experience {entry.id}, reward {float(entry.data['reward']):.2f}"
    inner = f"<pre>{escape(entry.key)}</pre><p class='soft'>was answered with</p><pre>{escape(entry.text)}</pre>"
    return f"<details><summary>{escape(said)}</summary>{inner}</details>"


def _steps(found: Answered) -> str:
    """The steps of an attempt that no network made, and what was looked up for it."""
    trace = found.rollout.trace
    steps = [("thought", trace.reasoning)] if trace.reasoning else []
    steps += [(step.kind, step.text) for step in trace.steps]
    listed = "".join(f"<li><p><b>{escape(kind)}</b></p><pre>{escape(text)}</pre></li>" for kind, text in steps)
    near = "".join(f"<li><p><b>{f.entry.id}</b> {escape(f.entry.text)}</p></li>" for f in found.retrieved)
    told = f'<h2>What happened</h2><ol class="course">{listed}</ol>' if steps else "<p>It answered in one step.</p>"
    return told + (f'<h2>What was looked up</h2><ol class="course">{near}</ol>' if near else "")


STYLE = """\
:root{--page:#fff;--ink:#1a1a1a;--soft:#5c5c5c;--line:#cfcfcf;--box:#f4f4f4}
@media(prefers-color-scheme:dark){:root{--page:#151515;--ink:#ececec;--soft:#a5a5a5;--line:#4a4a4a;--box:#222}}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.45 system-ui,sans-serif}
main{max-width:44em;margin:auto;padding:1em}
h1{font-size:1.2em;overflow-wrap:anywhere;white-space:pre-wrap;max-height:12em;overflow:auto}
h2{font-size:1.05em;margin-top:1.6em}
p{margin:.3em 0}.soft{color:var(--soft);font-size:.9em}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--box);padding:.5em;margin:.3em 0;font-size:.85em;
border-radius:4px;max-height:16em;overflow:auto}
.answer{font-size:1em}
svg{display:block;width:100%;max-width:32em;margin:1em auto 0}
svg text{fill:var(--ink);font-size:12px}.count{font-weight:600}
.link{stroke:var(--line);stroke-width:1}.handed{stroke:var(--ink);stroke-width:2.5}
.agent{fill:var(--page);stroke:var(--ink);stroke-width:1.5}.entry{stroke-width:4}.idle{stroke:var(--line)}
.name{paint-order:stroke;stroke:var(--page);stroke-width:4px}
.key{display:flex;flex-wrap:wrap;gap:.2em 1em;justify-content:center;font-size:.9em}
.key i{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.35em}
.course{list-style:none;padding:0}.course li{border-left:4px solid var(--line);padding:.1em 0 .3em .7em;margin:.7em 0}
.reward{float:right;color:var(--soft);font-size:.9em}
details{font-size:.9em}summary{cursor:pointer;color:var(--soft);padding:.25em 0}"""
