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


class NaivePartition:
    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.records: dict[int, NaiveRecord] = {}

    @property
    def next_offset(self) -> int:
        return max(self.records, default=self.start_offset - 1) + 1

    def acquired(self, first: int, last: int, count: int, member: str, deadline_ms: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.setdefault(offset, NaiveRecord(AVAILABLE, 0))
            assert record.state is AVAILABLE
            assert record.target is None
            record.state, record.member, record.deadline_ms = ACQUIRED, member, deadline_ms
            record.delivery_count += 1
            assert record.delivery_count == count

    def owned(self, member: str) -> list[int]:
        return [
            offset
            for offset, r in self.records.items()
            if r.state is ACQUIRED and r.member == member and r.target is None
        ]

    def expire(self, now_ms: int, limits: ShareLimits) -> None:
        for record in self.records.values():
            if record.state is ACQUIRED and record.target is None and record.deadline_ms <= now_ms:
                self.release(record, limits)
        self.advance()

    def release(self, record: NaiveRecord, limits: ShareLimits) -> None:
        record.state = ARCHIVED if record.delivery_count >= limits.delivery_count else AVAILABLE
        record.member = ""

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
            seen[offset] = (run.state, run.delivery_count, run.member, run.target)
    assert seen == {o: (r.state, r.delivery_count, r.member, r.target) for o, r in naive.records.items()}
    assert partition.start_offset == naive.start_offset
    assert partition.next_offset == naive.next_offset
    free = [o for o, r in naive.records.items() if r.state is AVAILABLE and r.target is None]
    assert partition.available == len(free)
    finished = [r for r in naive.records.values() if (r.state if r.target is None else r.target) in TERMINAL]
    assert partition.complete == len(finished)
    expected = min(free, default=naive.next_offset)
    assert partition.next_fetch_offset(ShareLimits(in_flight=1 << 30)) == expected
