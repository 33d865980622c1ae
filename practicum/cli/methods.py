"""`practicum methods`: what there is, what each is made of and costs, and what it can be set to."""

from __future__ import annotations

import typer

from practicum.core.errors import UsageError


def methods(
    name: str | None = typer.Argument(None, help="One method, with every setting explained."),
    set_: list[str] = typer.Option([], "--set", help="With a method: tell seams and cost with this, as name=value."),
    json_: bool = typer.Option(False, "--json", help="Print one JSON object on standard output."),
) -> int:
    """List the methods: paper, seams, cost per task, settings and their defaults."""
    from practicum import methods as known
    from practicum.cli.inputs import pairs
    from practicum.cli.running import console_for, print_json
    from practicum.methods.describe import anatomy

    if set_ and name is None:
        raise UsageError("--set is for one method: name it")
    settings = pairs(set_, "--set")
    found = [anatomy(n, settings) for n in ([name] if name is not None else known.NAMES)]
    if json_:
        print_json({one.name: {**one.as_json(), "settings": known.described(one.name)} for one in found})
        return 0
    console = console_for(json_)
    for one in found:
        console.print(one.name, style="bold", end="  ")
        console.print(one.about)
        if one.paper:
            console.print(f"  paper: {one.paper}")
        console.print(f"  costs beside the attempts: {one.costs}")
        for seam, block in one.seams.items():
            console.print(f"  {seam:<8} {block}")
        for setting, (default, words) in known.described(one.name).items():
            console.print(f"  --set {setting}={default}  {words}")
        console.print()
    return 0
