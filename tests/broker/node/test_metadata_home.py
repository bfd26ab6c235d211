"""Opening the metadata log, damaged or not."""

from __future__ import annotations

import pytest

from penstock.broker.node.metadata_home import MetadataRefused
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC
from penstock.storage.manifest import Manifest
from tests.broker.events import Events
from tests.broker.metadata_damage import METADATA, SEGMENT, disk, flip, tree
from tests.broker.nodes import Cluster, cluster, run
from tests.broker.topics import create


def test_a_broker_alone_refuses_damaged_metadata_and_touches_nothing() -> None:
    async def main() -> None:
        nodes = Cluster([1])
        try:
            await nodes.start()
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            await nodes.stop()
            sound = disk(nodes, 1).read(SEGMENT)
            flip(disk(nodes, 1))
            before = tree(disk(nodes, 1), "/data")
            with pytest.raises(MetadataRefused, match=r"\.log is damaged at byte \d+, offset \d+: .*backup"):
                await nodes.start()
            assert tree(disk(nodes, 1), "/data") == before
            disk(nodes, 1).write_atomic(SEGMENT, sound)
            await nodes.start()
            assert "orders" in nodes[1].stages.cluster.image.topics
            assert nodes[1].stages.storage.partitions.previous_registration.epoch >= 0, (
                "the shutdown still counts as clean"
            )
        finally:
            await nodes.close()

    run(main())


def test_damaged_leader_epochs_are_read_from_the_log(events: Events) -> None:
    path = f"{METADATA}/leader-epoch-checkpoint"

    async def main() -> None:
        async with cluster(1) as nodes:
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            await nodes.stop_in_turn(1)
            (version, *_) = disk(nodes, 1).read(path).splitlines(keepends=True)
            disk(nodes, 1).write_atomic(path, version + b"1\n9 0\n")
            await nodes.start(1)
            assert "orders" in nodes[1].stages.cluster.image.topics
            ((level, fields),) = events.of("checkpoint_damaged")
            assert (level, fields["path"]) == ("warning", path)
            await nodes.stop_in_turn(1)
            assert b"9 0" not in disk(nodes, 1).read(path).splitlines()
            await nodes.start(1)
            assert len(events.of("checkpoint_damaged")) == 1

    run(main())


@pytest.mark.parametrize("start", [3, 10_000], ids=["within the log", "behind its end"])
def test_no_file_beside_the_log_moves_the_log_start_of_the_metadata(start: int) -> None:
    """The node ended because it could not read offset 0, or its metadata log was set aside."""
    manifest = "/data/clean-shutdown"

    async def main() -> None:
        async with cluster(1) as nodes:
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            await nodes.stop_in_turn(1)
            found = Manifest.decode(disk(nodes, 1).read(manifest))
            logs = [
                log._replace(log_start_offset=start) if log.topic == METADATA_TOPIC else log
                for log in found.logs.values()
            ]
            forged = Manifest.of(found.directory_id, found.registration, logs)
            disk(nodes, 1).write_atomic(manifest, forged.encode())
            await nodes.start(1)
            assert "orders" in nodes[1].stages.cluster.image.topics

    run(main())
