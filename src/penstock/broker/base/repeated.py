"""Repeated requests: the one layer of memoisation above the handlers, and its switch.

A handler's `Learn` function sees each request that the dispatcher decodes. If a connection repeats itself,
the function leaves a `RepeatedRequests` object on the connection (`Connection.memo`). The dispatcher then
offers every further frame of that connection to the object before it decodes the frame.

Invariant: with and without this layer a request has the same response and the same effect. The tests of
`tests/broker/fetch` compare both over random histories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from penstock.broker.base.context import Context

__all__ = ["Learn", "RepeatedRequests"]

#: The switch. With False, brokers answer every request by the general pipeline. It is read when a request is
#: learned, so a test sets it before the first request.
ENABLED = True

#: called with the context, the decoded request, its frame and the position of its body in the frame
Learn: TypeAlias = Callable[[Context, Any, memoryview, int], None]


class RepeatedRequests(Protocol):
    """The requests that one connection repeats. Owned by the event loop's thread."""

    #: the context in which a repeated request is served
    context: Context
    #: their API key and version
    route: tuple[int, int]

    def take(self, frame: memoryview) -> tuple[int, Any] | None:
        """The correlation id of a repeated request, and its response as a handler returns it.

        None if the general pipeline has to serve the request; nothing has happened then.
        """
        ...

    def forget(self) -> None:
        """Release everything: the connection is gone."""
        ...
