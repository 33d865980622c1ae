"""Pages of operations: the list, and each operation with a form built from its fields."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.errors import PracticumError
from practicum.core.words import sentence
from practicum.view.site import OperationShown
from practicum.view.visit import Visit


async def operations(visit: Visit) -> Response:
    """Show the operations that the visitor may run."""
    if not visit.acts:
        raise HTTPException(404)
    return await visit.page("operations.html", here="Operations", operations=visit.actions.operations(visit.visitor))


async def operation(visit: Visit, failed: str = "", status: int = 200, answer: str | None = None) -> Response:
    """Show the form of one operation. After the operation was run, show its answer too."""
    one = _requested(visit)
    return await visit.page(
        "operation.html", status, here="Operations", one=one, form=visit.form, failed=failed, answer=answer,
        takes_space=_takes_space(one),
    )  # fmt: skip


async def operate(visit: Visit) -> Response:
    """Run one operation and show its answer."""
    one = _requested(visit)
    try:
        values = one.values(visit.form)
        answer = await visit.perform(one.name, **values, **({"space": visit.name} if _takes_space(one) else {}))
    except PracticumError as error:
        if (status := visit.actions.status(error)[0]) == 403:
            raise
        return await operation(visit, sentence(error), status)
    return await operation(visit, answer=answer.as_text())


def _requested(visit: Visit) -> OperationShown:
    """Return the operation named in the URL. Raises HTTPException (404) if the operation does not exist, and Forbidden
    if the visitor may not run the operation."""
    one = visit.actions.operation(visit.visitor, visit.path_param("operation")) if visit.acts else None
    if one is None:
        raise HTTPException(404)
    return one


def _takes_space(one: OperationShown) -> bool:
    """Whether the operation has a field for the space, which the page fills in."""
    return "space" in one.form.model_fields
