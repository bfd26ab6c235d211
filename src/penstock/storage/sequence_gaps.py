"""Gaps in a producer's sequence that its own earlier batch will fill: what the leader answers meanwhile.

A producer has several batches in flight. One may be refused with an error that the producer retries: another
broker leads, too few replicas are in sync, the disk is full. If a leader could append the next batch, this
batch has a gap before it, which the retry will fill. OUT_OF_ORDER_SEQUENCE_NUMBER would
tell the producer that records are lost: librdkafka then begins a new epoch for all its partitions, and sends
again, with new sequences, what leaders have in their logs already. Such a record is there twice. A producer
that is not known may start at any sequence; if its first batch was refused, the second would be taken, and
librdkafka would report the first as delivered. It would be lost.

So a leader answers NOT_LEADER_OR_FOLLOWER to a gap for some seconds, if another broker may have refused the
batch in between, or this one has. The producer repeats both in order. A gap that stays is a loss.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode, NotLeaderOrFollower, OutOfOrderSequence
from penstock.ports import Clock

__all__ = ["ANY_SEQUENCE", "RETRIED_IN_ORDER", "SequenceGap", "SequenceGaps"]

#: expected of a producer that is not known
ANY_SEQUENCE: Final = -1
#: Errors upon which a producer sends a batch again, and all later ones behind it.
RETRIED_IN_ORDER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
#: A gap is a loss if it is still there after this time: longer than all retries of a batch in flight take
#: (retry.backoff.max.ms is a second), shorter than producers try (delivery.timeout.ms is two minutes).
_PATIENCE_S: Final = 10.0
#: the gaps that are remembered; each of a producer of its own
_GAPS_MAX: Final = 1000


class SequenceGap(OutOfOrderSequence):
    """A batch is ahead of the sequence that its producer's history expects."""

    def __init__(self, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        expects = "is not known here" if expected == ANY_SEQUENCE else f"{expected} comes before it"
        super().__init__(f"producer {producer_id} sends sequence {sequence} in epoch {epoch}, {expects}")
        self.producer_id = producer_id
        self.epoch = epoch
        self.expected = expected


class _Seen(NamedTuple):
    """A gap that was answered once."""

    epoch: int
    expected: int
    at_s: float


class SequenceGaps:
    """The gaps of one log. Owned by its `Appender`."""

    __slots__ = ("_clock", "_doubted_s", "_seen")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: when a batch may have been refused that its producer will repeat; None if none was
        self._doubted_s: float | None = None
        #: by producer id; the oldest comes first
        self._seen: dict[int, _Seen] = {}

    def led(self, leader_epoch: int) -> None:
        """This broker begins to lead. Earlier leaders may have refused batches when they resigned."""
        if leader_epoch > 0:
            self._seen.clear()
            self.refused()

    def refused(self) -> None:
        """A batch was refused with an error upon which its producer repeats it."""
        self._doubted_s = self._clock.monotonic()

    def check(self, gap: SequenceGap) -> None:
        """Refuse a batch behind a gap. Returns if its producer is not known, and may start with it."""
        doubted_s, now_s = self._doubted_s, self._clock.monotonic()
        is_start = gap.expected == ANY_SEQUENCE
        seen = self._seen.get(gap.producer_id)
        if seen is None or (seen.epoch, seen.expected) != (gap.epoch, gap.expected):
            # One producer may have been silent for days, and no batch of it is in flight: it waits only if
            # something was refused just now.
            if doubted_s is not None and not (is_start and now_s - doubted_s >= _PATIENCE_S):
                self._remember(gap, now_s)
                raise _on_its_way(gap)
        elif now_s - seen.at_s < _PATIENCE_S:
            raise _on_its_way(gap)
        if not is_start:
            raise gap
        self._seen.pop(gap.producer_id, None)

    def _remember(self, gap: SequenceGap, now_s: float) -> None:
        self._seen.pop(gap.producer_id, None)
        if len(self._seen) >= _GAPS_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[gap.producer_id] = _Seen(gap.epoch, gap.expected, now_s)


def _on_its_way(gap: SequenceGap) -> NotLeaderOrFollower:
    return NotLeaderOrFollower(f"{gap}; a batch that was refused may be on its way: send both again")
