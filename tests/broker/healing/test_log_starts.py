"""A log start whose records were lost makes no other replica delete anything, and is examined.

Both checkpoints with the log start are lost in a crash, and the first segment with them.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.storage.segment_files import SUFFIXES
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.events import Events
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC, described, make_topic, produce, replica
from tests.broker.stopped_replicas import values

NODES = (1, 2, 3)
#: per segment
COUNT = 4
VALUES = [b"%d" % nth for nth in range(3 * COUNT)]
CHECKPOINTS = ("/data/log-start-offset-checkpoint", "/data/recovery-point-offset-checkpoint")


async def filled(nodes: Cluster) -> None:
    """Three segments on every replica, all on the disk and checkpointed. Replica 1 leads."""
    await make_topic(nodes, *NODES)
    for nth, value in enumerate(VALUES):
        if nth and nth % COUNT == 0:
            await eventually(lambda nth=nth: all(replica(nodes[n]).log.end_offset == nth for n in NODES))
            for node in NODES:
                replica(nodes[node]).log.roll()
        assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(nodes[n]).log.high_watermark == len(VALUES) for n in NODES))
    for node in NODES:
        await replica(nodes[node]).sync.flusher.flush()
        await nodes[node].stages.storage.partitions.checkpoints.write_all()


async def forget_start(nodes: Cluster, *killed: int) -> None:
    """Kill brokers, and remove their first segments and both records of the log start."""
    for node in killed:
        first = replica(nodes[node]).log.segments.first
        await nodes.kill(node)
        paths = [*map(first.path, SUFFIXES), *CHECKPOINTS]
        for path in filter(nodes.disks[node].exists, paths):
            nodes.disks[node].remove(path)


async def in_sync(nodes: Cluster) -> None:
    await eventually(lambda: all(sorted(described(nodes[node]).isr) == [1, 2, 3] for node in NODES))


async def led_by_1(nodes: Cluster) -> None:
    """Replica 1 leads, though its log start is not explained; all are in sync."""
    await filled(nodes)
    await forget_start(nodes, 1)
    await nodes.start(1)
    await in_sync(nodes)
    other = described(nodes[1]).leader
    await nodes.stop(other)
    await eventually(lambda: replica(nodes[1]).leading)
    await nodes.start(other)
    await in_sync(nodes)
    log = replica(nodes[1]).log
    assert (log.log_start_offset, log.explained_start) == (COUNT, 0)


async def retain(nodes: Cluster) -> None:
    """Every follower has a response of the leader of now, and removes what it may remove."""
    assert (await produce(nodes, described(nodes[1]).leader, b"last")).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(nodes[n]).log.high_watermark > len(VALUES) for n in NODES))
    for node in NODES:
        await nodes[node].stages.replication.maintenance.retain()


def test_no_follower_adopts_it_and_the_records_before_it_are_copied_back(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await led_by_1(nodes)
            await retain(nodes)
            for node in (2, 3):
                assert values(replica(nodes[node])) == [*VALUES, b"last"], "the leader's start is no reason"
            await nodes[1].stages.healing.scrubber.repair_all()
            await eventually(lambda: replica(nodes[1]).log.log_start_offset == 0)
            await eventually(lambda: not replica(nodes[1]).log.recovery.corruption)
            await in_sync(nodes)
            assert values(replica(nodes[1])) == [*VALUES, b"last"]

    run(main())
    ((level, fields),) = events.of("log_start_unexplained")
    assert (level, fields["topic"], fields["log_start_offset"]) == ("warning", TOPIC, COUNT)
    assert len(events.of("corruption_repaired")) == 1


def test_deleted_records_explain_it() -> None:
    """An operator gives the records up that only followers have."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await led_by_1(nodes)
            wanted = DeleteRecordsPartition(partition_index=0, offset=COUNT)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=TOPIC, partitions=[wanted])], timeout_ms=19_000
            )
            ((answer,),) = [t.partitions for t in (await nodes.call(1, DELETE_RECORDS, request)).topics]
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, COUNT)
            await retain(nodes)
            for node in NODES:
                assert values(replica(nodes[node])) == [*VALUES[COUNT:], b"last"]

    run(main())


def test_a_log_start_is_explained_once_no_replica_has_earlier_records(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            await forget_start(nodes, *NODES)
            await nodes.start()
            await in_sync(nodes)
            await nodes.stop(3)
            await nodes[1].stages.healing.scrubber.repair_all()
            assert replica(nodes[1]).log.explained_start == 0, "replica 3 may have them"
            await nodes.start(3)
            await in_sync(nodes)
            for node in NODES:
                await nodes[node].stages.healing.scrubber.repair_all()
                log = replica(nodes[node]).log
                assert (log.explained_start, log.log_start_offset) == (COUNT, COUNT)
            await retain(nodes)
            for node in NODES:
                assert values(replica(nodes[node])) == [*VALUES[COUNT:], b"last"]

    run(main())
    assert events.of("log_start_explained")
