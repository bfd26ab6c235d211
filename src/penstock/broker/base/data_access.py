"""Reads and writes of chosen topics by clients, for the audit: counted by principal, topic and operation.

A window begins with the first access. At its end each count is one event, so the number of events does not
depend on the number of requests. A broker without such topics makes no object of this module.

Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.broker.base.audit_output import CallLater
from penstock.broker.base.context import Context, Handler
from penstock.broker.base.metrics import TopicStats
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.security.principal import Principal, Session

__all__ = ["READ", "WRITE", "Access", "DataAccess"]

READ: Final = "READ"
WRITE: Final = "WRITE"
#: different principals, topics and operations of a window; more are counted without their names
_COUNTS_MAX: Final = 10_000
_HOSTS_MAX: Final = 5
#: events at a time, and the pause between them: writing events must not hold the event loop
_SLICE_EVENTS: Final = 50
_SLICE_S: Final = 0.5
_PREFIX: Final = "*"


class Access:
    """The accesses of a principal to a topic in one window."""

    __slots__ = ("accesses", "bytes", "hosts", "operation", "session", "topic")

    def __init__(self, session: Session, operation: str, topic: str) -> None:
        #: of the first access
        self.session = session
        self.operation = operation
        self.topic = topic
        self.accesses = 0
        self.bytes = 0
        self.hosts: list[str] = []


class DataAccess:
    """Counts accesses to topics whose names match `patterns`: a name, or a prefix and a star."""

    def __init__(
        self,
        patterns: Iterable[str],
        window_s: float,
        image: ClusterImage,
        write: Callable[[Access], None],
        write_left_out: Callable[[int], None],
        call_later: CallLater,
    ) -> None:
        """`write` takes each count of a window, `write_left_out` the accesses that were one too many."""
        named = set(patterns)
        self._names = frozenset(each for each in named if not each.endswith(_PREFIX))
        self._prefixes = tuple(each[:-1] for each in named if each.endswith(_PREFIX))
        self._window_s = window_s
        self._image = image
        self._write = write
        self._write_left_out = write_left_out
        self._call_later = call_later
        self._counts: dict[tuple[Principal, str, str], Access] = {}
        self._left_out = 0
        #: counts of windows that have ended
        self._ended: deque[Access] = deque()

    def watches(self, topic: str) -> bool:
        return topic in self._names or topic.startswith(self._prefixes)

    def note(self, session: Session, operation: str, topic: str, size: int) -> None:
        """A client has read or written `size` bytes of a topic that is watched."""
        key = (session.principal, operation, topic)
        found = self._counts.get(key)
        if found is None:
            if not self._counts:
                self._call_later(self._window_s, self._end_window)
            elif len(self._counts) >= _COUNTS_MAX:
                self._left_out += 1
                return
            found = self._counts[key] = Access(session, operation, topic)
        found.accesses += 1
        found.bytes += size
        if session.host not in found.hosts and len(found.hosts) < _HOSTS_MAX:
            found.hosts.append(session.host)

    def close(self) -> None:
        """Write all counts: the broker stops."""
        self._collect()
        while self._ended:
            self._write(self._ended.popleft())

    def _end_window(self) -> None:
        is_writing = bool(self._ended)
        self._collect()
        if not is_writing:
            self._write_slice()

    def _collect(self) -> None:
        self._ended.extend(self._counts.values())
        self._counts.clear()
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._write_left_out(left_out)

    def _write_slice(self) -> None:
        for _ in range(min(_SLICE_EVENTS, len(self._ended))):
            self._write(self._ended.popleft())
        if self._ended:
            self._call_later(_SLICE_S, self._write_slice)

    # -- requests

    def served(self, context: Context, served: Sequence[tuple[TopicStats, int]]) -> None:
        """A fetch has read bytes of topics."""
        for stats, size in served:
            if self.watches(stats.name):
                self.note(context.session, READ, stats.name, size)

    def share_fetch(self, handler: Handler) -> Handler:
        """A handler of ShareFetch whose responses are counted."""

        def note(context: Context, response: Any) -> None:
            for topic in getattr(response, "responses", ()):
                name = self._name(topic)
                if name is not None and self.watches(name):
                    size = sum(len(each.records) for each in topic.partitions if each.records)
                    if size:
                        self.note(context.session, READ, name, size)

        def serve(context: Context, request: Any) -> Any:
            return _then(handler(context, request), lambda response: note(context, response))

        return serve

    def produce(self, handler: Handler) -> Handler:
        """A handler of Produce whose requests are counted, as far as they were not refused."""

        def serve(context: Context, request: Any) -> Any:
            watched = self._written(request)
            response = handler(context, request)
            if not watched:
                return response
            # Taken now: denials of the request are gone once it has its response.
            is_denied = context.denials is not None
            return _then(response, lambda value: self._note_writes(context, watched, value, is_denied))

        return serve

    def _written(self, request: Any) -> dict[int, tuple[str, int]]:
        """By the places of the topics in a request: the name and the bytes of each that is watched.

        Computed before the request is served: its bytes are gone afterwards.
        """
        found: dict[int, tuple[str, int]] = {}
        for place, topic in enumerate(request.topic_data):
            name = self._name(topic)
            if name is not None and self.watches(name):
                found[place] = name, sum(len(data.records or b"") for data in topic.partition_data)
        return found

    def _note_writes(
        self, context: Context, watched: dict[int, tuple[str, int]], response: Any, is_denied: bool
    ) -> None:
        answers = getattr(response, "responses", None)
        if answers is None and is_denied:
            # Without a response there is no error to look at: with acks=0 a denial closes the connection.
            return
        for place, (name, size) in watched.items():
            parts = None if answers is None else answers[place].partition_responses
            if parts is None or any(part.error_code == ErrorCode.NONE for part in parts):
                self.note(context.session, WRITE, name, size)

    def _name(self, topic: Any) -> str | None:
        """The name of a topic in a request or response, which may have its id only."""
        name: str = getattr(topic, "name", "")
        if name:
            return name
        known = self._image.topics_by_id.get(TopicId(topic.topic_id))
        return None if known is None else known.name


def _then(response: Any, note: Callable[[Any], None]) -> Any:
    """Have `note` called with a response, at once or when it is there."""
    if not isinstance(response, Deferred):
        note(response)
        return response
    noted: Deferred[Any] = Deferred()
    noted.on_cancel = response.cancel

    def done(value: Any) -> None:
        note(value)
        noted.resolve(value)

    response.then(done)
    return noted
