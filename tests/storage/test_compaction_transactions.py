"""Readers of committed records see the same table before and after any compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

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
    """Transactions of a few producers, and what they come to."""

    topic: CompactedLog
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Record]] = field(default_factory=dict)
    decided: list[Record] = field(default_factory=list)

    def put(self, producer_id: int, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        transactional = producer_id > 0
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

    def end(self, producer_id: int, committed: bool) -> None:
        records = self.open.pop(producer_id, None)
        if records is not None:
            self.topic.end(producer_id, committed)
            self.decided += records if committed else []

    def expected(self) -> list[Record]:
        """Everything committed below the first open transaction, in the order of the log."""
        stable = min((records[0].offset for records in self.open.values()), default=2**62)
        return sorted(record for record in self.decided if record.offset < stable)


PRODUCERS = st.integers(0, 3)
PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=5)), min_size=1, max_size=4
)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(), steps=st.lists(st.sampled_from(["put", "put", "put", "end", "end", "tidy"]), max_size=40)
)
def test_a_table_of_committed_records_never_changes(data: st.DataObject, steps: list[str]) -> None:
    topic = CompactedLog()
    producers = Producers(topic)
    for step in steps:
        if step == "put":
            producers.put(data.draw(PRODUCERS), data.draw(PAIRS), data.draw(st.sampled_from(Codec)))
        elif step == "end":
            producers.end(data.draw(st.integers(1, 3)), data.draw(st.booleans()))
        else:
            tidy(topic, data)
        visible = read_committed(topic)
        assert latest(visible) == latest(producers.expected())
        originals = {record.offset: record for record in producers.decided}
        assert all(originals[record.offset] == record for record in visible)


def tidy(topic: CompactedLog, data: st.DataObject) -> None:
    """Time passes, perhaps producers are forgotten, the log is compacted and perhaps opened anew."""
    topic.clock.ms += data.draw(st.integers(0, 2500))
    if data.draw(st.booleans()):
        for producer_id, state in list(topic.log.producers.states.items()):
            if state.batches and producer_id not in topic.log.producers.ongoing.values():
                del topic.log.producers.states[producer_id]
    topic.compact(data.draw(st.sampled_from([1, 3, 1000])))
    if data.draw(st.booleans()):
        topic.reopen(clean=data.draw(st.booleans()))
