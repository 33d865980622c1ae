"""`practicum demo`: learns from real input with a small model that needs no key."""

from __future__ import annotations

from pathlib import Path

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.words import one_line

INSTRUCTIONS = "You route support messages to a team. Answer with the name of the team only."


@opt.settings(model="local")
def demo(
    folder: opt.Out = None,
    model: str = "local",
    json_: opt.Json = False,
) -> int:
    """Learn to route messages with a small model on this machine.

    The tasks are support messages to route to teams with opaque names. The model has 135M parameters and needs no key.
    """
    from practicum.cli.running import run_live
    from practicum.session.learn import learn
    from practicum.tasks.load import choices_from, load_tasks

    data = Path(__file__).parent / "data"
    train, test = load_tasks(data / "support_train.jsonl"), load_tasks(data / "support_test.jsonl")
    teams = choices_from(train)
    out = Printer(json_)
    out.print(
        f"{len(train)} support messages to learn from, {len(test)} held out, {len(teams)} teams: {', '.join(teams)}."
    )
    out.print("The work of each team can only be learned from experience.")

    result = run_live(
        lambda **hooks: learn(
            train, test=test, out=folder, method="episodes", settings={"batch": 8, "k": 3}, model=model,
            instructions=INSTRUCTIONS, choices=teams, before=True, max_output_tokens=32, window=1024, **hooks,
        ),
        out,
    )  # fmt: skip
    before, after = result.scores.get("before"), result.scores.get("test")
    out.result({"before": before, "after": after, "seconds": round(result.seconds, 3), "run": str(result.run)})
    if before is not None and after is not None:
        out.print(f"\nbefore {before:.0%}, after {after:.0%} on the {len(test)} held-out messages\n", style="bold")
    out.print("Some learned entries:")
    for entry in list(result.context)[:4]:
        out.print(f"  “{one_line(entry.text, 76)}” → {entry.data['answer']}")
    out.print()
    out.usage(result.usage, result.seconds)
    out.print(f"stored in {result.run}; to look at the run: practicum show {result.run}")
    out.print("\nNext, with your own tasks (JSON lines with input and target):")
    out.print("  practicum learn TASKS.jsonl --test HELDOUT.jsonl --method ace --model openai:gpt-4.1-mini")
    return 130 if result.interrupted else 0
