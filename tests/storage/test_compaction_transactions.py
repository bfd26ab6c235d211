"""Readers of committed records see the same table before and after any compaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.records.batch import read_header
from penstock.records.codecs import Codec
from penstock.records.control import parse_end_transaction
from penstock.records.record import Record, iter_records
from tests.storage.compacted import CompactedLog, latest


def read_committed(topic: CompactedLog) -> list[Record]:
    """What a client with `isolation.level=read_committed` makes of the log."""
    waiting = sorted(topic.log.aborted_transactions(0, topic.log.end_offset), key=lambda entry: entry[1])
    aborting: set[int] = set()
    visible: list[Record] = []
    for batch in topic.batches():
        header = read_header(batch)
        if header.base_offset >= topic.log.last_stable_offset:
            break
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        if header.is_control:
            marker = parse_end_transaction(batch)
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            visible += iter_records(batch)
    return visible


@dataclass
class Producers:
    """Transactions of a few producers, and what they come to; producer 0 has none."""

    topic: CompactedLog
    generation: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Record]] = field(default_factory=dict)
    decided: list[Record] = field(default_factory=list)

    def put(self, producer: int, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        transactional = producer > 0
        producer_id = self._id(producer)
        sequence = self.sequences.get(producer_id, 0) if transactional else -1
        records = self.topic.put(
            *pairs,
            codec=codec,
            producer_id=producer_id if transactional else -1,
            sequence=sequence,
            transactional=transactional,
        )
        self.sequences[producer_id] = sequence + len(pairs)
        (self.open.setdefault(producer_id, []) if transactional else self.decided).extend(records)

    def _id(self, producer: int) -> int:
        """The id under which `producer` has a transaction open, or would start one."""
        found = (producer_id for producer_id in self.open if producer_id % 10 == producer)
        return next(found, 10 * self.generation + producer)

    def forget(self) -> None:
        """The log forgets producers without an open transaction; a returning producer has a new id."""
        self.generation += 1
        for producer_id in set(self.topic.log.producers.states) - set(self.open):
            del self.topic.log.producers.states[producer_id]

    def end(self, producer: int, committed: bool) -> None:
        producer_id = self._id(producer)
        records = self.open.pop(producer_id, None)
        if records is not None:
            self.topic.end(producer_id, committed)
            self.decided += records if committed else []

    def expected(self) -> list[Record]:
        """Everything committed below the first open transaction, in the order of the log."""
        stable = min((records[0].offset for records in self.open.values()), default=2**62)
        return sorted(record for record in self.decided if record.offset < stable)


@pytest.mark.parametrize("seed", range(60))
def test_a_table_of_committed_records_never_changes(seed: int) -> None:
    random = Random(seed)
    topic = CompactedLog()
    producers = Producers(topic)
    for _ in range(50):
        step = random.choices(["put", "end", "tidy"], [5, 3, 2])[0]
        if step == "put":
            producers.put(random.randint(0, 3), some_pairs(random), random.choice(list(Codec)))
        elif step == "end":
            producers.end(random.randint(1, 3), random.random() < 0.5)
        else:
            tidy(producers, random)
        visible = read_committed(topic)
        assert latest(visible) == latest(producers.expected())
        originals = {record.offset: record for record in producers.decided}
        assert all(originals[record.offset] == record for record in visible)


def some_pairs(random: Random) -> list[tuple[bytes, bytes | None]]:
    def value() -> bytes | None:
        return random.randbytes(3) if random.random() < 0.7 else None

    return [(random.choice([b"a", b"b", b"c", b"d"]), value()) for _ in range(random.randint(1, 3))]


def tidy(producers: Producers, random: Random) -> None:
    """Time passes, perhaps producers are forgotten, the log is compacted and perhaps opened anew."""
    topic = producers.topic
    topic.clock.ms += random.choice([0, 500, 2000])
    if random.random() < 0.3:
        producers.forget()
    topic.compact(random.choice([1, 3, 1000]))
    if random.random() < 0.3:
        topic.reopen(clean=random.random() < 0.5)
