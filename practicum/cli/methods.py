"""`practicum bench methods`: lists the methods with their seams, costs and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, print_error
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.methods.describe import Anatomy


@opt.settings("settings")
def methods(
    name: str | None = Argument(None, help="One method (default: all).", autocompletion=opt.method_names),
    json_: opt.Json = False,
    **options: Any,
) -> None:
    """List the methods: recommended ones first, with reasons.

    With a name: the blocks, costs and settings of one method.
    """
    from practicum import methods as library
    from practicum.cli.inputs import pairs
    from practicum.methods.describe import anatomy

    if options["settings"] and name is None:
        raise UsageError("settings.missing", "--set applies to one method: name the method")
    settings, out, anatomies = pairs(options["settings"] or (), "--set"), Printer(json_), []
    for each in opt.method_names() if name is None else [name]:
        try:
            anatomies.append(anatomy(each, settings))
        except UsageError as error:
            if name is not None:
                raise
            print_error(f"warning: {error}")  # list the other methods even if one package cannot be imported
    if name is None:
        for refused in library.METHODS.refused():
            print_error(f"warning: {refused.name} of the package {refused.package!r} is not used: {refused.problem}")
    out.result({one.name: {**one.as_json(), "settings": library.setting_docs(one.name)} for one in anatomies})
    if name is None:
        _print_list(out, {one.name: one for one in anatomies})
        return
    for one in anatomies:
        out.print(one.name, style="bold", end="  ")
        out.print(one.about or "(no description)")
        if one.paper:
            out.item(f"  paper: {one.paper}")
        if one.costs:
            out.item(f"  costs in addition to the attempts: {one.costs}")
        for seam, block in one.seams.items():
            out.item(f"  {seam:<8} {block}")
        small = library.setting_docs(one.name, "small")
        for setting, (default, meaning) in library.setting_docs(one.name).items():
            other = "" if small[setting][0] == default else f" (--profile small: {small[setting][0]})"
            out.item(f"  --set {setting}={default}{other}  {meaning}")


def _print_list(out: Printer, methods: Mapping[str, Anatomy]) -> None:
    """List the recommended methods with reasons, and the other methods in one line each."""
    from practicum.methods.describe import RECOMMENDED

    out.print("Recommended", style="bold")
    for name, advice in RECOMMENDED.items():
        if name in methods:
            out.item(f"  {name:<15} {methods[name].about}")
            out.item(f"  {'':<15} use it for: {advice.when}")
            out.item(f"  {'':<15} measured: {advice.measured}")
            out.item(f"  {'':<15} costs in addition to the attempts: {methods[name].costs}")
    out.print("Baselines and methods of papers, for comparisons", style="bold")
    for name, one in methods.items():
        if name not in RECOMMENDED:
            out.item(f"  {name:<18} {one.about or '(no description)'}")
    out.item("practicum bench methods NAME shows the blocks, costs and settings of a method")
    out.item("practicum bench advise TASKS --model NAME recommends a method for your tasks")
