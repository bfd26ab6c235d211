"""Brokers that free their disks: what only the archive has is read from there, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.archive.chain import ManifestChain
from penstock.archive.manifests import trimmed
from penstock.archive.names import TIER
from penstock.archive.objects import read_root
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import open_store
from penstock.storage.log import Log
from penstock.testing import broker, cluster
from penstock.testing.brokers import BrokerThread
from penstock.testing.clusters import Cluster
from tests.broker.app.tiered_topics import TIERED, copied_until, newest, owners, tiered
from tests.broker.configs import SET, TOPIC, alter
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    Topic,
    append,
    create_topic,
    delete_before,
    describe_topic,
    fetch,
    list_offset,
    read_all,
    request_topic,
)
from tests.cli.running import run_here
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -4, -5, -6
FREED = {**TIERED, "local.retention.bytes": "0"}
COUNT = 40


def settings(archive: Path) -> dict[str, str]:
    return {**tiered(archive), "remote.fetch.max.wait.ms": "30000", "replica.fetch.wait.max.ms": "50"}


def fill(client: RawClient, topic: Topic, count: int = COUNT) -> None:
    for n in range(count):
        append(client, topic, b"%d" % n * 60)


def log_of(running: BrokerThread, topic: Topic) -> Log:
    found = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert isinstance(found, Partition)
    return found.log


def values(client: RawClient, topic: Topic, offset: int = 0) -> list[bytes | None]:
    return [each.value for each in read_all(client, topic, offset)]


EXPECTED = [b"%d" % n * 60 for n in range(COUNT)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def running(archive: Path) -> Iterator[BrokerThread]:
    with broker(config=settings(archive)) as found:
        yield found


def freed_topic(running: BrokerThread, client: RawClient) -> Topic:
    """A topic of which only the archive has the sealed segments: no copy and no deletion is under way."""
    topic = create_topic(client, configs=FREED)
    fill(client, topic, 10)
    # So that the archive has several objects.
    eventually(lambda: list_offset(client, topic, LATEST_TIERED).offset >= 5)
    for n in range(10, COUNT):
        append(client, topic, b"%d" % n * 60)
    assert sealed(running, topic) > COUNT // 2
    eventually(lambda: log_of(running, topic).segments.first.base_offset == sealed(running, topic))
    return topic


def test_freed_records_are_read_from_the_archive(running: BrokerThread) -> None:
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        log = log_of(running, topic)

        assert values(client, topic) == EXPECTED
        assert values(client, topic, 7) == EXPECTED[7:]

        assert (log.log_start_offset, log.size < 1500) == (0, True)
        assert list_offset(client, topic, EARLIEST).offset == 0
        local = list_offset(client, topic, EARLIEST_LOCAL)
        assert (local.offset, local.leader_epoch) == (log.local_log_start_offset, 0)
        assert list_offset(client, topic, LATEST_TIERED).offset >= local.offset - 1
        first = records_time(client, topic, 3)
        assert list_offset(client, topic, first).offset <= 3
        assert running.broker.stages.storage.metrics.remote.requests > 0


def records_time(client: RawClient, topic: Topic, offset: int) -> int:
    return read_all(client, topic, offset)[0].timestamp


def test_a_restart_keeps_the_local_start(archive: Path, tmp_path: Path) -> None:
    with broker(config=settings(archive), data=tmp_path / "data") as running:
        with RawClient(running.bootstrap) as client:
            topic = freed_topic(running, client)
            local = log_of(running, topic).local_log_start_offset
        for end in (running.kill, running.stop):
            end()
            running.start()
            with RawClient(running.bootstrap) as client:
                log = log_of(running, topic)
                assert log.local_log_start_offset >= local and not log.recovery.corruption
                assert values(client, topic) == EXPECTED


def test_metrics_show_the_sizes_of_both_tiers(archive: Path) -> None:
    local = "penstock_partition_local_log_start_offset"
    with (
        broker(config={**settings(archive), **MONITORED}) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic, plain = freed_topic(running, client), create_topic(client)
        monitor = running.broker.serving.monitor
        assert monitor is not None
        found = scrape(monitor.port)
        start = found.value(local, topic=topic.name, partition=0)
        assert 0 < start <= log_of(running, topic).local_log_start_offset
        assert found.value("penstock_partition_log_start_offset", topic=topic.name, partition=0) == 0
        size = "penstock_remote_log_size_bytes"
        # The next survey counts what was copied last.
        eventually(lambda: scrape(monitor.port).value(size, topic=topic.name) > 1000)
        assert plain.name not in {each["topic"] for each in found.labels(local)}


def test_tiered_storage_is_verified_from_its_address(
    running: BrokerThread, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify = ("backup", "verify", "--tiered", str(archive), "--json")
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
    assert run_here(*verify) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topic"], row["ok"], row["segments"] > 1) == (topic.name, "yes", True)
    first = min(archive.rglob("*.segment"))
    data = first.read_bytes()
    first.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])

    assert run_here(*verify) == 1

    shown = capsys.readouterr()
    assert first.name in shown.out and "1 of 1 partitions cannot be read from tiered storage" in shown.err


def test_a_lost_archive_is_an_error_and_no_reset(running: BrokerThread, archive: Path) -> None:
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        shutil.rmtree(archive)
        before = log_of(running, topic).local_log_start_offset

        answer = fetch(client, topic, 0)

        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert values(client, topic, before) == EXPECTED[before:]
        append(client, topic, b"hot")
        stats = running.broker.stages.storage.metrics.copies
        eventually(lambda: stats.available is False)
        fill(client, topic, 10)
        assert log_of(running, topic).local_log_start_offset == before
        assert not (archive / "archive.json").exists(), "a new archive would hide that the old one is gone"


def test_an_archive_that_was_rolled_back_suspends_the_deletion(running: BrokerThread, archive: Path) -> None:
    with RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=FREED)
        fill(client, topic, 10)
        eventually(lambda: copied_until(archive) > 5)
        manifests = sorted(archive.glob("topics/*/*/0/tier/*"))
        fill(client, topic, 30)
        eventually(lambda: log_of(running, topic).segments.first.base_offset > COUNT // 2)
        alter(
            client,
            TOPIC,
            topic.name,
            ("remote.log.copy.disable", SET, "true"),
            ("local.retention.bytes", SET, "-2"),
        )
        eventually(lambda: log_of(running, topic).config.remote_log_copy_disable)

        for each in set(archive.glob("topics/*/*/0/tier/*")) - set(manifests):
            each.unlink()

        stats = running.broker.stages.storage.metrics.copies
        alter(
            client,
            TOPIC,
            topic.name,
            ("remote.log.copy.disable", SET, "false"),
            ("local.retention.bytes", SET, "0"),
        )
        eventually(lambda: stats.total().suspended == 1)
        assert values(client, topic, log_of(running, topic).local_log_start_offset)


def test_leaders_copy_segments_again_that_a_store_has_lost(running: BrokerThread, archive: Path) -> None:
    """Without new records: a remembered end of the archive would leave them on this disk only."""
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        set_local(client, topic, "-2")
        manifests = set(archive.glob("topics/*/*/0/tier/*"))
        before = copied_until(archive)
        for n in range(20):
            append(client, topic, b"more %d" % n)
            eventually(lambda: list_offset(client, topic, EARLIEST_PENDING).offset >= sealed(running, topic))
        assert copied_until(archive) > before + 1
        for each in set(archive.glob("topics/*/*/0/tier/*")) - manifests:
            each.unlink()
        assert copied_until(archive) == before

        set_local(client, topic, "0")

        eventually(lambda: log_of(running, topic).segments.first.base_offset == sealed(running, topic))
        assert running.broker.stages.storage.metrics.copies.total().suspended == 0
        assert len(values(client, topic)) == COUNT + 20


def set_local(client: RawClient, topic: Topic, retention: str) -> None:
    alter(client, TOPIC, topic.name, ("local.retention.bytes", SET, retention))


def sealed(running: BrokerThread, topic: Topic) -> int:
    return log_of(running, topic).segments.active.base_offset


def test_deleted_records_and_retention_by_size_reach_into_the_archive(
    running: BrokerThread, archive: Path
) -> None:
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        log = log_of(running, topic)

        assert delete_before(client, topic, 4).low_watermark == 4

        assert (log.log_start_offset, log.local_log_start_offset > 4) == (4, True)
        assert fetch(client, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(client, topic, 4) == EXPECTED[4:]

        alter(client, TOPIC, topic.name, ("retention.bytes", SET, "2000"))

        eventually(lambda: 4 < log.log_start_offset < COUNT)
        eventually(lambda: (found := newest(archive)) is not None and found.base_offset > 4)
        start = log.log_start_offset
        assert values(client, topic, start) == EXPECTED[start:]


def test_a_topic_that_is_not_tiered_any_more_starts_at_its_local_records(running: BrokerThread) -> None:
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        off = ("remote.storage.enable", SET, "false"), ("remote.log.delete.on.disable", SET, "true")
        assert alter(client, TOPIC, topic.name, *off)[0] == ErrorCode.NONE

        log = log_of(running, topic)
        eventually(lambda: log.log_start_offset == log.local_log_start_offset)
        start = list_offset(client, topic, EARLIEST).offset
        assert start > 0
        assert values(client, topic, start) == EXPECTED[start:]


def log_in(running: Cluster, node: int, topic: Topic) -> Log:
    found = running._node(node).broker.stages.storage.partitions.find(topic.name, 0)
    assert isinstance(found, Partition)
    return found.log


def test_a_follower_starts_over_behind_the_archive(archive: Path) -> None:
    with cluster(3, config=settings(archive)) as running:
        with RawClient(running.address(1)) as client:
            assert not request_topic(client, "orders", 1, FREED, replication_factor=3).error_code
            topic = Topic("orders", TopicId(describe_topic(client, "orders").topic_id))
        running.wait_for_isr("orders")
        leader = running.wait_for_leader("orders")
        absent, third = [each for each in running.ids if each != leader]
        running.stop(absent)
        running.wait_until(lambda: running.leader("orders") == leader)
        with RawClient(running.address(leader)) as client:
            fill(client, topic)
        logs = [log_in(running, node, topic) for node in (leader, third)]
        running.wait_until(lambda: all(each.segments.first.base_offset > COUNT // 2 for each in logs))

        running.start(absent)

        running.wait_for_isr("orders")
        log = log_in(running, absent, topic)
        assert log.log_start_offset == 0 and log.local_log_start_offset > COUNT // 2
        assert log.leader_epochs.epoch_of(0) == 0
        running.kill(leader)
        running.wait_until(lambda: running.leader("orders") not in (None, leader))
        with RawClient(running.address(running.wait_for_leader("orders"))) as client:
            assert values(client, topic) == EXPECTED


def test_an_archive_of_another_history_is_not_taken_for_the_log(archive: Path, tmp_path: Path) -> None:
    """The disk comes back from an earlier copy: offsets and leader epochs repeat, and the records do not."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with broker(data=data, config=settings(archive)) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs={**FREED, "local.retention.bytes": "-2"})
        fill(client, topic, 10)
        eventually(lambda: copied_until(archive) == sealed(running, topic))
    shutil.copytree(data, copy)
    with broker(data=data, config=settings(archive)) as running, RawClient(running.bootstrap) as client:
        fill(client, topic, 20)
        eventually(lambda: copied_until(archive) == sealed(running, topic) > 20)
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    with broker(data=data, config=settings(archive)) as running, RawClient(running.bootstrap) as client:
        stats = running.broker.stages.storage.metrics.copies
        for n in range(30):
            append(client, topic, b"other %d" % n * 10)
        before = copied_until(archive)
        set_local(client, topic, "0")

        eventually(lambda: stats.total().errors > 0)

        assert values(client, topic)[10:] == [b"other %d" % n * 10 for n in range(30)]
        assert log_of(running, topic).local_log_start_offset <= 10
        assert copied_until(archive) == before


def test_an_archive_that_was_released_by_others_keeps_its_log_start(
    running: BrokerThread, archive: Path
) -> None:
    """A clone of the cluster has deleted its topic: the objects are still there, without names."""
    with RawClient(running.bootstrap) as client:
        topic = freed_topic(running, client)
        store, clock = open_store(parse_address(str(archive))), SystemClock()
        (owner,) = owners(archive)

        async def release_all() -> None:
            root = await read_root(store)
            chain = ManifestChain(store, root.id, owner, TIER, SystemRng(), clock)
            manifest = await chain.load()
            assert manifest is not None
            await chain.advance(trimmed(manifest, manifest.next_offset), 0)

        asyncio.run(release_all())

        stats = running.broker.stages.storage.metrics.copies
        fill(client, topic, 20)
        eventually(lambda: stats.total().suspended == 1 and stats.total().errors > 0)
        assert log_of(running, topic).log_start_offset == 0
        found = newest(archive)
        assert found is not None and not found.segments


def test_an_archive_that_ends_below_an_unexplained_log_start_suspends_the_deletion(
    archive: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with broker(data=data, config=settings(archive)) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=FREED)
        fill(client, topic, 10)
        eventually(lambda: copied_until(archive) > 5)
        manifests = set(archive.glob("topics/*/*/0/tier/*"))
        fill(client, topic, 30)
        eventually(lambda: log_of(running, topic).segments.first.base_offset > COUNT // 2)
    for each in [*data.glob("*checkpoint*"), *data.glob("*clean*"), *data.glob("*manifest*")]:
        each.unlink()
    for lost in set(archive.glob("topics/*/*/0/tier/*")) - manifests:
        lost.unlink()

    with broker(data=data, config=settings(archive)) as running:
        stats = running.broker.stages.storage.metrics.copies
        eventually(lambda: stats.total().suspended == 1)
        log = log_of(running, topic)
        assert log.explained_start < log.log_start_offset
