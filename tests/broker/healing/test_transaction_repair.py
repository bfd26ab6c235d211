"""Readers of committed records after the repair of a replica that has crashed, on real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.broker.replica.partition import Partition
from penstock.records.batch import CRC_START
from penstock.records.checksum import crc32c
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import iter_batches, iter_records
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import AppendOrigin
from penstock.storage.scan import CorruptLog
from penstock.storage.segment_files import LOG, SNAPSHOT, SUFFIXES, TRANSACTION_INDEX
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tests.broker.events import Events
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import TOPIC, described, make_topic, replica
from tests.broker.requests import batch_of, now_ms, record

PRODUCER = 77
#: of the sealed segment: its batches, and their positions in it
ABORTED_RECORDS, ABORT_MARKER, COMMIT_MARKER = 1, 2, 4
COMMITTED = [b"plain", b"committed", b"last"]


def append(partition: Partition, batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    partition.append(memoryview(bytearray(batch)), origin, guard=NO_VERIFICATION)


def write(partition: Partition, value: bytes, sequence: int) -> None:
    header: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
    append(partition, batch_of([record(value, key=b"k")], transactional=True, **header))


def end(partition: Partition, *, committed: bool) -> None:
    marker = EndTransaction(committed, 0)
    built = build_end_transaction(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=now_ms())
    append(partition, built, AppendOrigin.COORDINATOR)


async def transactions(nodes: Cluster, configs: dict[str, str]) -> None:
    """A sealed segment with an aborted and a committed transaction, and one record behind it."""
    await make_topic(nodes, 1, 2, 3, configs=configs)
    leader = replica(nodes[1])
    append(leader, batch_of([record(b"plain", key=b"p")]))
    write(leader, b"aborted", 0)
    end(leader, committed=False)
    write(leader, b"committed", 1)
    end(leader, committed=True)
    await everywhere(nodes, 5)
    # After a crash the segment before the recovery point is walked.
    await checkpoint(nodes)
    for node in (1, 2, 3):
        replica(nodes[node]).log.roll()
    append(leader, batch_of([record(b"last", key=b"l")]))
    await everywhere(nodes, 6)


async def checkpoint(nodes: Cluster) -> None:
    """Sync the log of the follower 3, and write its recovery point and high watermark."""
    await replica(nodes[3]).sync.flusher.flush()
    await nodes[3].stages.storage.partitions.checkpoints.write_all()


def remove(*paths: str) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


async def everywhere(nodes: Cluster, offset: int) -> None:
    await eventually(lambda: all(replica(nodes[node]).log.high_watermark == offset for node in (1, 2, 3)))


async def read_committed(nodes: Cluster, node: int) -> list[bytes]:
    """The values that a consumer with isolation.level=read_committed passes on."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic_id=nodes[node].stages.cluster.image.topics[TOPIC].id, partitions=[wanted])
    values: list[bytes] = []
    while wanted.fetch_offset < 6:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], isolation_level=1)
        ((answer,),) = [t.partitions for t in (await nodes.call(node, FETCH, request)).responses]
        assert (answer.error_code, answer.last_stable_offset) == (0, 6)
        assert isinstance(answer.records, memoryview)
        data = bytes(answer.records)
        aborted = {each.producer_id: each.first_offset for each in answer.aborted_transactions or ()}
        for position, header in iter_batches(data):
            wanted.fetch_offset = header.next_offset
            if header.is_control:
                aborted.pop(header.producer_id, None)
            elif aborted.get(header.producer_id, header.next_offset) >= header.next_offset:
                batch = memoryview(data)[position : position + header.size]
                values += [bytes(each.value or b"") for each in iter_records(batch)]
    return values


def on_real_files(folder: Path) -> Cluster:
    nodes = Cluster([1, 2, 3], config={"penstock.memory": "false"})
    for node in (1, 2, 3):
        nodes.disks[node] = OsFiles()
        nodes.settings[node]["log.dirs"] = str(folder / str(node))
    return nodes


def damage(nodes: Cluster, node: int, path: str, nth: int) -> None:
    """Flip a bit of a batch."""
    file = nodes.disks[node].open(path)
    position, _ = list(iter_batches(file.pread(file.size(), 0)))[nth]
    (byte,) = file.pread(1, position + 40)
    file.pwrite(bytes([byte ^ 4]), position + 40)
    file.close()


@pytest.mark.parametrize(
    ("policy", "nth"),
    [("delete", ABORTED_RECORDS), ("delete", COMMIT_MARKER), ("compact", ABORT_MARKER)],
)
def test_aborted_records_stay_hidden_after_a_repair(
    tmp_path: Path, events: Events, nth: int, policy: str
) -> None:
    """The crash makes recovery read the segment without the damaged batch; its index is lost as well."""

    async def main() -> None:
        nodes = on_real_files(tmp_path)
        try:
            await nodes.start()
            await transactions(nodes, {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "1"})
            segment = replica(nodes[3]).log.segments.first
            await nodes.kill(3)
            damage(nodes, 3, segment.path(LOG), nth)
            index = segment.path(TRANSACTION_INDEX)
            remove(index)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[3]).isr) == [1, 2, 3])
            partition = replica(nodes[3])
            await nodes[3].stages.healing.scrubber.repair(partition)
            await everywhere(nodes, 6)
            assert not partition.log.recovery.corruption
            assert [event for event in events.all if event[1] == "transactions_rebuilt"]
            assert await read_committed(nodes, 3) == COMMITTED
            assert nodes.disks[3].size(index) == 34
        finally:
            await nodes.close()

    run(main())


def test_aborted_records_stay_hidden_after_a_hole_was_filled(tmp_path: Path) -> None:
    """The segment with the records is lost; recovery reads their marker, in the last segment, alone."""

    async def main() -> None:
        nodes = on_real_files(tmp_path)
        try:
            await nodes.start()
            await make_topic(nodes, 1, 2, 3)
            leader = replica(nodes[1])
            append(leader, batch_of([record(b"plain")]))
            await everywhere(nodes, 1)
            for node in (1, 2, 3):
                replica(nodes[node]).log.roll()
            write(leader, b"aborted", 0)
            await everywhere(nodes, 2)
            for node in (1, 2, 3):
                replica(nodes[node]).log.roll()
            end(leader, committed=False)
            write(leader, b"committed", 1)
            end(leader, committed=True)
            append(leader, batch_of([record(b"last")]))
            await everywhere(nodes, 6)
            segments = list(replica(nodes[3]).log.segments)
            lost = segments[1]
            await checkpoint(nodes)
            await nodes.kill(3)
            remove(*(lost.path(suffix) for suffix in SUFFIXES))
            remove(*(segment.path(SNAPSHOT) for segment in segments))
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[3]).isr) == [1, 2, 3])
            await everywhere(nodes, 6)
            assert not replica(nodes[3]).log.recovery.corruption
            assert await read_committed(nodes, 3) == COMMITTED
        finally:
            await nodes.close()

    run(main())


def test_a_transaction_index_that_was_lost_while_the_broker_was_stopped_is_rebuilt(
    tmp_path: Path, events: Events
) -> None:
    async def main() -> None:
        nodes = on_real_files(tmp_path)
        try:
            await nodes.start()
            await transactions(nodes, {})
            index = replica(nodes[3]).log.segments.first.path(TRANSACTION_INDEX)
            await nodes.stop(3)
            remove(index)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[3]).isr) == [1, 2, 3])
            await everywhere(nodes, 6)
            assert replica(nodes[3]).log.recovery.clean
            assert await read_committed(nodes, 3) == COMMITTED
            ((level, fields),) = events.of("transaction_index_rebuilt")
            assert (level, fields["topic"], fields["first_offset"]) == ("warning", TOPIC, 0)
        finally:
            await nodes.close()

    run(main())


# -- files beside the log


def _replace(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


async def _end_and_damage(nodes: Cluster, clean: bool, damage: Callable[[Path], None], suffix: str) -> None:
    """End broker 3 after its whole log is on the disk, and damage a file of its sealed segment."""
    log = replica(nodes[3]).log
    path = Path(next(iter(log.segments)).path(suffix))
    await replica(nodes[3]).sync.flusher.flush()
    await nodes[3].stages.storage.partitions.checkpoints.write_all()
    await (nodes.stop(3) if clean else nodes.kill(3))
    damage(path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [Path.unlink, _zero])
def test_a_replica_with_a_lost_transaction_index_shows_no_aborted_record(
    tmp_path: Path, events: Events, clean: bool, damage: Callable[[Path], None]
) -> None:
    async def scenario() -> None:
        nodes = on_real_files(tmp_path)
        try:
            await nodes.start()
            await nodes.settled()
            await transactions(nodes, {})
            # Recovery would rebuild the index of a segment from the recovery point on.
            replica(nodes[1]).log.roll()
            await _end_and_damage(nodes, clean, damage, TRANSACTION_INDEX)
            await nodes.start(3)
            await eventually(lambda: set(described(nodes[1]).isr) == {1, 2, 3})
            assert replica(nodes[3]).log.aborted_transactions(0, 6) == [(77, 1)]
            await everywhere(nodes, 6)
            assert await read_committed(nodes, 3) == COMMITTED
        finally:
            await nodes.close()

    run(scenario())
    assert events.of("transaction_index_rebuilt")


def _rewritten(batch: bytes) -> bytes:
    """The batch of another log, with as many bytes and the same offsets."""
    other = bytearray(batch)
    other[-2] ^= 1
    other[CRC_START - 4 : CRC_START] = crc32c(bytes(other[CRC_START:])).to_bytes(4, "big")
    return bytes(other)


def test_a_segment_of_another_log_is_not_served_and_is_repaired(tmp_path: Path, events: Events) -> None:
    """Of equal name and size: checksums and offsets are right, and only the seal tells them apart."""

    async def scenario() -> None:
        nodes = on_real_files(tmp_path)
        try:
            await nodes.start()
            await nodes.settled()
            await transactions(nodes, {})
            first = replica(nodes[3]).log.segments.first
            sound = first.open_file().pread(first.size, 0)
            other = bytearray()
            for position, header in iter_batches(sound):
                other += _rewritten(sound[position : position + header.size])
            assert len(other) == len(sound)
            await _end_and_damage(nodes, True, lambda path: _replace(path, bytes(other)), LOG)
            await nodes.start(3)
            await eventually(lambda: set(described(nodes[1]).isr) == {1, 2, 3})
            log = replica(nodes[3]).log
            with pytest.raises(CorruptLog):
                log.read(0, 1 << 20, upper=6)
            await nodes[3].stages.healing.scrubber.repair_all()
            assert log.segments.first.open_file().pread(len(sound), 0) == sound
            await everywhere(nodes, 6)
            assert await read_committed(nodes, 3) == COMMITTED
        finally:
            await nodes.close()

    run(scenario())
    assert events.of("corruption_found")
