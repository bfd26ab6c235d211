"""The mirror of one partition: what is fetched next from the source, and what a response leads to.

The mirror is the end of a log that is a prefix of the source's. Before it appends anything, and again after
each change of the source's leader and after each lost connection, it compares its last batch with the batch
that the source has there: by base offset, last offset and checksum.

Invariants:
- A record is appended only behind a last batch that the source has, too.
- Nothing is truncated or deleted. A source that lacks mirrored records, or has others in their place, stops
  the mirror, until the source has them again.
- A source whose log starts behind the end of the mirror leaves a gap, which is counted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.records.batch import BatchHeader
from penstock.replication.follower import FetchPosition

__all__ = ["Answer", "Hold", "LastBatch", "MirrorLog", "PartitionMirror", "Phase", "Step", "Take"]

_FIRST_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 2000
_NO_EPOCH: Final = -1


class MirrorLog(Protocol):
    """The log of a mirrored partition."""

    @property
    def end_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def open_transactions(self) -> int: ...


class Phase(StrEnum):
    """What a mirror does now."""

    #: compares its last batch with the source
    VERIFYING = "verifying"
    MIRRORING = "mirroring"
    #: cannot go on at the moment; it tries again
    RETRYING = "retrying"
    #: the source lacks mirrored records, or has others; it compares again from time to time
    DIVERGED = "diverged"
    #: has everything that the source had, and does not fetch any more
    STOPPED = "stopped"


class LastBatch(NamedTuple):
    """The last batch of a mirrored log."""

    base_offset: int
    last_offset: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @classmethod
    def of(cls, header: BatchHeader) -> LastBatch:
        return cls(
            header.base_offset,
            header.last_offset,
            header.crc,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )

    def is_same(self, other: LastBatch, *, compacted: bool) -> bool:
        """Compare with the batch of the source. Compaction keeps all fields but the checksum."""
        return self == other or (compacted and self == other._replace(crc=self.crc))


class Answer(NamedTuple):
    """One partition of a response of the source."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverges: bool = False
    #: the first batch of the response; None without records
    first: LastBatch | None = None
    #: whether records of other partitions may have taken its place in the response
    is_crowded: bool = False


class Take(NamedTuple):
    """Append the batches of the response from `offset` on; an empty log starts there."""

    offset: int


class Hold(StrEnum):
    """Nothing to append."""

    NOTHING = "nothing"
    STALE = "stale"
    #: ask for the start and the end of the log at the source, then call `listed`
    LIST_OFFSETS = "list offsets"
    #: the metadata of the source is old
    REFRESH = "refresh"


Step = Take | Hold

#: errors after which the metadata of the source is read again
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class PartitionMirror:
    """The mirror of one partition while this broker leads it. A new leadership gets a new object."""

    __slots__ = (
        "_last",
        "_least_end",
        "_log",
        "_pause_ms",
        "_source_epoch",
        "_stops",
        "_taken_epoch",
        "_verified",
        "caught_up_ms",
        "compacted",
        "errors",
        "fenced",
        "missed",
        "phase",
        "reason",
        "retry_at_ms",
        "skips_to",
        "source_end",
        "source_start",
    )

    def __init__(self, log: MirrorLog, last: LastBatch | None, source_epoch: int, *, compacted: bool) -> None:
        """`last` is None for a log without batches."""
        self._log = log
        self._last = last
        self._source_epoch = source_epoch
        #: the leader epoch at the source of the last batch that was taken; -1 if it is not known
        self._taken_epoch = _NO_EPOCH
        self._verified = last is None
        self._pause_ms = _FIRST_PAUSE_MS
        self._stops = False
        self._least_end = 0
        self.compacted = compacted
        self.phase = Phase.VERIFYING
        #: why the mirror retries, or has diverged
        self.reason = ""
        #: not to be fetched before, and not at all while `fenced`
        self.retry_at_ms = 0
        self.fenced = False
        #: the high watermark and the log start at the source; -1 if they are not known
        self.source_end = -1
        self.source_start = -1
        #: when the mirror last had everything that the source had; -1 if it never had
        self.caught_up_ms = -1
        #: offsets that retention at the source has removed before they were mirrored
        self.missed = 0
        self.errors = 0
        #: the source has nothing before this offset
        self.skips_to = -1

    # -- requests

    def next_fetch(self, now_ms: int) -> FetchPosition | None:
        """What to fetch next; None if nothing is fetched now."""
        if self.fenced or self.phase is Phase.STOPPED or now_ms < self.retry_at_ms:
            return None
        if self._last is not None and not self._verified:
            # A log may start within a batch, which is sent as a whole.
            offset = min(max(self._last.base_offset, self.source_start), self._last.last_offset)
            return FetchPosition(offset, _NO_EPOCH, self._source_epoch, -1)
        position = max(self._log.end_offset, self.skips_to)
        return FetchPosition(position, self._taken_epoch, self._source_epoch, -1)

    def moved(self, source_epoch: int) -> None:
        """The source has a leader in another epoch: compare again before anything is appended.

        A mirror that has stopped goes on until it has what this leader has. Why: an unclean election may have
        made a replica without records the leader, and a later one the replica that has them.
        """
        if source_epoch != self._source_epoch:
            self._source_epoch = source_epoch
            self.doubt()
            if self.phase is Phase.STOPPED:
                self.phase = Phase.VERIFYING

    def doubt(self) -> None:
        """Compare again before anything is appended: the source may have lost records meanwhile."""
        self._taken_epoch = _NO_EPOCH
        self._verified = self._last is None
        if self.phase is Phase.MIRRORING:
            self.phase = Phase.VERIFYING

    def stop_when_complete(self, stops: bool, least_end: int = 0) -> None:
        """Fetch until a response shows that the source has nothing more; or go on for ever.

        `least_end` is where the mirror ends at the least: where the log of a source ends that takes no more
        records. Why: some of them may not be committed yet, which responses do not show.
        """
        self._stops = stops
        self._least_end = least_end
        if self.phase is Phase.STOPPED and not stops:
            self.phase = Phase.VERIFYING
            self.doubt()

    # -- responses

    def answered(self, sent: FetchPosition, answer: Answer, now_ms: int) -> Step:
        """Decide about one partition of a response to the request at `sent`."""
        if self.next_fetch(now_ms) != sent:
            return Hold.STALE
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Hold.LIST_OFFSETS
        if answer.error is not ErrorCode.NONE:
            self.failed(answer.error.name, now_ms)
            return Hold.REFRESH if answer.error in _MOVED else Hold.NOTHING
        if answer.diverges:
            self.doubt()
            return Hold.NOTHING
        self.source_end, self.source_start = answer.high_watermark, answer.log_start_offset
        if not self._verified and not self._verify(answer, now_ms):
            return Hold.NOTHING
        return self._take(answer, now_ms)

    def listed(self, sent: FetchPosition, start: int, end: int, now_ms: int) -> Step:
        """Take the start and the end of the log at the source, which does not have the offset of `sent`."""
        if self.next_fetch(now_ms) != sent:
            return Hold.STALE
        self.source_start, self.source_end = start, end
        own_end = self._log.end_offset
        if end < own_end:
            self._diverged(f"the source ends at {end}, before the mirrored end {own_end}", now_ms)
        elif (
            not self._verified
            and self._last is not None
            and sent.fetch_offset < start <= self._last.last_offset
        ):
            # The next comparison is there.
            return Hold.NOTHING
        elif start > sent.fetch_offset:
            # What would be compared is gone, and so may be what would come next.
            self._verified = True
            if start > max(own_end, self.skips_to):
                if self._log.log_start_offset < own_end or own_end > 0:
                    self.missed += start - max(own_end, self.skips_to)
                self.skips_to = start
        else:
            self.failed("OFFSET_OUT_OF_RANGE", now_ms)
        return Hold.NOTHING

    def appended(self, last: LastBatch, source_epoch: int) -> None:
        """Batches of the source were appended, up to `last`."""
        self._last = last
        self._taken_epoch = source_epoch
        self.skips_to = -1
        self._pause_ms = _FIRST_PAUSE_MS

    def progressed(self, now_ms: int) -> None:
        """The response was dealt with: note whether the mirror has everything that the source had.

        A mirror does not stop while mirrored transactions are open: the source may still commit them.
        """
        self.phase, self.reason = Phase.MIRRORING, ""
        if self.source_end >= 0 and self._log.end_offset >= self.source_end:
            self.caught_up_ms = now_ms
            if self._stops and self._log.open_transactions:
                self.reason = f"{self._log.open_transactions} transactions are open at the source"
            elif self._stops and self._log.end_offset >= self._least_end:
                self.phase = Phase.STOPPED

    def was_idle(self, until_ms: int) -> None:
        """Until then the source had nothing more: responses leave out partitions without records."""
        if self.phase is Phase.MIRRORING and 0 <= self.source_end <= self._log.end_offset:
            self.caught_up_ms = max(self.caught_up_ms, until_ms)

    def failed(self, reason: str, now_ms: int) -> None:
        """The request, or carrying out its response, failed: try again after a pause."""
        self.errors += 1
        self.reason = reason
        if self.phase is not Phase.DIVERGED:
            self.phase = Phase.RETRYING
        self._pause(now_ms)

    def refuse(self, reason: str) -> None:
        """Do not fetch: the source has another topic, or none, in place of the mirrored one."""
        if self.reason != reason:
            self.errors += 1
        self.phase, self.reason = Phase.DIVERGED, reason
        self.doubt()

    def _pause(self, now_ms: int) -> None:
        self.retry_at_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def _verify(self, answer: Answer, now_ms: int) -> bool:
        """Compare the last batch with the source; returns true if mirroring may go on."""
        last, found, end = self._last, answer.first, self._log.end_offset
        assert last is not None, "a log without batches needs no comparison"
        if found is not None and found.is_same(last, compacted=self.compacted):
            self._verified = True
        elif answer.high_watermark < end:
            # A new leader learns the high watermark from its followers: this may pass.
            self.failed(f"the source ends at {answer.high_watermark}, before the mirrored end {end}", now_ms)
        elif answer.log_start_offset > last.last_offset:
            self._verified = True
        elif found is None and answer.is_crowded:
            # It says nothing about the batch, which comes in one of the next responses.
            return False
        elif self.compacted and (found is None or found.base_offset > last.last_offset):
            self._verified = True
        else:
            has = (
                "nothing"
                if found is None
                else f"a batch of offsets {found.base_offset} to {found.last_offset}"
            )
            mirrored = f"the mirrored batch of offsets {last.base_offset} to {last.last_offset}"
            self._diverged(f"the source has {has} in place of {mirrored}", now_ms)
        return self._verified

    def _diverged(self, reason: str, now_ms: int) -> None:
        self.errors += 1
        self._verified = self._last is None
        self._taken_epoch = _NO_EPOCH
        self.phase, self.reason = Phase.DIVERGED, reason
        self._pause_ms = _LONGEST_PAUSE_MS
        self._pause(now_ms)

    def _take(self, answer: Answer, now_ms: int) -> Step:
        end = self._log.end_offset
        if answer.high_watermark < end:
            # Nothing more may be taken from a log that is shorter than its mirror.
            self.doubt()
            self.failed(f"the source ends at {answer.high_watermark}, before the mirrored end {end}", now_ms)
            return Hold.NOTHING
        if answer.first is None:
            self.progressed(now_ms)
            return Hold.NOTHING
        offset = max(end, self.skips_to)
        if self.skips_to > answer.first.base_offset and self.missed:
            # The log of the source starts within a batch, which has the records before it, too.
            self.missed -= offset - max(end, answer.first.base_offset)
            offset = max(end, answer.first.base_offset)
        return Take(offset)
