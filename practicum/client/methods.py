"""Operations of a space as methods of `SpaceClient`: `await space.report(...)`, or `space.report_sync(...)` in sync
programs. The types of these methods are in `methods.pyi`, which is generated from the table of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from practicum.client.blocks import require_name
from practicum.client.link import Link, operations

SYNC = "_sync"
"""Suffix of the names of blocking methods."""


class OperationMethods:
    """One method for each operation, with the fields of the operation's form as parameters.

    Each method also takes the parameters `session` and `user`, which identify the caller. If the form has a field
    `session` or `user`, the parameter with this name sets the field instead. The methods raise UsageError if the
    operation is refused, and StoreError if the operation fails."""

    _link: Link

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (operation := operations().get(name.removesuffix(SYNC))) is None:
            raise AttributeError(
                f"{type(self).__name__} has no method {name!r}: the operations are {', '.join(operations())}"
            )
        fields = [*operation.form.model_fields]

        def work(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            if len(args) > min(len(fields), 1):
                raise TypeError(
                    f"{name} takes {', '.join(fields) or 'no fields'}: pass all fields except the first by keyword"
                )
            values = {**dict(zip(fields, args, strict=False)), **kwargs}
            caller = {one: require_name(one, values.pop(one, None)) for one in ("session", "user") if one not in fields}
            return self._link.perform(operation.name, values, **caller)

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await self._link.wait(work(args, kwargs))

        def blocking(*args: Any, **kwargs: Any) -> Any:
            return self._link.run(work(args, kwargs))

        function = blocking if name.endswith(SYNC) else method
        function.__name__, function.__doc__ = name, operation.about
        return function

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name + end for name in operations() for end in ("", SYNC))]
