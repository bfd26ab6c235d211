"""What a cluster has to be when all is well again, and what is said where it is not."""

from __future__ import annotations

import asyncio

import pytest

from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import newest_image, replica_on
from penstock.testing.simulation.convergence import _aborted, compacted_difference, unsettled
from penstock.testing.simulation.scenario import Options, Simulation, simulate

#: where a batch has these fields
_LENGTH, _MAGIC = 8, 16


@pytest.fixture
def settled() -> SimCluster:
    simulation = Simulation(3, Options.draw(3, 3))
    assert simulation.run().violation is None
    assert unsettled(simulation.cluster.nodes) is None
    return simulation.cluster


def test_replicas_have_to_converge(settled: SimCluster) -> None:
    node, partition = settled.nodes[1], settled.partitions[0]
    replica = replica_on(node, partition)
    assert replica is not None
    segment = replica.log.segments.active
    for in_header in (_LENGTH, _MAGIC):
        node.disk.flip_bit(segment.path(LOG), in_header, 2)
        assert "a replica cannot be read" in str(unsettled(settled.nodes))
        node.disk.flip_bit(segment.path(LOG), in_header, 2)
    node.disk.flip_bit(segment.path(LOG), segment.size - 1, 0)
    assert str(unsettled(settled.nodes)).endswith(f"-{partition.partition}: replicas have different bytes")
    replica.log.truncate_to(replica.log.end_offset - 1)
    assert "replicas end at" in str(unsettled(settled.nodes))
    replica.retire()
    assert node.broker is not None
    node.broker.stages.storage.partitions.drop(replica.topic_id)
    assert "not all of" in str(unsettled(settled.nodes))


def record(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, 1, key, value)


ALL = [record(0, b"k", b"old"), record(1, b"gone", b"x"), record(2, b"k", b"new"), record(3, b"gone", None)]


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (ALL, None),
        (ALL[1:], None),
        (ALL[2:], None),
        (ALL[2:3], None),
        (ALL[:3], "replicas have different values"),
        (ALL[:2] + ALL[3:], "replicas have different values"),
        (ALL[3:], "replicas have different values"),
        ([*ALL[:2], record(2, b"k", b"NEW"), ALL[3]], "replicas have different records at offset 2"),
        ([record(0, b"k", b"OLD"), *ALL[1:]], "replicas have different records at offset 0"),
    ],
)
def test_compacted_replicas_may_keep_more_or_less_but_nothing_else(
    other: list[Record], difference: str | None
) -> None:
    assert compacted_difference([ALL, other]) == difference
    assert compacted_difference([other, ALL, ALL]) == difference


def test_records_of_aborted_transactions_have_no_values() -> None:
    """One replica has removed them by compaction, and another has not yet."""
    records = [
        build_batch([record(0, b"k", b"old")]),
        build_batch([record(1, b"k", b"new")], base_offset=1, producer_id=7, transactional=True),
        build_end_transaction(EndTransaction(False, 0), producer_id=7, producer_epoch=0, timestamp=1),
    ]
    aborted = _aborted(b"".join(records))
    assert aborted == {1}
    assert _aborted(b"".join(records[:2])) == set()
    both = [record(0, b"k", b"old"), record(1, b"k", b"new")]
    assert compacted_difference([both, both[:1]], aborted) is None
    assert compacted_difference([both, both[:1]]) == "replicas have different values"


def test_every_partition_has_to_have_a_leader_and_all_in_sync(settled: SimCluster) -> None:
    image = settled.nodes[0].broker.stages.cluster.image if settled.nodes[0].broker is not None else None
    assert image is not None
    partition = image.topics["events"].partitions[0]
    left = partition.isr.pop()
    assert "isr=" in str(unsettled(settled.nodes))
    partition.isr.append(left)
    assert unsettled(settled.nodes) is None
    partition.leader = -1
    assert "leader=-1" in str(unsettled(settled.nodes))


def test_no_replica_may_begin_before_its_leader(settled: SimCluster) -> None:
    partition = settled.partitions[0]
    leader = newest_image(settled.nodes).topics[partition.topic].partitions[partition.partition].leader
    replicas = {node.id: replica_on(node, partition) for node in settled.nodes}
    for node_id in sorted(replicas, key=lambda node_id: node_id == leader):
        assert unsettled(settled.nodes) is None
        replica = replicas[node_id]
        assert replica is not None
        replica.log.delete_records(2 if node_id == leader else 1)
    assert f"{leader} leads" in str(unsettled(settled.nodes))


def test_every_broker_has_to_be_up(settled: SimCluster) -> None:
    settled.nodes[2].broker = None
    assert unsettled(settled.nodes) == "only [1, 2] are up"


def test_every_operation_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    def prepare(simulation: Simulation) -> None:
        monkeypatch.setattr(simulation.cluster.workers[0][1], "run", forever)

    outcome = simulate(3, prepare=prepare)
    assert outcome.violation is not None
    assert outcome.violation.name == "liveness"
