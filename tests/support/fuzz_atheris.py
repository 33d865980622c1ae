"""Runs the properties of `fuzz` with atheris, which prefers inputs that reach new code, and ends the process:

PYTHONPATH=tests/support:. python tests/support/fuzz_atheris.py PROPERTY -runs=1000

PROPERTY is the name of a property, or "all": then the first byte of an input chooses the property.
"""

import sys

import atheris

READERS = [
    *("practicum.tasks.load", "practicum.tasks.formats", "practicum.tasks.traces", "practicum.core.playbook"),
    *("practicum.session.memories", "practicum.models.prompting", "practicum.agents.team", "practicum.cli.inputs"),
]
"""The instrumented modules: instrumenting the whole package takes minutes."""

if __name__ == "__main__":
    with atheris.instrument_imports(include=READERS):
        import fuzz
    name = sys.argv.pop(1)
    chosen = [read.hypothesis.fuzz_one_input for read in fuzz.PROPERTIES if name in ("all", read.__name__)]
    assert chosen, name
    atheris.Setup(sys.argv, lambda data: chosen[data[0] % len(chosen)](data[1:]) if data else None)
    atheris.Fuzz()
