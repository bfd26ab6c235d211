"""JSON responses, bodies of requests, and errors as JSON with a status."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.console.kafka.cluster import NotReachable, Refused
from penstock.console.kafka.metadata_log import NoControllerListener
from penstock.console.registry.api import NotFound
from penstock.console.views.access import InvalidAcl
from penstock.console.views.filters import InvalidFilter
from penstock.model.errors import PenstockError
from penstock.net.link_client import LinkError
from penstock.registry.http import RegistryRefused, RegistryUnreachable

__all__ = ["BODY_MAX", "BadInput", "as_json", "body_of", "offset_of", "on_error", "whole"]

T = TypeVar("T")
BODY_MAX: Final = 16 << 20
_NOT_FOUND: Final = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "GROUP_ID_NOT_FOUND",
    "TRANSACTIONAL_ID_NOT_FOUND",
    "OFFSET_OUT_OF_RANGE",
)


class BadInput(PenstockError):
    """A parameter or a body that cannot be used; the message says which and why."""


def as_json(content: Any, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(content),
        status,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


async def body_of(request: Request, shape: type[T], most: int = BODY_MAX) -> T:
    """The body as a struct; BadInput if it is too large or does not fit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise BadInput(f"the request is larger than {most >> 10} KiB")
        parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=shape)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadInput(str(error)) from error
    except RecursionError as error:
        raise BadInput("the request is nested too deep") from error


def whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the query string, within limits."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    try:
        return max(low, min(high, int(text)))
    except ValueError as error:
        raise BadInput(f"{name}={text!r} is not a whole number") from error


def offset_of(text: str) -> int:
    """An offset, or a time in milliseconds: a whole number of 63 bits."""
    if not text.isdecimal() or len(text) > 19 or int(text) >= 1 << 63:
        raise BadInput(f"{text!r} is not an offset")
    return int(text)


def on_error(_: Request, error: Exception) -> Response:
    """The response to a request that failed."""
    assert isinstance(error, PenstockError)
    name, status = type(error).__name__, 500
    if isinstance(error, Refused):
        name = error.name
        status = 403 if name.endswith("AUTHORIZATION_FAILED") else 404 if name in _NOT_FOUND else 409
    elif isinstance(error, BadInput | InvalidFilter | InvalidAcl):
        status = 400
    elif isinstance(error, NotReachable | NoControllerListener | RegistryUnreachable):
        status = 503
    elif isinstance(error, NotFound | LinkError):
        status = 404
    elif isinstance(error, RegistryRefused):
        status = 403 if error.status in (401, 403) else 409
    return as_json({"error": name, "message": str(error)}, status)
