"""`practicum show RUN --gate`: what the acceptance gate decided, delta by delta, and on what evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from practicum.core.errors import UsageError


def show_gate(run: Path, json_: bool) -> int:
    """Print the evidence of each step at which the gate was asked. Raises UsageError for a run without one."""
    from practicum.cli.running import console_for, print_json
    from practicum.cli.tables import print_table, table

    found = _evidence(run)
    if json_:
        print_json({"gate": found})
        return 0
    console = console_for(json_)
    numbers = ("step", "tasks", "better", "worse", "mean", "e worse", "e better")
    made = table("step", "gate", "by", *numbers[1:], numbers=numbers)
    for one in found:
        differences = one["differences"].values()
        signs = (sum(d > 0 for d in differences), sum(d < 0 for d in differences))
        values = (f"{one['mean']:+.3f}", f"{one['e_worse']:.3g}", f"{one['e_better']:.3g}")
        made.add_row(str(one["step"]), one["gate"], one["by"], str(one["tasks"]), *map(str, signs), *values)
    print_table(console, made)
    dropped = sum(one["gate"] == "dropped" for one in found)
    console.print(f"{len(found)} deltas tried, {dropped} dropped; what changes nothing the agent sees is not tried")
    return 0


def _evidence(run: Path) -> list[dict[str, Any]]:
    from sqlalchemy import select

    from practicum.session.records import RUN, read_run
    from practicum.store import schema
    from practicum.store.database import Store

    table = schema.steps
    with Store.read(run) as store:
        config, _, _ = read_run(store)
        rows = store.rows(select(table.c.step, table.c.data).where(table.c.run_id == RUN).order_by(table.c.step))
    if not config.settings.get("gate"):
        raise UsageError(f"{run} has no gate: learn with --val FILE --set gate=true")
    told = ((row.step, json.loads(row.data).get("evidence", {})) for row in rows)
    return [{"step": step, **evidence} for step, evidence in told if "gate" in evidence]
