"""Backups of a broker, restored into the data directory of another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.archive.cuts import CutTopic
from penstock.archive.errors import ArchiveError, ArchiveRefused
from penstock.archive.sweeping import find_cut
from penstock.backup.restored_groups import Target
from penstock.backup.restoring import Restored, chosen_topics, restore_to_directory
from penstock.testing import broker
from tests.backup.clusters import (
    commit_offsets,
    committed,
    consume,
    create,
    produce,
    store_in,
    take,
    transactional,
)

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = pytest.mark.slow


def restore(archive: Path, directory: Path, *topics: str, moment_ms: int | None = None) -> Restored:
    async def run() -> Restored:
        store = store_in(archive)
        _, cut = await find_cut(store, moment_ms)
        return await restore_to_directory(store, cut, chosen_topics(cut, topics), directory, {})

    return asyncio.run(run())


def test_a_restored_broker_equals_the_source_at_the_cut(tmp_path: Path) -> None:
    """Offsets, timestamps and values; groups go on where they were; the cluster is another one."""
    with broker(data=tmp_path / "source") as running:
        address = running.bootstrap
        create(address, "orders", 2, retention_ms="-1")
        create(address, "other", 1, retention_ms="-1", cleanup_policy="compact")
        for n in range(3):
            produce(address, "orders", [b"%d-%d" % (n, m) for m in range(200)])
            take(address, tmp_path / "archive", segment_bytes=4000)
        produce(address, "orders", [b"second"], partition=1)
        produce(address, "other", [b"x"])
        commit_offsets(address, "billing", "orders", 450)
        committer = transactional(address, "copy")
        for outcome in ("commit", "abort", "open"):
            committer.begin_transaction()
            committer.produce("orders", outcome.encode(), partition=1)
            committer.flush(30)
            if outcome == "commit":
                committer.commit_transaction(30)
            elif outcome == "abort":
                committer.abort_transaction(30)
        _, cut = take(address, tmp_path / "archive")
        before = {(t, p): consume(address, t, p) for t, p in (("orders", 0), ("orders", 1), ("other", 0))}
        committer.abort_transaction(30)
        produce(address, "orders", [b"after the cut"])
    result = restore(tmp_path / "archive", tmp_path / "restored")
    assert (result.topics, result.partitions, result.groups) == (2, 3, 1)
    for _ in range(2):  # a restart finds everything in good order
        with broker(data=tmp_path / "restored") as running:
            address = running.bootstrap
            after = {(t, p): consume(address, t, p) for t, p in before}
            assert after == before
            assert [value for *_, value in before["orders", 1]][:2] == [b"second", b"commit"]
            assert committed(address, "billing", "orders") == 450
            assert running.broker.stages.cluster.image.next_producer_id >= cut.next_producer_id > 0
            # The open transaction was aborted: nothing holds readers back.
            produce(address, "orders", [b"new"], partition=1)
            assert consume(address, "orders", 1)[-1][2] == b"new"
            before["orders", 1] = consume(address, "orders", 1)
    _, again = take_of(tmp_path / "restored", tmp_path / "second")
    assert again != cut.cluster_id


def take_of(data: Path, archive: Path) -> tuple[str, str]:
    with broker(data=data) as running:
        name, cut = take(running.bootstrap, archive)
    return name, cut.cluster_id


def test_some_topics_and_an_earlier_moment(tmp_path: Path) -> None:
    with broker() as running:
        create(running.bootstrap, "a", retention_ms="-1")
        create(running.bootstrap, "b")
        produce(running.bootstrap, "a", [b"1"])
        _, first = take(running.bootstrap, tmp_path / "archive")
        produce(running.bootstrap, "a", [b"2"])
        take(running.bootstrap, tmp_path / "archive")
    restore(tmp_path / "archive", tmp_path / "data", "a", moment_ms=first.time_ms)
    with broker(data=tmp_path / "data") as running:
        assert [value for *_, value in consume(running.bootstrap, "a")] == [b"1"]
    with pytest.raises(ArchiveRefused, match="the cut has no topic c: it has a, b"):
        restore(tmp_path / "archive", tmp_path / "none", "c")
    with pytest.raises(ArchiveRefused, match="no cut at or before"):
        restore(tmp_path / "archive", tmp_path / "none", moment_ms=first.time_ms - 1)
    with pytest.raises(ArchiveRefused, match="is not empty"):
        restore(tmp_path / "archive", tmp_path / "data")


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_backup_that_cannot_be_restored_leaves_nothing(tmp_path: Path, damage: str) -> None:
    with broker() as running:
        create(running.bootstrap, "a", retention_ms="-1")
        produce(running.bootstrap, "a", [b"1"])
        take(running.bootstrap, tmp_path / "archive")
    (segment,) = (tmp_path / "archive").rglob("*.segment")
    if damage == "missing":
        segment.unlink()
    else:
        data = bytearray(segment.read_bytes())
        data[70] ^= 1
        segment.write_bytes(data)
    with pytest.raises(ArchiveError, match=r"\.segment"):
        restore(tmp_path / "archive", tmp_path / "data")
    assert not (tmp_path / "data").exists() and not (tmp_path / "data.restoring").exists()


def test_a_mirrored_topic_is_restored_as_an_ordinary_one() -> None:
    """Without its link it would be read-only for ever."""
    configs = {"penstock.link": f"west/mirroring/{'A' * 22}/orders", "retention.ms": "5"}
    topic = CutTopic(topic="orders", topic_id="x", replication_factor=1, configs=configs, partitions=())
    assert Target(topic, "orders").configs == {"retention.ms": "5"}


def test_a_tiered_topic_is_restored_without_tiered_storage(tmp_path: Path) -> None:
    tiered = {
        "remote.log.storage.system.enable": "true",
        "penstock.remote.log.address": str(tmp_path / "tier"),
    }
    with broker(config=tiered) as running:
        create(running.bootstrap, "orders", retention_ms="-1", remote_storage_enable="true")
        produce(running.bootstrap, "orders", [b"x"])
        take(running.bootstrap, tmp_path / "archive")

    restore(tmp_path / "archive", tmp_path / "restored")

    with broker(data=tmp_path / "restored") as running:
        assert [value for *_, value in consume(running.bootstrap, "orders")] == [b"x"]
        configs = running.broker.stages.cluster.image.configs
        assert [each for each in configs.values() if "retention.ms" in each] == [{"retention.ms": "-1"}]
