"""Operations: all that can be done in the space, each with a form that is made from its fields."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.errors import PracticumError
from practicum.core.words import sentence
from practicum.view.visit import Visit


async def operations(visit: Visit) -> Response:
    """The operations that the visitor may do."""
    if not visit.acts:
        raise HTTPException(404)
    return await visit.page("operations.html", here="Operations", operations=visit.actions.operations(visit.visitor))


async def operation(visit: Visit, failed: str = "", status: int = 200, answer: str | None = None) -> Response:
    """The form of one operation, and its answer once it is done."""
    return await visit.page(
        "operation.html", status, here="Operations", one=_found(visit), wrote=visit.form, failed=failed, answer=answer
    )


async def operate(visit: Visit) -> Response:
    """Do one operation."""
    one = _found(visit)
    try:
        answer = await visit.perform(one.name, **one.values(visit.form))
    except PracticumError as error:
        if (status := visit.actions.status(error)[0]) == 403:
            raise
        return await operation(visit, sentence(error), status)
    return await operation(visit, answer=answer.as_text())


def _found(visit: Visit) -> Any:
    """The operation of the address. Raises HTTPException if there is none, or none for the visitor."""
    offered = visit.actions.operations(visit.visitor) if visit.acts else ()
    if (one := next((one for one in offered if one.name == visit.given("operation")), None)) is None:
        raise HTTPException(404)
    return one
