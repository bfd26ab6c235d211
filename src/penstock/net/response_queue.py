"""The responses of one connection, sent in the order of their requests.

A response that is next in order is held back while the frames of one read are served: responses to pipelined
requests go out in one write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from penstock.net.deferred import Deferred
from penstock.net.output import Output
from penstock.ports import Buffer, FileRange

__all__ = ["MAX_IN_FLIGHT", "Answer", "Parts", "ResponseQueue", "Serving"]

#: a tuple has one short part, to be sent along with others
Parts: TypeAlias = Sequence[Buffer | FileRange]
#: what serving a frame gives: the answer, an answer to come, or none at all (acks=0)
Answer: TypeAlias = "Parts | Deferred[Parts | None] | None"

#: an answer that is not worth holding back to send it along with others
_LARGE_ANSWER: Final = 16 << 10
#: answers a connection may be owed before we stop reading from it
MAX_IN_FLIGHT: Final = 256


class Serving(Protocol):
    """The server of all connections: `serving` is the connection that serves the frames of one read."""

    @property
    def serving(self) -> object: ...


class ResponseQueue:
    """The queue of one connection. Owned by the event loop's thread."""

    __slots__ = ("_changed", "_connection", "_output", "_server", "is_closed", "is_full", "pending", "ready")

    def __init__(
        self, connection: object, server: Serving, output: Output, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the queue becomes full, and when it is no longer full."""
        self._connection = connection
        self._server = server
        self._output = output
        self._changed = changed
        #: responses that wait for their turn; the first one is not there yet
        self.pending: deque[Parts | Deferred[Parts | None]] = deque()
        #: those that are next in order
        self.ready: list[Buffer | FileRange] = []
        #: true if so many responses are pending that no further request is read
        self.is_full = False
        self.is_closed = False

    def add(self, answer: Parts | Deferred[Parts | None]) -> bool:
        """Add the response to the request that came last; returns true if it is still to come."""
        if isinstance(answer, Deferred):
            self.pending.append(answer)
            answer.then(self._resolved)
            if len(self.pending) >= MAX_IN_FLIGHT:
                self._set_full(True)
            return True
        if self.pending:
            self.pending.append(answer)
            if len(self.pending) >= MAX_IN_FLIGHT:
                self._set_full(True)
            return False
        self.ready += answer
        if len(answer) > 1 or len(answer[0]) > _LARGE_ANSWER:
            # At once: whether the peer takes it decides whether we serve its next request.
            self.flush()
        return False

    def _set_full(self, is_full: bool) -> None:
        if self.is_full != is_full:
            self.is_full = is_full
            self._changed()

    def _resolved(self, parts: Parts | None) -> None:
        """Send the responses at the head of the queue that are there."""
        pending = self.pending
        if len(pending) == 1 and self._server.serving is not self._connection:
            # The only one there is: nothing waits before it, behind it, or to go out with it.
            pending.clear()
            if parts is not None and not self.is_closed:
                self._output.write(parts)
            return
        while pending:
            head = pending[0]
            if isinstance(head, Deferred):
                if not head.done:
                    break
                value = head.value
                if value is not None:
                    self.ready += value
            else:
                self.ready += head
            pending.popleft()
        if self.ready and self._server.serving is not self._connection:
            self.flush()
        if self.is_full and len(pending) < MAX_IN_FLIGHT:
            self._set_full(False)

    def flush(self) -> None:
        """Send the responses that are next in order, of which there is at least one."""
        ready = self.ready
        self.ready = []
        if not self.is_closed:
            self._output.write(ready)

    def pending_requests(self) -> Iterator[object]:
        """The requests that wait for their responses (`Deferred.request`)."""
        for answer in self.pending:
            if isinstance(answer, Deferred) and not answer.done:
                yield getattr(answer, "request", None)

    def cancel(self) -> None:
        """Cancel the responses that are still to come: the connection is lost."""
        self.is_closed = True
        pending, self.pending = self.pending, deque()
        for answer in pending:
            if isinstance(answer, Deferred):
                answer.cancel()
