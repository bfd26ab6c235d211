"""The image of a broker before it serves clients."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.broker.node.snapshot_files import SnapshotFiles
from penstock.metadata.snapshot import snapshot
from penstock.model.errors import PenstockError
from penstock.raft.messages import LogPoint
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.disks import Disk, on_disk
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic, read_all

#: the broker that reads its metadata late
LATE = 3


@pytest.fixture
def may_read(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, list[Lifecycle]]:
    """The next broker that registers reads no metadata until the event; its lifecycle is in the list."""
    may_read = asyncio.Event()
    late: list[Lifecycle] = []
    apply_more, start = MetadataLoader._apply_more, Lifecycle.start

    async def read_late(self: MetadataLoader) -> None:
        if late and late[0]._node.loader is self:
            await may_read.wait()
        await apply_more(self)

    def start_late(self: Lifecycle) -> None:
        if self._node.node_id == LATE:
            late.append(self)
        start(self)

    monkeypatch.setattr(MetadataLoader, "_apply_more", read_late)
    monkeypatch.setattr(Lifecycle, "start", start_late)
    return may_read, late


def test_a_broker_is_up_once_its_own_metadata_shows_it_unfenced(
    may_read: tuple[asyncio.Event, list[Lifecycle]],
) -> None:
    """Its heartbeat may be answered before it has read that it is fenced no more: clients would miss it."""
    reads, late = may_read

    async def main() -> None:
        nodes = Cluster([1, 2, LATE])
        try:
            await nodes.start(1, 2)
            starting = asyncio.create_task(nodes.start(LATE))
            await eventually(lambda: bool(late) and not late[0].fenced)
            assert not (await asyncio.wait({starting}, timeout=0.05))[0]
            reads.set()
            await starting
            reported = await nodes.call(LATE, METADATA, MetadataRequest(topics=[]))
            assert LATE in [broker.node_id for broker in reported.brokers]
        finally:
            await nodes.close()

    run(main())


def test_a_broker_whose_quorum_fails_before_it_is_up_ends_its_start(
    may_read: tuple[asyncio.Event, list[Lifecycle]],
) -> None:
    """It is registered, and its metadata would never say that it is fenced no more."""
    _, late = may_read

    async def main() -> None:
        nodes = Cluster([1, 2, LATE])
        try:
            await nodes.start(1, 2)
            starting = asyncio.create_task(nodes.start(LATE))
            await eventually(lambda: bool(late) and not late[0].fenced)
            late[0]._node.quorum.fail(PenstockError("the voters went back to older data"))
            with pytest.raises(PenstockError, match="older data"):
                await starting
        finally:
            await nodes.close()

    run(main())


def test_a_topic_that_a_snapshot_lacks_is_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record says that it was deleted: the snapshot may be that of a quorum with another history."""
    with on_disk(Disk()) as running, RawClient(running.bootstrap) as client:
        lost, kept = create_topic(client, "lost"), create_topic(client, "kept")
        for topic in (lost, kept):
            append(client, topic, b"x")
        broker = running.broker
        loader = broker.stages.cluster.node.loader
        lost_id = broker.stages.cluster.image.topics["lost"].id
        without = [
            each
            for each in snapshot(broker.stages.cluster.image)
            if getattr(each, "topic_id", None) != lost_id
        ]
        monkeypatch.setattr(SnapshotFiles, "records", lambda self, point: iter(without))

        async def install() -> None:
            point = LogPoint(1, loader.applied + 10)
            loader.installed(point)
            await loader.wait_for(point.offset)

        asyncio.run_coroutine_threadsafe(install(), running._loop).result(60)
        (directory,) = broker.stages.storage.partitions.directories
        (entry,) = directory.quarantine.entries()
        assert (entry.topic, entry.partitions) == ("lost", [0])
        assert "a metadata snapshot up to offset" in entry.reason
        assert directory.quarantine.held(entry) == [0]
        assert [record.value for record in read_all(client, kept)] == [b"x"]
        assert loader.doubt is None
