"""`practicum methods`: what there is, and what each can be set to."""

from __future__ import annotations

import typer


def methods(
    name: str | None = typer.Argument(None, help="One method, with every setting explained."),
    json_: bool = typer.Option(False, "--json", help="Print one JSON object on standard output."),
) -> int:
    """List the methods with their settings and defaults."""
    from practicum import methods as known
    from practicum.cli.running import console_for, print_json

    chosen = [name] if name is not None else list(known.NAMES)
    if json_:
        print_json({n: {"about": known.about(n), "settings": known.described(n)} for n in chosen})
        return 0
    console = console_for(json_)
    for n in chosen:
        console.print(f"[bold]{n}[/bold]  {known.about(n)}")
        for setting, (default, words) in known.described(n).items():
            console.print(f"  --set {setting}={default}", markup=False, end="")
            console.print(f"  {words}", markup=False)
        console.print()
    return 0
