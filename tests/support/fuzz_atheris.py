"""Hands one property of `fuzz` to atheris, which looks for what reaches new code, and ends the process:

PYTHONPATH=tests/support:. python tests/support/fuzz_atheris.py PROPERTY -runs=1000
"""

import sys

import atheris

READERS = [
    *("practicum.tasks.load", "practicum.tasks.formats", "practicum.tasks.traces", "practicum.core.playbook"),
    *("practicum.session.memories", "practicum.models.prompting", "practicum.agents.team", "practicum.cli.inputs"),
]
"""What is watched: instrumenting the whole package takes minutes."""

if __name__ == "__main__":
    with atheris.instrument_imports(include=READERS):
        import fuzz
    name = sys.argv.pop(1)
    (chosen,) = (read for read in fuzz.PROPERTIES if read.__name__ == name)
    atheris.Setup(sys.argv, chosen.hypothesis.fuzz_one_input)
    atheris.Fuzz()
