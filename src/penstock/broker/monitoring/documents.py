"""The response of the monitoring port to one request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

__all__ = ["ALIVE", "LIVENESS", "Document", "plain_text"]

_TEXT: Final = "text/plain; charset=utf-8"


class Document(NamedTuple):
    status: HTTPStatus
    content_type: str
    chunks: list[bytes]


def plain_text(status: HTTPStatus, text: str) -> Document:
    return Document(status, _TEXT, [text.encode()])


#: the path that shows whether the event loop runs. It depends on no worker thread.
LIVENESS: Final = "/healthz"
ALIVE: Final = plain_text(HTTPStatus.OK, "alive\n")
