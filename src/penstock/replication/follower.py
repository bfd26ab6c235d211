"""The follower's side of a replicated partition, for one leader epoch: requests, and actions on responses.

The fetch offset and the last epoch are read from the log itself. So an empty response keeps the last fetched
epoch, and there is no second copy of this state.

Invariants:
- A response counts only if the log end is the same as when the request was sent.
- A log that diverges is truncated before anything else of the response, including the high watermark, is
  used.
- Committed records are truncated only if the topic accepts their loss. A cleanly elected leader has
  everything below any follower's high watermark. A truncation below it, or by a leader of an unclean
  election, may remove records that no other replica has. Such a log is quarantined as a whole, and fetched
  again.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.replication.epochs import EpochEnd, ReplicaLog, truncation_offset

__all__ = [
    "Append",
    "FetchAnswer",
    "FetchPosition",
    "FollowerState",
    "Hold",
    "Reset",
    "SetAside",
    "Step",
    "Truncate",
]

#: the first pause, which doubles: a leader without the metadata of its election gets it within moments
_FIRST_BACKOFF_MS: Final = 10


class FetchPosition(NamedTuple):
    """One partition of a Fetch request."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


#: `FetchPosition(…)` without the call of a Python function, for what every fetch takes
_new_position: Final = tuple.__new__


class FetchAnswer(NamedTuple):
    """One partition of a Fetch response, without the records."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None


class Append(NamedTuple):
    """Append the records, if any, then let the high watermark and the start offset follow the leader's."""

    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Cut the log to end at `offset`."""

    offset: int
    #: whether committed records are cut; None if that is not known, because the leader's election was unclean
    committed_lost: bool | None = False


class SetAside(NamedTuple):
    """Keep the log elsewhere and start with an empty one: a cut to `offset` may take committed records."""

    offset: int


class Reset(NamedTuple):
    """Drop the log and start over at `offset`: the leader no longer has what would continue ours."""

    offset: int


class Hold(Enum):
    """Nothing to do with the log."""

    #: the log or the leader has changed since the question
    STALE = auto()
    #: retry after the backoff
    BACKOFF = auto()
    #: the leader is in a newer epoch: wait for metadata
    FENCED = auto()
    #: query the leader's log start and end (ListOffsets), then call `offsets_listed`
    LIST_OFFSETS = auto()
    #: only the archive has our next record: start over behind it, with the state that it has there
    RESTART_BEHIND_ARCHIVE = auto()


Step = Append | Truncate | SetAside | Reset | Hold


class FollowerState:
    """One followership of one partition. A new leader epoch gets a new object."""

    __slots__ = (
        "_backoff_ms",
        "_log",
        "_may_lose",
        "_pause_ms",
        "_recovering",
        "fenced",
        "leader",
        "leader_epoch",
        "retry_at_ms",
    )

    def __init__(
        self,
        leader: int,
        leader_epoch: int,
        log: ReplicaLog,
        backoff_ms: int,
        *,
        recovering: bool = False,
        may_lose: bool = False,
    ) -> None:
        """`backoff_ms` is the longest pause.

        `recovering`: the leader's election was unclean. `may_lose`: the topic allows such elections.
        """
        self.leader = leader
        self.leader_epoch = leader_epoch
        self._log = log
        self._backoff_ms = backoff_ms
        self._recovering = recovering
        self._may_lose = may_lose
        self._pause_ms = _FIRST_BACKOFF_MS
        #: not to be fetched before
        self.retry_at_ms = 0
        #: not to be fetched in this leader epoch any more
        self.fenced = False

    def next_fetch(self, now_ms: int) -> FetchPosition | None:
        """The next request to the leader; None if there is none."""
        if self.fenced or now_ms < self.retry_at_ms:
            return None
        log = self._log
        at = (log.end_offset, log.leader_epochs.latest, self.leader_epoch, log.log_start_offset)
        return _new_position(FetchPosition, at)

    def continued(self, sent: FetchPosition) -> bool:
        """Take a response without an error. Returns true unless its batches do not continue our log."""
        return not self._is_stale(sent)

    def answered(self, sent: FetchPosition, answer: FetchAnswer, now_ms: int) -> Step:
        if self._is_stale(sent):
            return Hold.STALE
        if answer.error is ErrorCode.NONE:
            if answer.diverging is not None:
                return self._truncate(truncation_offset(self._log, answer.diverging), now_ms)
            return Append(answer.high_watermark, answer.log_start_offset)
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Hold.LIST_OFFSETS
        if answer.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return Hold.RESTART_BEHIND_ARCHIVE
        if answer.error is ErrorCode.FENCED_LEADER_EPOCH:
            self.fenced = True
            return Hold.FENCED
        # The leader has not applied its epoch yet, is moving, or has an error: all of these are transient.
        return self.failed(now_ms)

    def offsets_listed(self, sent: FetchPosition, leader_start: int, leader_end: int, now_ms: int) -> Step:
        """Handle the leader's log start and end, after our offset was out of its range."""
        if self._is_stale(sent):
            return Hold.STALE
        if sent.last_fetched_epoch > self.leader_epoch:
            return self._beyond_leader_epoch()
        end = self._log.end_offset
        if leader_end < end:
            # The next fetch compares the rest of the log by epoch.
            return self._truncate(leader_end, now_ms)
        if leader_start > end:
            return Reset(leader_start)
        return self.failed(now_ms)

    def succeeded(self) -> None:
        """The leader's records were appended: reset the backoff."""
        self._pause_ms = _FIRST_BACKOFF_MS

    def pause(self, until_ms: int) -> None:
        """Do not fetch before `until_ms`."""
        self.retry_at_ms = until_ms

    def failed(self, now_ms: int) -> Hold:
        """The request, or carrying out its answer, failed: pause this partition."""
        self.retry_at_ms = now_ms + min(self._pause_ms, self._backoff_ms)
        self._pause_ms *= 2
        return Hold.BACKOFF

    def _is_stale(self, sent: FetchPosition) -> bool:
        log = self._log
        return (
            self.fenced
            or sent.fetch_offset != log.end_offset
            or sent.last_fetched_epoch != log.leader_epochs.latest
            or sent.leader_epoch != self.leader_epoch
        )

    def _beyond_leader_epoch(self) -> Step:
        """Our log has newer epochs than the leader's: the leader cannot find where the logs diverge.

        Either a bit of a batch's epoch has changed, which no checksum covers, or the metadata went back.
        Neither shows that the records are not committed.
        """
        offset = max(self._log.end_offset_for_epoch(self.leader_epoch)[1], self._log.log_start_offset)
        return Truncate(offset, committed_lost=None) if self._may_lose else SetAside(offset)

    def _truncate(self, offset: int, now_ms: int) -> Step:
        if offset >= self._log.end_offset:
            # A leader with contradictory responses: do not retry in a tight loop.
            return self.failed(now_ms)
        if offset >= self._log.high_watermark and not self._recovering:
            return Truncate(offset)
        if self._may_lose:
            return Truncate(offset, True if offset < self._log.high_watermark else None)
        return SetAside(offset)
