"""Moves between data directories of replicas that lead, follow, and hold the state of coordinators."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from penstock.broker.base.encrypted_disks import Damage
from penstock.broker.replica import directory_moves
from penstock.broker.replica.directory_moves import DirectoryMoves
from penstock.broker.replica.partition import Partition
from penstock.encryption.files import EncryptedFiles
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import OFFSETS_TOPIC
from penstock.storage.directory import DataDirectory
from penstock.storage.future_copy import FutureCopy
from penstock.storage.memory import MemoryFiles
from penstock.storage.moved_folders import MoveUnfinished, future_folders
from penstock.storage.recovery_report import Corruption
from penstock.wire.apis.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.broker.groups import commit_when_it_can, committed, coordinator
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC, described, make_topic, produce, replica, stored
from tests.encryption.keyring import RING

TWO_DIRECTORIES = {"log.dirs": "/a,/b", "penstock.flush": "group"}
ONE_REPLICA = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


async def move(nodes: Cluster, node: int, name: str = TOPIC, index: int = 0) -> Partition:
    """Move a replica to the other directory; the partition from there."""
    before = replica(nodes[node], name, index)
    target = "/b" if before.directory.path == "/a" else "/a"
    topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[topic])])
    (result,) = (await nodes.call(node, ALTER_REPLICA_LOG_DIRS, request)).results
    assert result.partitions[0].error_code == ErrorCode.NONE

    def is_there() -> bool:
        found = nodes[node].stages.storage.partitions.find(name, index)
        return isinstance(found, Partition) and found.directory.path == target

    await eventually(is_there)
    return replica(nodes[node], name, index)


async def produce_soon(nodes: Cluster, node: int, value: bytes) -> None:
    while (await produce(nodes, node, value)).error_code:  # noqa: ASYNC110 - a client can only retry
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("encrypted", [False, True])
def test_leader_and_followers_move_and_stay_in_sync(encrypted: bool) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3], config=TWO_DIRECTORIES)
        if encrypted:
            for node in nodes.disks:
                nodes.disks[node] = EncryptedFiles(MemoryFiles(), RING, report=Damage())
        try:
            await nodes.start()
            await nodes.settled()
            await make_topic(nodes, 1, 2, 3)
            for number in range(20):
                await produce(nodes, 1, b"%d" % number)
            epoch = described(nodes[1]).leader_epoch
            for node in (2, 1, 3):
                await move(nodes, node)
                await produce_soon(nodes, 1, b"after %d" % node)
            await eventually(lambda: all(replica(nodes[n]).log.end_offset == 23 for n in (1, 2, 3)))
            await eventually(lambda: all(replica(nodes[n]).log.high_watermark == 23 for n in (1, 2, 3)))
            assert described(nodes[1]).leader_epoch == epoch
            assert set(described(nodes[1]).isr) == {1, 2, 3}
            assert len({stored(replica(nodes[node])) for node in (1, 2, 3)}) == 1
            await nodes.kill(2)
            await nodes.start(2)
            await produce_soon(nodes, 1, b"last")
            await eventually(lambda: replica(nodes[2]).log.high_watermark == 24)
            assert stored(replica(nodes[2])) == stored(replica(nodes[1]))
        finally:
            await nodes.close()

    run(main())


def test_a_coordinator_goes_on_from_the_other_directory() -> None:
    async def main() -> None:
        async with cluster(1, config=TWO_DIRECTORIES | ONE_REPLICA) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1)
            await eventually_coordinated(nodes)
            await commit_when_it_can(nodes, 1, 7)
            await move(nodes, 1, OFFSETS_TOPIC)
            assert await committed(nodes, 1) == 7
            await commit_when_it_can(nodes, 1, 8)
            await move(nodes, 1, OFFSETS_TOPIC)
            assert await committed(nodes, 1) == 8

    run(main())


async def eventually_coordinated(nodes: Cluster) -> None:
    while (await coordinator(nodes, 1)).error_code:  # noqa: ASYNC110 - a client can only retry
        await asyncio.sleep(0.01)


def test_a_stop_in_the_middle_leaves_the_move_to_the_next_start() -> None:
    async def main() -> None:
        settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}
        async with cluster(1, config=TWO_DIRECTORIES | settings) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1, configs={"segment.bytes": str(1 << 20)})
            for _ in range(2):
                await produce(nodes, 1, b"x" * 700_000)
            source = replica(nodes[1]).directory.path
            target = "/b" if source == "/a" else "/a"
            topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[topic])])
            await nodes.call(1, ALTER_REPLICA_LOG_DIRS, request)
            await nodes.stop_in_turn(1)
            del nodes.settings[1]["replica.alter.log.dirs.io.max.bytes.per.second"]
            await nodes.start(1)
            await eventually(lambda: replica_path(nodes) == target)
            assert replica(nodes[1]).log.end_offset == 2

    run(main())


def replica_path(nodes: Cluster) -> str:
    found = nodes[1].stages.storage.partitions.find(TOPIC, 0)
    return found.directory.path if isinstance(found, Partition) else ""


class Gate:
    """Holds a method of `FutureCopy` in its worker thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.reached, self._open = Event(), Event()
        original = getattr(FutureCopy, method)

        def held(copy: FutureCopy) -> None:
            self.reached.set()
            self._open.wait()
            original(copy)

        monkeypatch.setattr(FutureCopy, method, held)

    def open(self) -> None:
        self._open.set()


async def begin_move(nodes: Cluster) -> tuple[Partition, DataDirectory]:
    """Begin to move the replica on node 1; the partition, and the other directory."""
    partition = replica(nodes[1])
    directories = nodes[1].stages.storage.partitions.directories
    (target,) = [each for each in directories if each is not partition.directory]
    await moves(nodes).request(partition, target)
    return partition, target


def moves(nodes: Cluster) -> DirectoryMoves:
    return nodes[1].stages.replication.replicas.directory_moves


def test_a_request_in_the_exchange_is_refused_and_leaves_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cluster(1, config=TWO_DIRECTORIES) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1)
            await produce(nodes, 1, b"kept")
            gate = Gate(monkeypatch, "check_complete")
            try:
                partition, target = await begin_move(nodes)
                await eventually(gate.reached.is_set)
                # It has found the replica before the exchange began.
                with pytest.raises(StorageError, match="out of service"):
                    await moves(nodes).request(partition, partition.directory)
            finally:
                gate.open()
            await eventually(lambda: replica_path(nodes) == target.path)
            assert replica(nodes[1]).log.end_offset == 1

    run(main())


def test_nothing_is_copied_before_the_folder_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cluster(1, config=TWO_DIRECTORIES) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1)
            gate = Gate(monkeypatch, "begin")
            try:
                beginning = asyncio.create_task(begin_move(nodes))
                await eventually(gate.reached.is_set)
                assert len(moves(nodes)) == 0
            finally:
                gate.open()
            _, target = await beginning
            await eventually(lambda: replica_path(nodes) == target.path)

    run(main())


def test_a_log_whose_damage_is_found_while_it_is_copied_is_repaired_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with cluster(1, config=TWO_DIRECTORIES) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1)
            await produce(nodes, 1, b"value")
            partition = replica(nodes[1])
            damage, waited = Corruption("a segment", 0, 10, 0, 1), asyncio.Event()
            missing_bytes, pause = FutureCopy.missing_bytes, DirectoryMoves._pause

            def damaged(copy: FutureCopy) -> int:
                partition.log.recovery.corruption.append(damage)
                monkeypatch.setattr(FutureCopy, "missing_bytes", missing_bytes)
                return missing_bytes(copy)

            async def paused(self: DirectoryMoves, seconds: float) -> None:
                waited.set()
                await pause(self, min(seconds, 0.01))

            monkeypatch.setattr(FutureCopy, "missing_bytes", damaged)
            monkeypatch.setattr(DirectoryMoves, "_pause", paused)
            _, target = await begin_move(nodes)
            await waited.wait()
            assert replica(nodes[1]) is partition
            partition.log.recovery.corruption.remove(damage)
            await eventually(lambda: replica_path(nodes) == target.path)

    run(main())


def test_a_move_ends_if_the_log_is_not_where_it_is_copied_from(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = FutureCopy.begin

    def begun(copy: FutureCopy) -> None:
        begin(copy)
        copy.source += "-before"

    async def main() -> None:
        async with cluster(1, config=TWO_DIRECTORIES) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, min_isr=1)
            monkeypatch.setattr(FutureCopy, "begin", begun)
            partition, target = await begin_move(nodes)
            await eventually(lambda: len(moves(nodes)) == 0)
            await moves(nodes).stop()
            assert replica(nodes[1]) is partition
            assert future_folders(nodes.disks[1], target) == []

    run(main())


def test_another_replica_leads_if_a_disk_fails_behind_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfinished(*args: object) -> None:
        raise MoveUnfinished("the disk has failed")

    async def main() -> None:
        async with cluster(3, config=TWO_DIRECTORIES) as nodes:
            await nodes.settled()
            await make_topic(nodes, 1, 2, 3)
            await produce(nodes, 1, b"value")
            monkeypatch.setattr(directory_moves, "move", unfinished)
            await begin_move(nodes)
            await eventually(lambda: described(nodes[2]).leader in (2, 3))
            assert nodes[1].stages.storage.partitions.find(TOPIC, 0) is ErrorCode.KAFKA_STORAGE_ERROR

    run(main())
