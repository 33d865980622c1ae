"""`practicum demo`: the main job on real input, with a small model that needs no key."""

from __future__ import annotations

from pathlib import Path

import typer

from practicum.cli import options as opt

Opt = typer.Option


def demo(
    out: Path | None = Opt(None, help="Folder to keep the run in (default: a new one under ./runs)."),
    model: str = Opt("local", help="Another model than the small one."),
    json_: opt.Json[bool] = False,
) -> int:
    """Learn to route support messages to teams whose names say nothing, with a 135M model on this machine."""
    from practicum.cli.live import Live, usage_words
    from practicum.cli.running import console_for, print_json, run_work
    from practicum.session.components import Parts
    from practicum.session.learn import learn
    from practicum.tasks.load import choices_from, load_tasks

    data = Path(__file__).parent / "data"
    train, test = load_tasks(data / "support_train.jsonl"), load_tasks(data / "support_test.jsonl")
    teams = choices_from(train)
    console = console_for(json_)
    live = Live(console)
    console.print(
        f"{len(train)} support messages to learn from, {len(test)} held out, {len(teams)} teams: {', '.join(teams)}."
    )
    console.print("What a team does can only be learned from experience.")
    with live:
        result = run_work(
            lambda stop: learn(
                train,
                test=test,
                out=out,
                method="episodes",
                settings={"batch": 8, "k": 2},
                model=model,
                instructions=INSTRUCTIONS.format(teams=", ".join(teams)),
                choices=teams,
                before=True,
                max_output_tokens=32,
                window=1024,
                watch=live,
                on_session=stop.session,
                parts=Parts(progress=live.progress),
            ),
            console,
        )
    before, after = result.scores.get("before"), result.scores.get("test")
    if before is not None and after is not None:
        told = f"\nbefore {before:.0%}, after {after:.0%} on the {len(test)} held-out messages\n"
        console.print(told, style="bold")
    console.print("Some of what it learned:")
    for entry in list(result.context)[:4]:
        console.print(f"  “{_cut(entry.text)}” → {entry.data['answer']}")
    console.print(f"\nusage: {usage_words(result.usage)} in {result.seconds:.0f} s")
    console.print(f"kept in {result.run}: practicum show {result.run}")
    console.print("\nNext, with your own tasks (JSON lines with input and target):")
    console.print("  practicum learn TASKS.jsonl --test HELDOUT.jsonl --method ace --model openai:gpt-4.1-mini")
    if json_:
        print_json({"before": before, "after": after, "seconds": round(result.seconds, 3), "run": str(result.run)})
    return 130 if result.interrupted else 0


def _cut(text: str) -> str:
    return text if len(text) <= 76 else text[:75] + "…"


INSTRUCTIONS = "You route support messages to a team. Teams: {teams}. Answer with the team's name only."
