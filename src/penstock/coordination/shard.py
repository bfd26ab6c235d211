"""The interface between a shard and the runtime that hosts it.

The names follow Kafka's `CoordinatorShard`.
"""

from __future__ import annotations

from typing import Protocol

from penstock.coordination.outbox import Outbox
from penstock.coordination.timers import TimerKey, Timers

__all__ = ["CoordinatorShard"]


class CoordinatorShard(Protocol):
    """The state machine of one partition of an internal topic. Pure.

    Life: the runtime creates a shard when the broker becomes leader of the partition, replays the log into
    it, and calls `on_loaded`. From then on it calls `begin` and one other method per turn, and takes the
    outbox. When the broker loses leadership, or an append fails, the runtime discards the shard without a
    call.
    """

    @property
    def outbox(self) -> Outbox: ...

    @property
    def timers(self) -> Timers: ...

    def begin(self, now_ms: int, timer_ms: int) -> None:
        """Begin a turn: `now_ms` is wall-clock time, `timer_ms` the time of a clock that never goes back."""
        ...

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply a record of the log. Producer id and epoch are -1 if its batch has no producer.

        A record of a transactional batch is pending until the transaction's end marker is replayed.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Commit or abort the producer's pending records."""
        ...

    def on_loaded(self) -> None:
        """The whole log has been replayed.

        The log may end with records that are not committed yet. Replies and effects of this turn wait for
        them.
        """
        ...

    def timer_expired(self, key: TimerKey) -> None: ...
