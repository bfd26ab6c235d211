"""Logs that were changed while their broker was stopped cleanly: no such replica destroys another's records.

Each test stops all brokers in order, changes the disk of the one that stopped last, which therefore is the
only one in the ISR, and starts all again. Every acknowledged record has to be on every replica in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from penstock.model.errors import ErrorCode
from penstock.ports import Files
from penstock.storage.memory import Directory, MemoryFiles
from tests.broker.events import Events
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC as NAME
from tests.broker.replication import described, make_topic, produce, replica
from tests.broker.stopped_replicas import stopped, values

PATH = f"/data/topics/{NAME}/partition-0"


def copied(files: Files, path: str) -> Directory:
    """A copy of a folder, as a backup or a snapshot of its volume would have it."""
    assert isinstance(files, MemoryFiles)
    return deepcopy(files._directory(path))


def put_back(files: Files, path: str, copy: Directory) -> None:
    assert isinstance(files, MemoryFiles)
    parent, name = files._place(path)
    parent[name] = copy


async def written(nodes: Cluster, first: int, last: int, name: str = NAME) -> None:
    """Produce the numbers from `first` to before `last`, a segment for every four."""
    for number in range(first, last):
        leader = described(nodes[1], name).leader
        assert (await produce(nodes, leader, b"%d" % number, name=name)).error_code == ErrorCode.NONE
        if number % 4 == 3:
            replica(nodes[1], name).log.roll()


async def complete(nodes: Cluster, count: int, name: str = NAME) -> None:
    """Return when all replicas are in sync; they must have all `count` records then."""
    controller = await nodes.settled()
    await eventually(lambda: sorted(described(controller, name).isr) == [1, 2, 3])
    for node in (1, 2, 3):
        await eventually(lambda node=node: replica(nodes[node], name).log.end_offset >= count)
        assert not replica(nodes[node], name).log.recovery.corruption
        assert values(replica(nodes[node], name)) == [b"%d" % number for number in range(count)]


def _after_clean_stop(damage: Callable[[Files], None], events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await written(nodes, 0, 22)
            await stopped(nodes)
            damage(nodes.disks[1])
            await nodes.start()
            await complete(nodes, 22)

    run(main())
    ((level, fields),) = events.of("replica_unclean")
    assert (level, fields["topic"], fields["partition"]) == ("error", NAME, 0)


def test_the_top_segment_was_removed(events: Events) -> None:
    def damage(files: Files) -> None:
        last = max(name for name in files.listdir(PATH) if name.endswith(".log"))
        for name in files.listdir(PATH):
            if name.startswith(last[:20]):
                files.remove(f"{PATH}/{name}")

    _after_clean_stop(damage, events)


def test_the_tail_of_the_last_segment_was_cut(events: Events) -> None:
    def damage(files: Files) -> None:
        last = max(name for name in files.listdir(PATH) if name.endswith(".log"))
        file = files.open(f"{PATH}/{last}")
        file.truncate(file.size() // 2)

    _after_clean_stop(damage, events)


def test_the_topics_folder_was_removed(events: Events) -> None:
    _after_clean_stop(lambda files: files.rmtree(f"/data/topics/{NAME}"), events)


def test_a_partition_folder_was_rolled_back_to_an_older_clean_copy(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await written(nodes, 0, 8)
            await nodes.stop(1)
            old = copied(nodes.disks[1], PATH)
            await nodes.start(1)
            controller = await nodes.settled()
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            await written(nodes, 8, 22)
            await stopped(nodes)
            put_back(nodes.disks[1], PATH, old)
            await nodes.start()
            await complete(nodes, 22)

    run(main())
    assert [fields["topic"] for _, fields in events.of("replica_unclean")] == [NAME]


def test_one_of_two_data_directories_was_rolled_back_to_an_older_clean_copy(events: Events) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        nodes.settings[1]["log.dirs"] = "/one,/two"
        try:
            await nodes.start()
            for name in ("a", "b", "c"):
                await make_topic(nodes, 1, 2, 3, name=name)
            name = next(n for n in ("a", "b", "c") if replica(nodes[1], n).directory.path == "/two")
            await written(nodes, 0, 8, name)
            await nodes.stop(1)
            old = copied(nodes.disks[1], "/two")
            await nodes.start(1)
            controller = await nodes.settled()
            await eventually(lambda: sorted(described(controller, name).isr) == [1, 2, 3])
            await written(nodes, 8, 22, name)
            await stopped(nodes)
            put_back(nodes.disks[1], "/two", old)
            await nodes.start()
            assert nodes[1].stages.storage.partitions.previous_registration.epoch == -1
            await complete(nodes, 22, name)
        finally:
            await nodes.close()

    run(main())
    ((level, fields),) = events.of("manifests_disagree")
    assert level == "error" and sorted(fields["broker_epochs"]) == ["/one", "/two"]


def test_nothing_is_unclean_after_clean_stops(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for round_ in range(3):
                await written(nodes, 5 * round_, 5 * round_ + 5)
                await stopped(nodes)
                await nodes.start()
                assert nodes[1].stages.storage.partitions.previous_registration.epoch >= 0
                await complete(nodes, 5 * round_ + 5)

    run(main())
    assert not events.of("replica_unclean") + events.of("manifests_disagree") + events.of("manifest_refused")


def test_a_damaged_manifest_is_refused_and_nothing_is_lost(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"kept")).error_code == ErrorCode.NONE
            await nodes.stop(3)
            manifest = nodes.disks[3].read("/data/clean-shutdown")
            nodes.disks[3].write_atomic("/data/clean-shutdown", manifest.replace(b"logs", b"loGs"))
            await nodes.start(3)
            ((_, fields),) = events.of("manifest_refused")
            assert fields["reason"] == "it is damaged"
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            assert values(replica(nodes[3])) == [b"kept"]

    run(main())
