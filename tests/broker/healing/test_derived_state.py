"""The scrubber compares transaction indexes and producers with the batches, on real brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.replica.partition import Partition
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.producers import ProducerStates
from penstock.storage.segment_files import SEAL
from tests.broker.events import Events
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import make_topic, replica
from tests.broker.requests import batch_of, now_ms, record

PRODUCER = 77


def _write(partition: Partition, sequence: int) -> None:
    header: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
    batch = batch_of([record(b"value")], transactional=True, **header)
    partition.append(memoryview(bytearray(batch)), guard=NO_VERIFICATION)


def _end(partition: Partition, committed: bool) -> None:
    end = EndTransaction(committed, 0)
    marker = build_end_transaction(end, producer_id=PRODUCER, producer_epoch=0, timestamp=now_ms())
    partition.append(memoryview(bytearray(marker)), AppendOrigin.COORDINATOR)


async def _transactions(nodes: Cluster) -> None:
    """A sealed segment with an aborted and a committed transaction, and an open one behind it."""
    await make_topic(nodes, 1, 2, 3)
    leader = replica(nodes[1])
    for sequence, committed in ((0, False), (1, True)):
        _write(leader, sequence)
        _end(leader, committed)
    await eventually(lambda: all(replica(nodes[node]).log.end_offset == 4 for node in (1, 2, 3)))
    for node in (1, 2, 3):
        replica(nodes[node]).log.roll()
    _write(leader, 2)
    await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 5 for node in (1, 2, 3)))


def _lose_index(log: Log) -> None:
    log.segments.first.transactions.rewrite([])
    log.segments.replace([], [])


def _lose_producers(log: Log) -> None:
    log.producers = ProducerStates()
    log.producers.end_offset = log.end_offset


def _lose_open_transaction(log: Log) -> None:
    log.producers.states[PRODUCER].end_transaction()
    log.producers.ongoing.clear()
    log.producers.first_unstable = None


@pytest.mark.parametrize("damage", [_lose_index, _lose_producers, _lose_open_transaction])
def test_derived_state_that_contradicts_the_batches_is_replaced(
    damage: Callable[[Log], None], events: Events
) -> None:
    async def scenario() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            await nodes.start()
            await nodes.settled()
            await _transactions(nodes)
            log = replica(nodes[3]).log
            damage(log)
            await nodes[3].stages.healing.scrubber.scrub_all()
            assert log.aborted_transactions(0, 5) == [(PRODUCER, 0)]
            assert (log.last_stable_offset, list(log.producers.ongoing.items())) == (4, [(4, PRODUCER)])
            assert log.producers.states[PRODUCER].last_sequence == 2
            found = len(events.of("transactions_rebuilt"))
            await nodes[3].stages.healing.scrubber.scrub_all()
            assert (found, len(events.of("transactions_rebuilt"))) == (1, 1)
        finally:
            await nodes.close()

    run(scenario())


def test_segments_without_a_seal_are_sealed(events: Events) -> None:
    """As those of earlier releases."""

    async def scenario() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            await nodes.start()
            await nodes.settled()
            await _transactions(nodes)
            seal = replica(nodes[2]).log.segments.first.path(SEAL)
            content = nodes.disks[2].read(seal)
            nodes.disks[2].remove(seal)
            await nodes[2].stages.healing.scrubber.scrub_all()
            assert nodes.disks[2].read(seal) == content
        finally:
            await nodes.close()

    run(scenario())
    assert not events.of("transactions_rebuilt")
