"""The small part of HTTP/1.1 that the monitoring port needs: GET and HEAD without a body.

Sans-IO: bytes of a request's head in, a `Request` out, or a `BadRequest` with the status to answer with.
"""

from __future__ import annotations

from hmac import compare_digest
from http import HTTPStatus
from typing import Final, NamedTuple

from penstock.observability.exposition import Format

__all__ = [
    "HEAD_MAX",
    "BadRequest",
    "Request",
    "accepted_format",
    "head_end",
    "may_read",
    "parse_head",
    "response_head",
]

#: bytes of a request's head: more is an attack
HEAD_MAX: Final = 8192
_END: Final = b"\r\n\r\n"


class BadRequest(Exception):
    """A request that is answered with an error, after which the connection closes."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    keeps_alive: bool
    #: behind the question mark; empty without one
    query: str = ""


def head_end(data: bytes | bytearray) -> int:
    """The end of a complete head in `data`; 0 if it is not complete."""
    found = data.find(_END)
    if found < 0 and len(data) > HEAD_MAX:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
    return found + len(_END) if found >= 0 else 0


def parse_head(head: bytes) -> Request:
    """The request of a complete head."""
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1")
    method, target, version = words
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header is malformed")
        headers[name.lower()] = value.strip()
    if method not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are supported")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a request must not have a body")
    connection = headers.get("connection", "").lower()
    keeps_alive = connection == "keep-alive" if version == "HTTP/1.0" else connection != "close"
    path, _, query = target.partition("?")
    return Request(method, path, headers, keeps_alive, query)


def accepted_format(accept: str) -> Format:
    """The format that an Accept header prefers; Prometheus' text unless OpenMetrics is named and no worse."""
    weights = {"text/plain": 0.0, "application/openmetrics-text": 0.0}
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        if media in weights:
            quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            try:
                weights[media] = max(weights[media], float(quality))
            except ValueError:
                continue
    wanted = weights["application/openmetrics-text"]
    return Format.OPENMETRICS if wanted and wanted >= weights["text/plain"] else Format.PROMETHEUS


def may_read(request: Request, token: str | None) -> bool:
    """Whether a request has the bearer token, if one is needed."""
    if token is None:
        return True
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return kind.lower() == "bearer" and compare_digest(given.strip().encode(), token.encode())


def response_head(
    status: HTTPStatus, content_type: str, length: int, *, keeps_alive: bool, extra: str = ""
) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\n"
        f"Cache-Control: no-store\r\n"
        f"X-Content-Type-Options: nosniff\r\n"
        f"{extra}Connection: {'keep-alive' if keeps_alive else 'close'}\r\n\r\n"
    ).encode("latin-1")
