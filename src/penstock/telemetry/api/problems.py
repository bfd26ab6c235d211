"""The errors of the API: one JSON format (RFC 9457) that names the wrong parameter."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from deltalake.exceptions import DeltaError
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pyarrow import ArrowException
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from penstock.model.errors import PenstockError

__all__ = ["MEDIA_TYPE", "BadParameter", "Problem", "UnknownGpu", "handle_problems"]

MEDIA_TYPE: Final = "application/problem+json"
_log: Final = logging.getLogger(__name__)


class Fault(BaseModel):
    """A parameter, and the reason why it is invalid."""

    parameter: str
    reason: str


class Problem(BaseModel):
    """Why there is no answer."""

    type: Annotated[str, Field(description="Always this value: title and status have the kind.")] = (
        "about:blank"
    )
    title: str
    status: int
    detail: str
    errors: Annotated[list[Fault], Field(description="The parameters at fault, if any are.")] = []


class BadParameter(PenstockError):
    """A parameter says something that cannot be."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.fault = Fault(parameter=parameter, reason=reason)


class UnknownGpu(PenstockError):
    """There are no samples of this GPU."""


def handle_problems(app: FastAPI) -> None:
    """Let every failure of `app` be answered with a problem."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return _bad_parameters([_fault(detail) for detail in error.errors()])

    @app.exception_handler(BadParameter)
    async def bad(_: Request, error: BadParameter) -> JSONResponse:
        return _bad_parameters([error.fault])

    @app.exception_handler(UnknownGpu)
    async def unknown(_: Request, error: UnknownGpu) -> JSONResponse:
        return _response(HTTPStatus.NOT_FOUND, str(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return _response(status, detail, headers=error.headers)

    # FastAPI finds handlers by the classes of an error, one by one.
    @app.exception_handler(DeltaError)
    @app.exception_handler(ArrowException)
    @app.exception_handler(OSError)
    async def unreadable(_: Request, error: Exception) -> JSONResponse:
        _log.error("the tables cannot be read: %s", error)
        detail = "the tables cannot be read; the server's log has the reason"
        return _response(HTTPStatus.SERVICE_UNAVAILABLE, detail)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        # The server logs exceptions that reach this handler, with the place.
        return _response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: a bug in penstock")


def _fault(detail: Mapping[str, Any]) -> Fault:
    """The errors of a failed validation, by parameter of the request."""
    place = detail["loc"]
    parameter = detail.get("ctx", {}).get("parameter") or str(place[1] if len(place) > 1 else place[0])
    given = detail.get("input")
    reason = str(detail["msg"]).removeprefix("Value error, ")
    return Fault(
        parameter=parameter, reason=f"{reason} (not {given!r})" if isinstance(given, str) else reason
    )


def _bad_parameters(faults: list[Fault]) -> JSONResponse:
    detail = "; ".join(f"{fault.parameter}: {fault.reason}" for fault in faults)
    return _response(HTTPStatus.UNPROCESSABLE_ENTITY, detail, faults)


def _response(
    status: HTTPStatus,
    detail: str,
    faults: list[Fault] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    problem = Problem(title=status.phrase, status=status.value, detail=detail, errors=faults or [])
    return JSONResponse(problem.model_dump(), status.value, headers, MEDIA_TYPE)
