"""The leader epochs of a log and their first offsets (KIP-101, KIP-279).

Epochs and their start offsets both rise strictly. The checkpoint file is Kafka's text format with a checksum,
and a first line that names the partition (version 3). It is written with the next flush of the log (`dirty`):
an epoch above the recovery point is found again in the batches themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from penstock.storage.checkpoint import format_checked, parse_checkpoint
from penstock.storage.seals import NO_OWNER, LogOwner

__all__ = ["EPOCHS_FILE", "NO_EPOCH_OFFSET", "NO_OFFSET", "LeaderEpochs", "epoch_lines"]

EPOCHS_FILE: Final = "leader-epoch-checkpoint"

#: the version of a checkpoint that names its partition
_WITH_OWNER: Final = 3
#: before every offset
NO_OFFSET: Final = -1
#: (epoch, end offset) for an epoch that this log knows nothing about
NO_EPOCH_OFFSET: Final = (-1, -1)


def epoch_lines(data: bytes, owner: LogOwner = NO_OWNER) -> list[str]:
    """The entries of a checkpoint; ValueError if it is damaged, or of another log than `owner`'s."""
    lines = parse_checkpoint(data)
    if data.startswith(b"%d\n" % _WITH_OWNER):
        topic_id, partition = lines.pop(0).split()
        if not owner.may_be(LogOwner(topic_id, int(partition))):
            raise ValueError(f"it is of partition {partition} of topic {topic_id}")
    return lines


class LeaderEpochs:
    """The history of leaders, oldest first."""

    __slots__ = ("dirty", "epochs", "latest", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        #: the last epoch that wrote, -1 if none has
        self.latest = -1
        #: true if the checkpoint on disk is out of date
        self.dirty = False

    def assign(self, epoch: int, start: int) -> None:
        """`epoch` writes from `start` on; entries that contradict it were never committed and are dropped."""
        if epoch < 0 or (epoch == self.latest and start >= self.starts[-1]):
            return
        keep = min(bisect_left(self.epochs, epoch), bisect_left(self.starts, start))
        self.epochs[keep:] = [epoch]
        self.starts[keep:] = [start]
        self._changed()

    def follow(self, epoch: int, start: int, previous: int) -> None:
        """Take in the batch of `epoch` at `start`, which is behind the batch at `previous`.

        Epochs never fall within a log. If this one is lower than the last, and only the batch before had the
        last one, the epoch of that batch is damaged: no checksum covers it. It is forgotten.
        """
        if 0 <= epoch < self.latest and self.starts[-1] == previous:
            del self.epochs[-1], self.starts[-1]
            self._changed()
            start = start if self.epochs else previous
        if epoch > self.latest:
            self.assign(epoch, start)

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest known epoch at or below `epoch`, where it ends), or `NO_EPOCH_OFFSET`."""
        if epoch < 0 or epoch > self.latest:
            return NO_EPOCH_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self.epochs, epoch)
        known = self.epochs[following - 1] if following else epoch
        return known, self.starts[following]

    def epoch_of(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, None if it is older than anything known."""
        slot = bisect_right(self.starts, offset)
        return self.epochs[slot - 1] if slot else None

    def forget_before(self, offset: int) -> None:
        """The log now starts at `offset`; the epoch of that offset keeps its start."""
        slot = bisect_right(self.starts, offset) - 1
        if slot > 0:
            del self.epochs[:slot]
            del self.starts[:slot]
            self._changed()

    def forget_from(self, offset: int) -> None:
        """The log now ends at `offset`."""
        slot = bisect_left(self.starts, offset)
        if slot < len(self.starts):
            del self.epochs[slot:]
            del self.starts[slot:]
            self._changed()

    def clear(self) -> None:
        self.forget_from(-1)

    def replace(self, other: LeaderEpochs) -> None:
        """Take over the entries of `other`; the checkpoint on disk is out of date."""
        self.epochs[:], self.starts[:] = other.epochs, other.starts
        self._changed()

    def encode(self, owner: LogOwner = NO_OWNER) -> bytes:
        """The checkpoint of a log of `owner`."""
        lines = [f"{epoch} {start}" for epoch, start in zip(self.epochs, self.starts, strict=True)]
        if owner == NO_OWNER:
            return format_checked(lines)
        return format_checked([f"{owner.topic_id} {owner.partition}", *lines], _WITH_OWNER)

    def within(self, start: int, end: int) -> list[int]:
        """Epoch and first offset in turn of the entries that apply to the offsets from `start` to `end`."""
        if not self.starts:
            return []
        last = bisect_left(self.starts, end)
        first = max(0, min(bisect_right(self.starts, start), last) - 1)
        pairs = zip(self.epochs[first:last], self.starts[first:last], strict=True)
        return [number for pair in pairs for number in pair]

    def newest(self, count: int) -> list[int]:
        """Epoch and first offset in turn of the last `count` entries, oldest first."""
        pairs = zip(self.epochs[-count:], self.starts[-count:], strict=True)
        return [number for pair in pairs for number in pair]

    def restore(self, entries: Sequence[int]) -> None:
        """Take over the result of `within`; the checkpoint on disk is out of date."""
        self.epochs[:], self.starts[:] = entries[::2], entries[1::2]
        self._changed()

    @classmethod
    def decode(cls, data: bytes, owner: LogOwner = NO_OWNER) -> LeaderEpochs:
        """ValueError on anything that is not a checkpoint in order, or is that of another log."""
        epochs = cls()
        for line in epoch_lines(data, owner):
            epoch, start = map(int, line.split())
            if epochs.epochs and (epoch <= epochs.latest or start <= epochs.starts[-1]):
                raise ValueError(f"epoch {epoch} from {start} is out of order")
            epochs.assign(epoch, start)
        epochs.dirty = False
        return epochs

    def _changed(self) -> None:
        self.latest = self.epochs[-1] if self.epochs else -1
        self.dirty = True
