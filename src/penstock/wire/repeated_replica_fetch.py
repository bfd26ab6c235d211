"""Fetch requests that a follower repeats while it keeps up: in a session, a few partitions of one topic.

From one such request to the next only the session's epoch and the follower's positions change. One `struct`
call reads or writes it. The bytes are those of the tables in `penstock.wire.apis.fetch`.
"""

from __future__ import annotations

from struct import Struct, calcsize
from typing import Any, Final

from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.messages import request_writer

__all__ = ["MOST", "PARTITION_FIELDS", "ReplicaFetchTemplate"]

#: the most partitions of one request
MOST: Final = 4
_PREFIX: Final = 4
#: length and bytes of the client id, no tags; longest wait, least and most bytes, isolation level, session
_SAME: Final = 2 + 1 + 4 + 4 + 4 + 1 + 4
#: topics + 1, topic id, partitions + 1
_TOPIC: Final = "B16sB"
#: index, leader epoch, fetch offset, last fetched epoch, log start offset, most bytes, no tags
_PARTITION: Final = "iiqiqiB"
PARTITION_FIELDS: Final = len(_PARTITION)
_FIELDS_BEFORE: Final = 1 + 3
#: no tags of the topic, no forgotten topics, no rack, one tag with replica and broker epoch, no further tags
_TAIL: Final = 1 + 5 + 4 + 8 + 1


class ReplicaFetchTemplate:
    """The bytes that the requests of one session on one connection share: `head`, `same` and `tail`.

    `shapes` maps the size of a request to a function that unpacks it into `head`, correlation id, `same`,
    session epoch, topics + 1, topic id, partitions + 1, `PARTITION_FIELDS` for each partition, and `tail`.
    """

    __slots__ = ("_packs", "_version", "head", "same", "shapes", "tail")

    #: The versions that have this layout. Requests of other versions go through the tables.
    VERSIONS: Final = (18,)

    def __init__(self, version: int, client_id: str | None, frame: bytes) -> None:
        """`frame` holds any of them, without its size; see `of`."""
        self._version = version
        length = 0 if client_id is None else len(client_id.encode())
        layouts = [f"4si{_SAME + length}si{_TOPIC}{_PARTITION * (n + 1)}{_TAIL}s" for n in range(MOST)]
        fields = [Struct(f">{layout}") for layout in layouts]
        self.shapes = {each.size: each.unpack for each in fields}
        #: by the number of fields that differ: the size, and the function that packs all of them
        self._packs = {
            _FIELDS_BEFORE + PARTITION_FIELDS * (n + 1): (each.size, Struct(f">i{layouts[n]}").pack)
            for n, each in enumerate(fields)
        }
        self.head, self.same, self.tail = self._constants(frame)

    @classmethod
    def of(
        cls, version: int | None, client_id: str | None, request: FetchRequest
    ) -> ReplicaFetchTemplate | None:
        """The template of `request`; None if the request is unusual, or of another or an unknown version."""
        topics = request.topics
        if (
            version is None
            or version not in cls.VERSIONS
            or len(topics) != 1
            or not 0 < len(topics[0].partitions) <= MOST
            or request.replica_state is None
            or request.forgotten_topics_data
            or request.rack_id
            or request.cluster_id is not None
            or request.last_checksum != -1
        ):
            return None
        frame = _frame(version, client_id, request)
        if len(frame) != _size(client_id, len(topics[0].partitions)):
            # A partition has tags.
            return None
        return cls(version, client_id, frame)

    def fits(self, client_id: str | None, request: FetchRequest) -> bool:
        """Returns true if a request differs from the template's only in session epoch and positions."""
        frame = _frame(self._version, client_id, request)
        return len(frame) in self.shapes and self._constants(frame) == (self.head, self.same, self.tail)

    def _constants(self, frame: bytes) -> tuple[bytes, bytes, bytes]:
        head, _, same, *_, tail = self.shapes[len(frame)](frame)
        return head, same, tail

    def write(self, correlation_id: int, fields: list[Any]) -> bytes:
        """The bytes of a request, its size first; `fields` are all from the session epoch up to `tail`."""
        size, pack = self._packs[len(fields)]
        return pack(size, self.head, correlation_id, self.same, *fields, self.tail)


def _size(client_id: str | None, partitions: int) -> int:
    """The size of a usual request."""
    length = 0 if client_id is None else len(client_id.encode())
    return calcsize(f">4si{_SAME + length}si{_TOPIC}{_PARTITION * partitions}{_TAIL}s")


def _frame(version: int, client_id: str | None, request: FetchRequest) -> bytes:
    """A request as it arrives, without its size."""
    parts = request_writer(FETCH, version, client_id)(0, request)
    return b"".join(parts)[_PREFIX:]  # type: ignore[arg-type]  # a request has no range of a file
