"""Backups that are served without a restore: by clients of two libraries, with transactions and groups."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from penstock.archive.errors import ArchiveRefused
from penstock.client import Queue
from penstock.testing import broker
from tests.backup.clusters import commit_offsets, committed, consume, create, produce, take, transactional
from tests.backup.stores import s3_here
from tests.cli.running import run_here

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000
Reads = dict[tuple[str, int, str], list[tuple[int, int, bytes]]]


def tree(folder: Path) -> dict[str, str]:
    """The content of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def reads(bootstrap: str, topics: dict[str, int]) -> Reads:
    return {
        (topic, n, isolation): consume(bootstrap, topic, n, isolation)
        for topic, count in topics.items()
        for n in range(count)
        for isolation in ("read_committed", "read_uncommitted")
    }


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Reads, datetime]]:
    """An archive with two cuts, what consumers read at the second one, and the time of the first one."""
    archive = tmp_path_factory.mktemp("archive")
    with broker() as running:
        address = running.bootstrap
        create(address, "orders", 2, retention_ms="-1")
        create(address, "state", 1, cleanup_policy="compact")
        create(address, "empty", 1)
        produce(address, "orders", [b"%d" % n * 50 for n in range(500)])
        commit_offsets(address, "billing", "orders", 123)
        _, first = take(address, archive, segment_bytes=10_000)
        produce(address, "orders", [b"second %d" % n for n in range(300)])
        produce(address, "state", [b"x", b"y"])
        committer = transactional(address, "copy")
        for n, outcome in enumerate(["commit", "abort", "commit", "abort", "open"]):
            committer.begin_transaction()
            for partition in (0, 1):
                committer.produce("orders", b"%s %d" % (outcome.encode(), n), partition=partition)
            committer.flush(30)
            if outcome == "commit":
                committer.commit_transaction(30)
            elif outcome == "abort":
                committer.abort_transaction(30)
            produce(address, "orders", [b"between %d" % n], partition=1)
        commit_offsets(address, "billing", "orders", 700)
        take(address, archive, segment_bytes=10_000)
        expected = reads(address, {"orders": 2, "state": 1, "empty": 1})
        committer.abort_transaction(30)
        produce(address, "orders", [b"after the cut"] * 20)
    yield archive, expected, datetime.fromtimestamp(first.time_ms / 1000, UTC)


def test_consumers_read_at_the_old_offsets_and_nothing_is_written(
    backup: tuple[Path, Reads, datetime],
) -> None:
    archive, expected, _ = backup
    before = tree(archive)
    with broker(mount=archive) as mounted:
        found = reads(mounted.bootstrap, {"orders": 2, "state": 1, "empty": 1})
        for (topic, n, isolation), records in expected.items():
            if isolation == "read_committed" and topic == "orders":
                # Readers of the source could not pass the open transaction. Here it is aborted.
                behind = records[-1][0] if records else -1
                assert [each for each in found[topic, n, isolation] if each[0] <= behind] == records
                assert not any(
                    b"open" in value or b"abort" in value for *_, value in found[topic, n, isolation]
                )
            else:
                assert found[topic, n, isolation] == records, (topic, n, isolation)
        assert [value for *_, value in found["orders", 1, "read_committed"]][-1] == b"between 4"
        assert committed(mounted.bootstrap, "billing", "orders") == 700
        stats = mounted.broker.stages.storage.metrics.remote
        assert stats.requests > 2 and stats.bytes_read >= stats.cached_bytes > 0 and not stats.errors
    assert tree(archive) == before


def test_an_earlier_moment_and_a_restart(backup: tuple[Path, Reads, datetime]) -> None:
    archive, expected, first = backup
    with broker(mount=archive, at=first) as mounted:
        for _ in range(2):
            records = consume(mounted.bootstrap, "orders", 0)
            assert records == expected["orders", 0, "read_uncommitted"][:500]
            assert committed(mounted.bootstrap, "billing", "orders") == 123
            mounted.restart()
    with (
        pytest.raises(ArchiveRefused, match="no cut at or before"),
        broker(mount=archive, at=datetime(2020, 1, 1, tzinfo=UTC)),
    ):
        pass


def test_offsets_are_found_by_time(backup: tuple[Path, Reads, datetime]) -> None:
    archive, _, _ = backup
    with broker(mount=archive) as mounted:
        admin = AdminClient({"bootstrap.servers": mounted.bootstrap})

        def offset(spec: OffsetSpec) -> int:
            found = admin.list_offsets({TopicPartition("orders", 0): spec})
            return int(next(iter(found.values())).result(30).offset)

        assert offset(OffsetSpec.earliest()) == 0
        assert offset(OffsetSpec.for_timestamp(START_MS + 137)) == 137
        assert offset(OffsetSpec.for_timestamp(START_MS + 499)) == 499
        latest = offset(OffsetSpec.latest())
        assert latest == 500 + 300 + 10, "five transactions of a record and a marker"
        assert 800 <= offset(OffsetSpec.max_timestamp()) < latest
        assert offset(OffsetSpec.for_timestamp(int(time.time() * 1000) + 60_000)) == -1


def test_a_group_goes_on_where_it_was_and_commits_in_memory(backup: tuple[Path, Reads, datetime]) -> None:
    archive, expected, _ = backup
    with broker(mount=archive) as mounted:
        settings = {
            "bootstrap.servers": mounted.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe(["orders"])
            found: list[tuple[int, int, bytes]] = []
            wanted = [each for each in expected["orders", 0, "read_uncommitted"] if each[0] >= 700]
            while len(found) < len(wanted):
                message = consumer.poll(30)
                assert message is not None and message.error() is None
                if message.partition() == 0:
                    found.append((message.offset(), message.timestamp()[1], message.value()))
            assert found == wanted
            consumer.commit(asynchronous=False)
        assert committed(mounted.bootstrap, "billing", "orders") > 800


def test_changes_of_topics_are_refused(backup: tuple[Path, Reads, datetime]) -> None:
    archive, _, _ = backup
    with broker(mount=archive) as mounted:
        reports: list[str] = []
        for idempotent in (False, True):
            producer = Producer({"bootstrap.servers": mounted.bootstrap, "enable.idempotence": idempotent})
            producer.produce("orders", b"no", on_delivery=lambda error, _: reports.append(error.name()))
            assert producer.flush(30) == 0
        assert reports == ["POLICY_VIOLATION"] * 2
        admin = AdminClient({"bootstrap.servers": mounted.bootstrap})
        change = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        retention = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
        for futures in (
            admin.create_topics([NewTopic("new", 1, 1)]),
            admin.delete_topics(["orders"]),
            admin.create_partitions([NewPartitions("orders", 5)]),
            admin.incremental_alter_configs([retention]),
            admin.delete_records([TopicPartition("orders", 0, 10)]),
        ):
            for future in futures.values():
                with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
                    future.result(30)
        transaction = transactional(mounted.bootstrap, "writer")
        transaction.begin_transaction()
        transaction.produce("orders", b"no")
        transaction.flush(10)
        with pytest.raises(KafkaException):
            transaction.commit_transaction(10)
        assert len(consume(mounted.bootstrap, "orders", 0)) > 800


def test_share_groups_read_a_mounted_backup(backup: tuple[Path, Reads, datetime]) -> None:
    archive, expected, _ = backup
    wanted = [value for *_, value in expected["orders", 0, "read_uncommitted"][:500]]

    async def consumed(bootstrap: str) -> list[bytes]:
        found: list[bytes] = []
        async with Queue(bootstrap, "orders", group="workers") as queue:
            async for message in queue:
                if message.partition == 0:
                    found.append(message.value)
                if len(found) >= 500:
                    return found
        raise AssertionError("the queue ends by itself")

    with broker(mount=archive) as mounted:
        found = asyncio.run(asyncio.wait_for(consumed(mounted.bootstrap), 60))
    assert found == wanted


def test_kafka_python_reads_a_mounted_backup(backup: tuple[Path, Reads, datetime]) -> None:
    kafka = pytest.importorskip("kafka")
    archive, expected, _ = backup
    with broker(mount=archive) as mounted:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=mounted.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        try:
            part = kafka.TopicPartition("orders", 0)
            consumer.assign([part])
            consumer.seek(part, 490)
            found: list[tuple[int, int, bytes]] = []
            wanted = [each for each in expected["orders", 0, "read_uncommitted"] if each[0] >= 490]
            while len(found) < len(wanted):
                polled = consumer.poll(10_000)
                assert polled
                found += [(r.offset, r.timestamp, r.value) for r in polled[part]]
            assert found == wanted
        finally:
            consumer.close()


def test_an_object_that_is_gone_is_an_error_for_its_records_only(
    backup: tuple[Path, Reads, datetime], tmp_path: Path
) -> None:
    archive, expected, _ = backup
    copy = tmp_path / "copy"
    shutil.copytree(archive, copy)
    segments = sorted(copy.glob("topics/orders/*/0/*.segment"))
    segments[0].unlink()
    with broker(mount=copy) as mounted:
        consumer = Consumer({"bootstrap.servers": mounted.bootstrap, "group.id": "reader"})
        with closing(consumer):
            consumer.assign([TopicPartition("orders", 0, 0)])
            message = consumer.poll(30)
            assert message is not None and message.error() is not None and message.error().code() == -1
        assert mounted.broker.stages.storage.metrics.remote.errors > 0
        assert consume(mounted.bootstrap, "state", 0) == expected["state", 0, "read_committed"]


def test_a_backup_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_here(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with broker() as running:
            create(running.bootstrap, "orders", retention_ms="-1")
            produce(running.bootstrap, "orders", [b"%d" % n for n in range(200)])
            source = consume(running.bootstrap, "orders")
            arguments = ["--to", "s3://archive/kafka", "--bootstrap", running.bootstrap]
            assert run_here("backup", "run", *arguments) == 0
        with broker(mount="s3://archive/kafka") as mounted:
            assert consume(mounted.bootstrap, "orders") == source
            assert consume(mounted.bootstrap, "orders") == source


def test_the_limits_of_reads_are_configs(backup: tuple[Path, Reads, datetime], tmp_path: Path) -> None:
    archive, expected, _ = backup
    options = tmp_path / "store.config"
    options.write_text("# none is needed for a folder\n")
    config = {
        "remote.log.reader.threads": 1,
        "remote.log.reader.max.pending.tasks": 1,
        "remote.fetch.max.wait.ms": 1,
        "penstock.mount.cache.bytes": 1 << 20,
        "penstock.mount.store.config": options,
    }
    with broker(mount=archive, config=config) as mounted:
        for n in (0, 1):
            records = expected["orders", n, "read_uncommitted"]
            assert consume(mounted.bootstrap, "orders", n, "read_uncommitted") == records
        assert 0 < mounted.broker.stages.storage.metrics.remote.cached_bytes <= 1 << 20
    with pytest.raises(ArchiveRefused, match=r"line 1 of .* is not NAME=VALUE"):
        options.write_text("nonsense")
        with broker(mount=archive, config=config):
            pass
