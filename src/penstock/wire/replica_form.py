"""Fetch between brokers as a follower that keeps up asks it: in a session, a few partitions of a topic.

From one such request to the next nothing changes but how far the follower is, so one `struct` call reads or
writes it. The layout is that of `penstock.wire.replica_fetch`, whose writer makes the request that an
`AskForm` is cut from.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from penstock.wire.apis.fetch import FETCH
from penstock.wire.messages import request_writer
from penstock.wire.replica_fetch import REPLICA_FETCH, ReplicaAsk

__all__ = ["MOST", "PARTITION_FIELDS", "AskForm"]

#: partitions of one request
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
#: no tags of the topic, nothing forgotten, no rack, replica, its broker epoch, no tags
_TAIL: Final = 1 + 5 + 4 + 8 + 1


class AskForm:
    """What the requests of a session on one connection have in common, as bytes: `head`, `same` and `tail`.

    `shapes` gives, by the size of a request, a function that takes it apart: into `head`, its correlation id,
    `same`, the session's epoch, topics + 1, topic id, partitions + 1, `PARTITION_FIELDS` for each partition,
    and `tail`.
    """

    __slots__ = ("_packs", "head", "same", "shapes", "tail")

    def __init__(self, client_id: str | None, ask: ReplicaAsk) -> None:
        """`ask` is any of them."""
        length = 0 if client_id is None else len(client_id.encode())
        layouts = [f"4si{_SAME + length}si{_TOPIC}{_PARTITION * (n + 1)}{_TAIL}s" for n in range(MOST)]
        fields = [Struct(f">{layout}") for layout in layouts]
        self.shapes = {each.size: each.unpack for each in fields}
        #: by the number of fields that differ: the size, and how to write it all
        self._packs = {
            _FIELDS_BEFORE + PARTITION_FIELDS * (n + 1): (each.size, Struct(f">i{layouts[n]}").pack)
            for n, each in enumerate(fields)
        }
        self.head, self.same, self.tail = self._constants(_frame(client_id, ask))

    def fits(self, client_id: str | None, ask: ReplicaAsk) -> bool:
        """Whether a request, be it of other partitions, is one of them."""
        frame = _frame(client_id, ask)
        return len(frame) in self.shapes and self._constants(frame) == (self.head, self.same, self.tail)

    def _constants(self, frame: bytes) -> tuple[bytes, bytes, bytes]:
        head, _, same, *_, tail = self.shapes[len(frame)](frame)
        return head, same, tail

    def write(self, correlation_id: int, fields: list[Any]) -> bytes:
        """One of them as it goes out, its size first; `fields` are all from the session's epoch to `tail`."""
        size, pack = self._packs[len(fields)]
        return pack(size, self.head, correlation_id, self.same, *fields, self.tail)


def _frame(client_id: str | None, ask: ReplicaAsk) -> bytes:
    """A request as it arrives, without its size."""
    parts = request_writer(REPLICA_FETCH, FETCH.max_version, client_id)(0, ask)
    return b"".join(parts)[_PREFIX:]  # type: ignore[arg-type]  # no request has a range of a file in it
