"""Finds where two logs diverge, by leader epochs (KIP-101, KIP-279, KIP-320).

The history of a log is the end offset of each leader epoch. The leader returns the largest epoch that it has
in common with the follower's request, and its end. The follower truncates to the end of the largest epoch
that both have. Each round truncates something; there are as many rounds as there were leaders in between.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from penstock.model.errors import OffsetOutOfRange

__all__ = ["NO_EPOCH", "EpochEnd", "ReplicaLog", "diverging_epoch", "epoch_end", "truncation_offset"]

NO_EPOCH: Final = -1


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; (-1, -1) if the log does not have it."""

    epoch: int
    end_offset: int


class History(Protocol):
    """Which epochs wrote a log; `latest` is the one of its last record, -1 in an empty log."""

    @property
    def latest(self) -> int: ...


class ReplicaLog(Protocol):
    """The interface of a log for replication; `storage.Log` implements it."""

    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> History: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...


def diverging_epoch(
    log: ReplicaLog, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """The diverging epoch for a replica whose log is not a prefix of the leader's; None if it is.

    Raises OffsetOutOfRange if the log starts too late to decide.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None
    shared = epoch_end(log, leader_epoch, last_fetched_epoch)
    if shared.end_offset < 0:
        raise OffsetOutOfRange(f"epoch {last_fetched_epoch} is unknown to the leader")
    if fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"offset {fetch_offset} is below the log's start {log.log_start_offset}")
    if shared.epoch < last_fetched_epoch or shared.end_offset < fetch_offset:
        return shared
    return None


def epoch_end(log: ReplicaLog, leader_epoch: int, epoch: int) -> EpochEnd:
    """Like the log's own method, which learns of an epoch with its first record.

    A leader that has not written yet, or that skipped epochs others wrote in, still knows what they may have
    in common with it: everything it holds.
    """
    latest = log.leader_epochs.latest
    if latest < epoch <= leader_epoch:
        shared = epoch if epoch == leader_epoch or latest == NO_EPOCH else latest
        return EpochEnd(shared, log.end_offset)
    return EpochEnd(*log.end_offset_for_epoch(epoch))


def truncation_offset(log: ReplicaLog, leaders: EpochEnd) -> int:
    """The end of the follower's log after truncation, from the leader's response `leaders`."""
    own = EpochEnd(*log.end_offset_for_epoch(leaders.epoch))
    if own.end_offset < 0:
        return min(leaders.end_offset, log.end_offset)
    if own.epoch != leaders.epoch:
        # The epoch is unknown here: records of later epochs are truncated, and the next fetch sends our
        # epoch.
        return min(own.end_offset, log.end_offset)
    return min(own.end_offset, leaders.end_offset, log.end_offset)
