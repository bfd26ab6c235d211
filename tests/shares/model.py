"""A naive share partition: one entry per offset, no runs, no counters. The oracle of the random histories."""

from __future__ import annotations

from penstock.shares.partition import ShareLimits, SharePartition
from penstock.shares.states import TERMINAL, RecordState

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState


class NaiveRecord:
    def __init__(self, state: RecordState, delivery_count: int) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member = ""
        self.deadline_ms = 0
        self.target: RecordState | None = None
        self.rests = False

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE and self.target is None and not self.rests


class NaivePartition:
    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.records: dict[int, NaiveRecord] = {}

    @property
    def next_offset(self) -> int:
        return max(self.records, default=self.start_offset - 1) + 1

    def end_of(self, offset: int, count: int) -> int:
        """The offset behind the first `count` records from `offset` on that can be delivered."""
        free = sorted(o for o, r in self.records.items() if o >= offset and r.is_free)
        return free[count - 1] + 1 if len(free) >= count else self.next_offset + count - len(free)

    def acquired(self, first: int, last: int, count: int, member: str, deadline_ms: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.setdefault(offset, NaiveRecord(AVAILABLE, 0))
            assert record.state is AVAILABLE
            assert record.target is None
            assert not record.rests
            record.state, record.member, record.deadline_ms = ACQUIRED, member, deadline_ms
            record.delivery_count += 1
            assert record.delivery_count == count

    def owned(self, member: str) -> list[int]:
        return [
            offset
            for offset, r in self.records.items()
            if r.state is ACQUIRED and r.member == member and r.target is None
        ]

    def expire(self, now_ms: int, limits: ShareLimits) -> list[int]:
        """Returns the offsets that are to become dead letters."""
        undeliverable = []
        for offset, record in self.records.items():
            if record.target is not None or record.deadline_ms > now_ms:
                continue
            record.rests = False
            if record.state is ACQUIRED:
                if limits.has_dead_letters and record.delivery_count >= limits.delivery_count:
                    record.target = ARCHIVED
                    undeliverable.append(offset)
                else:
                    self.release(record, now_ms, limits)
        self.advance()
        return undeliverable

    def release(self, record: NaiveRecord, now_ms: int, limits: ShareLimits) -> None:
        record.state = ARCHIVED if record.delivery_count >= limits.delivery_count else AVAILABLE
        record.member = ""
        self.rest(record, now_ms, limits)

    def rest(self, record: NaiveRecord, now_ms: int, limits: ShareLimits) -> None:
        if record.state is AVAILABLE and limits.backoff_ms:
            wait_ms = min(limits.backoff_max_ms, limits.backoff_ms * 2 ** (record.delivery_count - 1))
            record.rests, record.deadline_ms = True, now_ms + wait_ms

    def move_start(self, offset: int) -> None:
        if offset > self.start_offset:
            self.records = {o: r for o, r in self.records.items() if o >= offset}
            self.start_offset = offset
            self.advance()

    def advance(self) -> None:
        while self.start_offset in self.records:
            record = self.records[self.start_offset]
            if record.target is not None or record.state not in TERMINAL:
                return
            del self.records[self.start_offset]
            self.start_offset += 1


def check_same(partition: SharePartition, naive: NaivePartition) -> None:
    """Compare every offset, the offsets of the partition, and its counters."""
    seen = {}
    for run in partition.runs:
        for offset in range(run.first, run.last + 1):
            seen[offset] = (run.state, run.delivery_count, run.member, run.target, run.rests)
    assert seen == {
        o: (r.state, r.delivery_count, r.member, r.target, r.rests) for o, r in naive.records.items()
    }
    assert partition.start_offset == naive.start_offset
    assert partition.next_offset == naive.next_offset
    free = [o for o, r in naive.records.items() if r.is_free]
    assert partition.available == len(free)
    finished = [r for r in naive.records.values() if (r.state if r.target is None else r.target) in TERMINAL]
    assert partition.complete == len(finished)
    expected = min(free, default=naive.next_offset)
    assert partition.next_fetch_offset(ShareLimits(in_flight=1 << 30)) == expected
