"""`practicum bench methods`: the methods, what they are made of and cost, and their settings."""

from __future__ import annotations

from typing import Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, print_error
from practicum.core.errors import UsageError


@opt.settings("settings")
def methods(
    name: str | None = Argument(None, help="One method (default: all).", autocompletion=opt.method_names),
    json_: opt.Json = False,
    **given: Any,
) -> None:
    """List the methods with their seams, costs and settings."""
    from practicum import methods as known
    from practicum.cli.inputs import pairs
    from practicum.methods.describe import anatomy

    if given["settings"] and name is None:
        raise UsageError("settings.missing", "--set is about one method: name it")
    settings, out, found = pairs(given["settings"] or (), "--set"), Printer(json_), []
    for each in opt.method_names() if name is None else [name]:
        try:
            found.append(anatomy(each, settings))
        except UsageError as error:
            if name is not None:
                raise
            print_error(f"warning: {error}")  # a package that cannot be imported does not hide the other methods
    if name is None:
        for refused in known.METHODS.refused():
            print_error(f"warning: {refused.name} of the package {refused.package!r} is not used: {refused.problem}")
    out.result({one.name: {**one.as_json(), "settings": known.setting_docs(one.name)} for one in found})
    for one in found:
        out.print(one.name, style="bold", end="  ")
        out.print(one.about or "(no description)")
        if one.paper:
            out.item(f"  paper: {one.paper}")
        if one.costs:
            out.item(f"  costs beside the attempts: {one.costs}")
        for seam, block in one.seams.items():
            out.item(f"  {seam:<8} {block}")
        small = known.setting_docs(one.name, "small")
        for setting, (default, meaning) in known.setting_docs(one.name).items():
            other = "" if small[setting][0] == default else f" (--profile small: {small[setting][0]})"
            out.item(f"  --set {setting}={default}{other}  {meaning}")
        out.print()
