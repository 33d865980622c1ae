"""Operations: all that can be done in the space, each with a form that is made from its fields."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.errors import PracticumError
from practicum.core.words import sentence
from practicum.view.site import OperationShown
from practicum.view.visit import Visit


async def operations(visit: Visit) -> Response:
    """The operations that the visitor may do."""
    if not visit.acts:
        raise HTTPException(404)
    return await visit.page("operations.html", here="Operations", operations=visit.actions.operations(visit.visitor))


async def operation(visit: Visit, failed: str = "", status: int = 200, answer: str | None = None) -> Response:
    """The form of one operation, and its answer once it is done."""
    one = _found(visit)
    return await visit.page(
        "operation.html", status, here="Operations", one=one, wrote=visit.form, failed=failed, answer=answer,
        takes_space=_takes_space(one),
    )  # fmt: skip


async def operate(visit: Visit) -> Response:
    """Do one operation."""
    one = _found(visit)
    try:
        values = one.values(visit.form)
        answer = await visit.perform(one.name, **values, **({"space": visit.name} if _takes_space(one) else {}))
    except PracticumError as error:
        if (status := visit.actions.status(error)[0]) == 403:
            raise
        return await operation(visit, sentence(error), status)
    return await operation(visit, answer=answer.as_text())


def _found(visit: Visit) -> OperationShown:
    """The operation of the address. Raises HTTPException if there is none, and Forbidden if it is not the visitor's."""
    one = visit.actions.operation(visit.visitor, visit.given("operation")) if visit.acts else None
    if one is None:
        raise HTTPException(404)
    return one


def _takes_space(one: OperationShown) -> bool:
    """Whether the operation has a field for a space: it gets that of the page."""
    return "space" in one.form.model_fields
