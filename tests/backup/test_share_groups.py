"""Share groups in cuts, and in what is restored from them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.archive.errors import ArchiveRefused
from penstock.archive.sweeping import find_cut
from penstock.backup.restoring import chosen_topics, restore_to_directory
from penstock.backup.share_groups import read_share_groups
from penstock.backup.source import Cluster
from penstock.broker.base.system_ports import SystemRng
from penstock.client import Queue
from penstock.testing import broker
from tests.backup.clusters import commit_offsets, create, produce, restore_running, store_in, take

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = pytest.mark.slow

EARLIEST = {"share.auto.offset.reset": "earliest"}


def consumed(bootstrap: str, topic: str, count: int, group: str = "workers") -> list[bytes]:
    """The values of messages that a member accepts."""

    async def receive() -> list[bytes]:
        found: list[bytes] = []
        async with Queue(
            bootstrap, topic, group=group, acknowledgement="explicit", group_config=EARLIEST
        ) as queue:
            while len(found) < count:
                message = await anext(queue)
                message.accept()
                found.append(message.value or b"")
        return found

    return asyncio.run(asyncio.wait_for(receive(), 60))


def starts(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    async def read() -> dict[tuple[str, int], int]:
        cluster = Cluster(bootstrap, SystemRng())
        try:
            await cluster.refresh()
            found = await read_share_groups(cluster, [group])
        finally:
            cluster.close()
        return {(each.topic, each.partition): each.offset for each in found[0].offsets} if found else {}

    return asyncio.run(read())


def test_share_groups_go_on_at_their_start_offsets(tmp_path: Path) -> None:
    """Into a running cluster, also under new names, and into a data directory."""
    archive = tmp_path / "archive"
    with broker() as running:
        address = running.bootstrap
        create(address, "jobs", retention_ms="-1")
        produce(address, "jobs", [b"%d" % n for n in range(10)])
        assert consumed(address, "jobs", 4) == [b"0", b"1", b"2", b"3"]
        commit_offsets(address, "billing", "jobs", 7)
        _, cut = take(address, archive)
        (group,) = cut.share_groups
        assert (group.group, [each.offset for each in group.offsets]) == ("workers", [4])
        assert [each.group for each in cut.groups] == ["billing"]
    with broker() as running:
        address = running.bootstrap
        into = restore_running(archive, address, "jobs=work", groups=["workers=crew"])
        assert into.groups == 1
        assert starts(address, "crew") == {("work", 0): 4}
        assert consumed(address, "work", 6, "crew") == [b"%d" % n for n in range(4, 10)]
        create(address, "other")
        commit_offsets(address, "workers", "other", 0)
        with pytest.raises(ArchiveRefused, match="workers is no share group in the cluster"):
            restore_running(archive, address, "jobs")
        with pytest.raises(ArchiveRefused, match="billing is a share group in the cluster"):
            produce(address, "other", [b"x"])
            consumed(address, "other", 1, "billing")
            restore_running(archive, address, "jobs", groups=["billing"])

    async def to_directory() -> None:
        store = store_in(archive)
        _, found = await find_cut(store, None)
        await restore_to_directory(store, found, chosen_topics(found, ()), tmp_path / "data", {})

    asyncio.run(to_directory())
    with broker(data=tmp_path / "data") as running:
        assert starts(running.bootstrap, "workers") == {("jobs", 0): 4}
        assert consumed(running.bootstrap, "jobs", 6) == [b"%d" % n for n in range(4, 10)]
