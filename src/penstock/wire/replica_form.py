"""Fetch between brokers as a follower that keeps up asks it: in a session, naming one partition.

From one such request to the next nothing changes but how far the follower is, so one `struct` call reads or
writes it. The layout is that of `penstock.wire.replica_fetch`, whose writer makes the request that an
`AskForm` is cut from.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import FETCH
from penstock.wire.messages import request_writer
from penstock.wire.replica_fetch import REPLICA_FETCH, ReplicaAsk

__all__ = ["AskForm", "name_of"]

_PREFIX: Final = 4
#: length and bytes of the client id, no tags; longest wait, least and most bytes, isolation level, session
_SAME: Final = 2 + 1 + 4 + 4 + 4 + 1 + 4
#: one topic, its id, one partition, its number
_NAME: Final = Struct(">B16sBi")
#: most bytes, nothing forgotten, no rack, replica, its broker epoch, no tags
_TAIL: Final = 4 + 7 + 4 + 8 + 1


def name_of(topic_id: TopicId, index: int) -> bytes:
    """How a request names its partition."""
    return _NAME.pack(2, topic_id, 2, index)


class AskForm:
    """What the requests of a session on one connection have in common, as bytes.

    `unpack` gives of a request: `head`, its correlation id, `same`, the session's epoch, the partition's
    name, leader epoch, fetch offset, last fetched epoch, log start offset, `tail`.
    """

    __slots__ = ("_pack", "head", "same", "size", "tail", "unpack")

    def __init__(self, client_id: str | None, ask: ReplicaAsk) -> None:
        """`ask` is any of them."""
        frame = _frame(client_id, ask)
        length = 0 if client_id is None else len(client_id.encode())
        layout = f"4si{_SAME + length}si{_NAME.size}siqiq{_TAIL}s"
        fields = Struct(f">{layout}")
        self.size = fields.size
        self.unpack = fields.unpack
        self._pack = Struct(f">i{layout}").pack
        self.head, _, self.same, _, _, _, _, _, _, self.tail = fields.unpack(frame)

    def fits(self, client_id: str | None, ask: ReplicaAsk) -> bool:
        """Whether a request, which names one partition, is one of them."""
        frame = _frame(client_id, ask)
        if len(frame) != self.size:
            return False
        head, _, same, _, _, _, _, _, _, tail = self.unpack(frame)
        return bool(head == self.head and same == self.same and tail == self.tail)

    def write(
        self,
        correlation_id: int,
        session_epoch: int,
        name: bytes,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> bytes:
        """One of them as it goes out, its size first."""
        return self._pack(
            self.size,
            self.head,
            correlation_id,
            self.same,
            session_epoch,
            name,
            leader_epoch,
            offset,
            last_fetched_epoch,
            log_start_offset,
            self.tail,
        )


def _frame(client_id: str | None, ask: ReplicaAsk) -> bytes:
    """A request as it arrives, without its size."""
    parts = request_writer(REPLICA_FETCH, FETCH.max_version, client_id)(0, ask)
    return b"".join(parts)[_PREFIX:]  # type: ignore[arg-type]  # no request has a range of a file in it
