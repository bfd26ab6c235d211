"""The image of a broker before it serves clients."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.nodes import Cluster, eventually, run


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
