"""Random histories of a share partition, compared with the naive model after every step."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.shares.acknowledgement import Acknowledgement, acknowledge
from penstock.shares.acquisition import AcquireRequest, FetchedBatch, acquire
from penstock.shares.partition import ShareLimits, SharePartition, Transition
from penstock.shares.states import AcknowledgeType, RecordState
from tests.shares.model import ARCHIVED, AVAILABLE, NaivePartition, NaiveRecord, check_same

LIMITS = ShareLimits(delivery_count=4, lock_ms=50, in_flight=40)
VARIANTS = (
    LIMITS,
    replace(LIMITS, has_dead_letters=True),
    replace(LIMITS, backoff_ms=10, backoff_max_ms=35),
    replace(LIMITS, backoff_ms=10, backoff_max_ms=35, has_dead_letters=True),
)
MEMBERS = ("a", "b", "c")


class History:
    """One run of random steps on both models."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.limits = VARIANTS[seed % len(VARIANTS)]
        self.now_ms = 1000
        start = self.rng.randrange(3)
        self.partition = SharePartition(start)
        self.naive = NaivePartition(start)
        self.writes: list[tuple[Transition, list[int]]] = []
        self.batches: list[FetchedBatch] = []
        at = 0
        while at < 400:
            size = self.rng.choice((1, 1, 2, 5, 9))
            at += self.rng.choice((0, 0, 0, 1, 3))  # offsets that compaction has removed
            self.batches.append(FetchedBatch(at, at + size - 1, self.rng.random() > 0.1))
            at += size

    def step(self) -> None:
        step = self.rng.choice(
            [self.fetch, self.acknowledge, self.finish] * 2 + [self.expire, self.leave, self.cut, self.wait]
        )
        step()
        check_same(self.partition, self.naive)

    def fetch(self) -> None:
        offset = self.partition.next_fetch_offset(self.limits)
        if offset is None:
            assert self.partition.in_flight >= self.limits.in_flight
            return
        strict = self.rng.random() < 0.5
        wanted = self.rng.choice((1, 3, 10, 100))
        request = AcquireRequest(self.rng.choice(MEMBERS), wanted, self.rng.choice((1, 4, 50)), strict)
        assert self.partition.end_of(offset, wanted) == self.naive.end_of(offset, wanted)
        read = [b for b in self.batches if b.last >= offset][: self.rng.randrange(1, 6)]
        found = acquire(self.partition, request, offset, read, self.limits, self.now_ms)
        if strict:
            assert sum(a.last - a.first + 1 for a in found) <= wanted
        deadline_ms = self.now_ms + self.limits.lock_ms
        data = {o for b in read if b.is_data for o in range(b.first, b.last + 1)}
        for first, last, count in found:
            assert data.issuperset(range(first, last + 1))
            self.naive.acquired(first, last, count, request.member, deadline_ms)
        self.note_archived()

    def note_archived(self) -> None:
        """Take over the offsets without data that the acquisition has archived."""
        data = {o for b in self.batches if b.is_data for o in range(b.first, b.last + 1)}
        for offset in range(self.naive.start_offset, self.partition.next_offset):
            if offset not in data:
                record = self.naive.records.get(offset)
                if record is None:
                    self.naive.records[offset] = NaiveRecord(ARCHIVED, 0)
        self.naive.advance()

    def acknowledge(self) -> None:
        member = self.rng.choice(MEMBERS)
        owned = self.naive.owned(member)
        if not owned:
            return
        chosen = sorted(self.rng.sample(owned, self.rng.randrange(1, min(6, len(owned)) + 1)))
        kinds = [self.rng.randrange(5) for _ in chosen]
        batches = [Acknowledgement(o, o, [k]) for o, k in zip(chosen, kinds, strict=True)]
        if chosen[-1] - chosen[0] + 1 == len(chosen):
            batches = [Acknowledgement(chosen[0], chosen[-1], kinds)]
        transition = acknowledge(self.partition, member, batches, self.limits, self.now_ms)
        changed = []
        for offset, kind in zip(chosen, kinds, strict=True):
            record = self.naive.records[offset]
            if kind == AcknowledgeType.RENEW:
                record.deadline_ms = self.now_ms + self.limits.lock_ms
                continue
            limit = record.delivery_count >= self.limits.delivery_count
            released = ARCHIVED if limit else AVAILABLE
            record.target = (ARCHIVED, RecordState.ACKNOWLEDGED, released, ARCHIVED)[kind]
            changed.append(offset)
        assert (transition is None) == (not changed)
        if transition is not None:
            self.writes.append((transition, changed))

    def leave(self) -> None:
        member = self.rng.choice(MEMBERS)
        owned = self.naive.owned(member)
        transition = self.partition.begin_release(member, self.limits)
        for offset in owned:
            record = self.naive.records[offset]
            record.target = ARCHIVED if record.delivery_count >= self.limits.delivery_count else AVAILABLE
        assert (transition is None) == (not owned)
        if transition is not None:
            self.writes.append((transition, owned))

    def finish(self) -> None:
        """The answer to any of the writes that are under way."""
        if not self.writes:
            return
        transition, offsets = self.writes.pop(self.rng.randrange(len(self.writes)))
        persisted = self.rng.random() < 0.7
        if persisted:
            self.partition.commit(transition, self.now_ms, self.limits)
        else:
            self.partition.roll_back(transition, self.now_ms, self.limits)
        lettered = {o for u in transition.undeliverable for o in range(u.first, u.last + 1)}
        for offset in offsets:
            record = self.naive.records.get(offset)
            if record is None:
                continue
            assert record.target is not None
            if persisted:
                record.state, record.member = record.target, ""
                self.naive.rest(record, self.now_ms, self.limits)
            record.target = None
            is_last = record.delivery_count >= self.limits.delivery_count
            needs_letter = self.limits.has_dead_letters and is_last and offset not in lettered
            if not persisted and record.deadline_ms <= self.now_ms and not needs_letter:
                self.naive.release(record, self.now_ms, self.limits)
        self.naive.advance()
        if persisted:
            assert self.partition.start_offset >= min(transition.update.start_offset, self.naive.start_offset)

    def expire(self) -> None:
        transition = self.partition.release_expired(self.now_ms, self.limits).transition
        undeliverable = self.naive.expire(self.now_ms, self.limits)
        assert (transition is None) == (not undeliverable)
        if transition is not None:
            dead = [o for u in transition.undeliverable for o in range(u.first, u.last + 1)]
            assert sorted(dead) == undeliverable
            self.writes.append((transition, undeliverable))

    def wait(self) -> None:
        self.now_ms += self.rng.randrange(30)
        self.expire()

    def cut(self) -> None:
        if self.rng.random() < 0.2:
            offset = self.naive.start_offset + self.rng.randrange(6)
            self.partition.move_start(offset)
            self.naive.move_start(offset)


@pytest.mark.parametrize("seed", range(150))
def test_history(seed: int) -> None:
    history = History(seed)
    for _ in range(120):
        history.step()


def test_a_last_delivery_that_could_not_be_acknowledged_in_time_becomes_a_dead_letter() -> None:
    """Its letter is written once, however often the state cannot be persisted."""
    limits = replace(LIMITS, delivery_count=1, has_dead_letters=True)
    partition = SharePartition(0)
    acquire(partition, AcquireRequest("a", 1, 1), 0, [FetchedBatch(0, 0)], limits, 0)
    accepted = acknowledge(partition, "a", [Acknowledgement(0, 0, [AcknowledgeType.ACCEPT])], limits, 0)
    assert accepted is not None
    assert accepted.undeliverable == []
    assert partition.release_expired(limits.lock_ms, limits).transition is None
    partition.roll_back(accepted, limits.lock_ms, limits)
    assert partition.locks.next_ms == limits.lock_ms
    dead = partition.release_expired(limits.lock_ms, limits).transition
    assert dead is not None
    assert [(each.first, each.last) for each in dead.undeliverable] == [(0, 0)]
    partition.roll_back(dead, limits.lock_ms, limits)
    assert partition.release_expired(limits.lock_ms, limits).transition is None
    assert partition.start_offset == 1


def test_locks_are_bounded() -> None:
    """Acknowledged locks do not stay in memory until their deadline."""
    partition = SharePartition(0)
    for offset in range(2000):
        acquire(partition, AcquireRequest("a", 1, 1), offset, [FetchedBatch(offset, offset)], LIMITS, 0)
        transition = acknowledge(partition, "a", [Acknowledgement(offset, offset, [1])], LIMITS, 0)
        assert transition is not None
        partition.commit(transition, 0, LIMITS)
    assert partition.start_offset == 2000
    assert len(partition.locks) < 100
