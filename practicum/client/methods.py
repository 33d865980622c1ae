"""The operations of a space as methods of its client: `await space.report(...)`, or `space.report_sync(...)` for
programs without an event loop. Their types are in `methods.pyi`, which is made from the table of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from practicum.client.blocks import checked
from practicum.client.link import Link, operations

SYNC = "_sync"
"""The end of the names of methods that block."""


class OperationMethods:
    """One method for each operation, with the fields of its form. An operation whose form has no session or user takes
    these, too: those in whose name it is asked for. Raises UsageError for what is refused, and StoreError if it cannot
    be done."""

    _link: Link

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (operation := operations().get(name.removesuffix(SYNC))) is None:
            raise AttributeError(f"{type(self).__name__} has no {name!r}: operations are {', '.join(operations())}")
        fields = [*operation.form.model_fields]

        def work(given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
            if len(given) > min(len(fields), 1):
                raise TypeError(f"{name} takes {', '.join(fields) or 'no fields'}: all but the first by name")
            values = {**dict(zip(fields, given, strict=False)), **named}
            about = {one: checked(one, values.pop(one, None)) for one in ("session", "user") if one not in fields}
            return self._link.perform(operation.name, values, **about)

        async def method(*given: Any, **named: Any) -> Any:
            return await self._link.wait(work(given, named))

        def blocking(*given: Any, **named: Any) -> Any:
            return self._link.run(work(given, named))

        made = blocking if name.endswith(SYNC) else method
        made.__name__, made.__doc__ = name, operation.about
        return made

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name + end for name in operations() for end in ("", SYNC))]
