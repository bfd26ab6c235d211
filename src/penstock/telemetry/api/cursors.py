"""Cursors: the end of a page, and the query that the page belongs to.

A cursor holds the time window of the first page, so that an open window does not move from page to page. A
cursor is valid only with the parameters of its own query: with other parameters, rows would be missing.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec

from penstock.telemetry.api.parameters import Period
from penstock.telemetry.api.problems import BadParameter
from penstock.telemetry.queries.spans import Span

__all__ = ["read_cursor", "write_cursor"]

P = TypeVar("P")


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    question: str
    start_ms: int
    end_ms: int
    place: Any


def write_cursor(query: Period, about: str, span: Span, place: Any) -> str:
    """The cursor to the rows after `place`. `about` are further inputs of the query."""
    cursor = _Cursor(_question(query, about), *span, place)
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def read_cursor(text: str, query: Period, about: str, place: type[P]) -> tuple[Span, P]:
    """The time window of the first page, and the place after which to go on."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        cursor = msgspec.msgpack.decode(data, type=_Cursor)
        found = msgspec.convert(cursor.place, place)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadParameter("cursor", "is not a cursor of this API; pass `next_cursor` unchanged") from error
    if cursor.question != _question(query, about):
        raise BadParameter("cursor", "belongs to other parameters; repeat those of the first page")
    return Span(cursor.start_ms, cursor.end_ms), found


def _question(query: Period, about: str) -> str:
    parameters = query.model_dump_json(exclude={"cursor", "limit"})
    return hashlib.sha256(f"{type(query).__name__} {about} {parameters}".encode()).hexdigest()[:16]
