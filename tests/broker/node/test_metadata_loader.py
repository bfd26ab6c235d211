"""The image of a broker before it serves clients."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.broker.node.snapshot_files import SnapshotFiles
from penstock.metadata.snapshot import snapshot
from penstock.raft.messages import LogPoint
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.disks import Disk, on_disk
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic, read_all


def test_a_broker_is_up_only_when_its_own_metadata_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeat may be answered before it has read that it is fenced no more: clients would miss it."""
    may_read = asyncio.Event()
    late: list[Lifecycle] = []
    apply_more, start = MetadataLoader._apply_more, Lifecycle.start

    async def read_late(self: MetadataLoader) -> None:
        if late and late[0]._node.loader is self:
            await may_read.wait()
        await apply_more(self)

    def start_late(self: Lifecycle) -> None:
        late.append(self)
        start(self)

    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            await nodes.start(1, 2)
            monkeypatch.setattr(MetadataLoader, "_apply_more", read_late)
            monkeypatch.setattr(Lifecycle, "start", start_late)
            starting = asyncio.create_task(nodes.start(3))
            await eventually(lambda: bool(late) and not late[0].fenced)
            assert not (await asyncio.wait({starting}, timeout=0.05))[0]
            may_read.set()
            await starting
            reported = await nodes.call(3, METADATA, MetadataRequest(topics=[]))
            assert 3 in [broker.node_id for broker in reported.brokers]
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
        loader = broker.node.loader
        lost_id = broker.image.topics["lost"].id
        without = [each for each in snapshot(broker.image) if getattr(each, "topic_id", None) != lost_id]
        monkeypatch.setattr(SnapshotFiles, "records", lambda self, point: iter(without))

        async def install() -> None:
            point = LogPoint(1, loader.applied + 10)
            loader.installed(point)
            await loader.wait_for(point.offset)

        asyncio.run_coroutine_threadsafe(install(), running._loop).result(60)
        (directory,) = broker.partitions.directories
        (entry,) = directory.quarantine.entries()
        assert (entry.topic, entry.partitions) == ("lost", [0])
        assert "a metadata snapshot up to offset" in entry.reason
        assert directory.quarantine.held(entry) == [0]
        assert [record.value for record in read_all(client, kept)] == [b"x"]
        assert loader.doubt is None
