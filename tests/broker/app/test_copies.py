"""Brokers that copy the sealed segments of their topics to an archive in a folder."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.archive.errors import ArchiveRefused
from penstock.archive.sweeping import cut_manifest
from penstock.archive.verifying import verify_cut
from penstock.broker.replica.partition import Partition
from penstock.encryption import MAGIC
from penstock.encryption.keys import format_key
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import open_store
from penstock.testing import broker, cluster
from penstock.testing.brokers import BrokerThread
from tests.backup.clusters import take
from tests.broker.app.tiered_topics import TIERED, copied_until, newest, owners, tiered
from tests.broker.configs import SET, TOPIC, alter
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    LATEST,
    Topic,
    append,
    create_topic,
    delete_before,
    delete_topic,
    describe_topic,
    list_offset,
    read_all,
    request_topic,
)
from tests.cli.running import run_here, running_broker
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with broker(config=tiered(tmp_path)) as found:
        yield found


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def sealed_until(running: BrokerThread, topic: Topic) -> int:
    """The end of the segments that can be copied."""
    found = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert isinstance(found, Partition)
    return found.log.segments.active.base_offset


def test_segments_are_copied_and_listed(running: BrokerThread, client: RawClient, tmp_path: Path) -> None:
    topic = create_topic(client, configs=TIERED)
    for n in range(40):
        append(client, topic, b"%d" % n * 60)
    end = sealed_until(running, topic)
    assert end >= 30
    eventually(lambda: list_offset(client, topic, LATEST_TIERED).offset == end - 1)

    assert copied_until(tmp_path) == end
    tiered_end = list_offset(client, topic, LATEST_TIERED)
    assert tiered_end.leader_epoch == 0 and tiered_end.error_code == ErrorCode.NONE
    assert list_offset(client, topic, EARLIEST_PENDING_UPLOAD).offset == tiered_end.offset + 1
    assert list_offset(client, topic, EARLIEST_LOCAL).offset == 0


def test_topic_describe_shows_the_end_of_the_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker(config=tiered(tmp_path)) as running, RawClient(running.bootstrap) as client:
        topic, plain = create_topic(client, configs=TIERED), create_topic(client)
        described = ("topic", "describe", topic.name, plain.name, "--bootstrap", running.bootstrap)
        assert run_here(*described, "--json") == 0
        shown = {each["topic"]: each["partitions"][0] for each in json.loads(capsys.readouterr().out)}
        assert shown[topic.name]["copied"] is None and "copied" not in shown[plain.name]
        for n in range(20):
            append(client, topic, b"%d" % n * 60)
        end = sealed_until(running, topic)
        assert end > 10
        eventually(lambda: list_offset(client, topic, LATEST_TIERED).offset == end - 1)

        assert run_here(*described, "--json") == 0

        shown = {each["topic"]: each["partitions"][0] for each in json.loads(capsys.readouterr().out)}
        assert shown[topic.name]["copied"] == end
        assert run_here(*described) == 0
        assert "copied" in capsys.readouterr().out


def test_a_topic_without_a_sealed_segment_waits_to_be_copied(client: RawClient) -> None:
    topic = create_topic(client, configs=TIERED)
    append(client, topic, b"1")

    eventually(lambda: list_offset(client, topic, EARLIEST_PENDING_UPLOAD).offset == 0)
    assert list_offset(client, topic, LATEST_TIERED).offset == -1


def test_other_topics_are_not_copied(client: RawClient, tmp_path: Path) -> None:
    plain = create_topic(client, configs={"internal.segment.bytes": "500"})
    topic = create_topic(client, configs=TIERED)
    for each in (plain, topic):
        for n in range(20):
            append(client, each, b"%d" % n * 60)

    eventually(lambda: copied_until(tmp_path) >= 10)
    assert {owner.topic for owner in owners(tmp_path)} == {topic.name}
    assert list_offset(client, plain, LATEST_TIERED).offset == -1


def test_deleted_records_leave_the_archive(client: RawClient, tmp_path: Path) -> None:
    topic = create_topic(client, configs=TIERED)
    for n in range(40):
        append(client, topic, b"%d" % n * 60)
    eventually(lambda: copied_until(tmp_path) >= 30)
    start = copied_until(tmp_path)

    delete_before(client, topic, start)

    def starts_there() -> bool:
        manifest = newest(tmp_path)
        return manifest is not None and manifest.log_start_offset == start <= manifest.next_offset

    eventually(starts_there)
    manifest = newest(tmp_path)
    assert manifest is not None and all(each.next_offset > start for each in manifest.segments)


def test_the_copies_of_a_deleted_topic_lose_their_names(client: RawClient, tmp_path: Path) -> None:
    topic = create_topic(client, configs=TIERED)
    for n in range(20):
        append(client, topic, b"%d" % n * 60)
    eventually(lambda: copied_until(tmp_path) >= 10)

    delete_topic(client, topic)

    eventually(lambda: (manifest := newest(tmp_path)) is not None and manifest.segments == ())
    assert list(tmp_path.glob("topics/*/*/0/*.segment")), "only the collector deletes objects"


def test_disabling_needs_consent_to_the_deletion(client: RawClient, tmp_path: Path) -> None:
    topic = create_topic(client, configs=TIERED)
    for n in range(20):
        append(client, topic, b"%d" % n * 60)
    eventually(lambda: copied_until(tmp_path) >= 10)

    code, message = alter(client, TOPIC, topic.name, ("remote.storage.enable", SET, "false"))
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None and message.startswith("It is invalid to disable remote storage without")
    code, _ = alter(
        client,
        TOPIC,
        topic.name,
        ("remote.storage.enable", SET, "false"),
        ("remote.log.delete.on.disable", SET, "true"),
    )

    assert code == ErrorCode.NONE
    eventually(lambda: (manifest := newest(tmp_path)) is not None and manifest.segments == ())
    assert (
        list_offset(client, topic, EARLIEST).offset == 0 and list_offset(client, topic, LATEST).offset == 20
    )


def test_topics_are_copied_no_further_while_copies_are_disabled(client: RawClient, tmp_path: Path) -> None:
    topic = create_topic(client, configs={**TIERED, "remote.log.copy.disable": "true"})
    for n in range(20):
        append(client, topic, b"%d" % n * 60)
    other = create_topic(client, configs=TIERED)
    for n in range(20):
        append(client, other, b"%d" % n * 60)

    eventually(lambda: copied_until(tmp_path) >= 10)
    assert {owner.topic for owner in owners(tmp_path)} == {other.name}


def test_a_store_that_fails_delays_copies_and_nothing_else(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    in_the_way = archive / "topics"
    in_the_way.write_text("every put fails")
    config = {**tiered(archive), "penstock.metrics.listener": "127.0.0.1:0"}
    with broker(config=config) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=TIERED)
        for n in range(20):
            append(client, topic, b"%d" % n * 60)
        metrics = running.broker.stages.storage.metrics
        eventually(lambda: metrics.copies.total().errors > 1 and metrics.copies.total().lag_bytes > 0)
        assert metrics.copies.total().requests == 0
        append(client, topic, b"hot")

        in_the_way.unlink()

        eventually(lambda: copied_until(archive) >= 10)
        eventually(lambda: metrics.copies.total().lag_segments == 0)
        assert list_offset(client, topic, LATEST).offset == 21
        port = running.broker.serving.monitor.port if running.broker.serving.monitor else 0
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert re.search(rf'penstock_remote_copy_bytes_total{{topic="{topic.name}"}} [1-9]', page)
        assert "penstock_remote_archive_available 1" in page
        assert re.search(rf'penstock_remote_copy_errors_total{{topic="{topic.name}"}} [1-9]', page)


def test_a_backup_at_the_same_address_names_copied_segments(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with broker(config=tiered(archive)) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=TIERED)
        for n in range(40):
            append(client, topic, b"%d" % n * 60)
        eventually(lambda: list_offset(client, topic, LATEST_TIERED).offset >= 30)
        copied = {each.name for each in archive.rglob("*.segment")}
        _, cut = take(running.bootstrap, archive)
        _, later = take(running.bootstrap, archive)
    (partition,) = cut.topics[0].partitions
    assert (partition.end_offset, later.topics[0].partitions) == (40, cut.topics[0].partitions)
    store = open_store(parse_address(str(archive)))
    manifest = asyncio.run(cut_manifest(store, cut.topics[0], partition))
    named = {each.name for each in manifest.segments}
    assert len(named & copied) >= len(named) - 1, "only what is not sealed was put again"
    assert all(each.verified for each in asyncio.run(verify_cut(store, cut)))


def test_brokers_with_keys_encrypt_the_archive(tmp_path: Path) -> None:
    archive, keys = tmp_path / "archive", format_key("k1", bytes(range(32)))
    config = {**tiered(archive), "penstock.encryption.keys": keys}
    with broker(config=config) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=TIERED)
        for n in range(20):
            append(client, topic, b"secret %d " % n * 10)
        eventually(lambda: list_offset(client, topic, LATEST_TIERED).offset >= 10)
    files = [each for each in archive.rglob("*") if each.is_file()]
    assert any(each.suffix == ".segment" for each in files)
    assert all(b"secret" not in (data := each.read_bytes()) and data.startswith(MAGIC) for each in files)


def test_an_archive_that_cannot_be_opened_is_a_metric(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    root = archive / "archive.json"
    root.write_text("this is no archive")
    with broker(config=tiered(archive)) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=TIERED)
        stats = running.broker.stages.storage.metrics.copies
        for n in range(20):
            append(client, topic, b"%d" % n * 60)
        eventually(lambda: stats.available is False)
        root.unlink()
        eventually(lambda: stats.available is True)


def test_an_address_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    config = {**tiered(tmp_path), "penstock.remote.log.address": "s3://user:secret@bucket/x"}
    with pytest.raises(ArchiveRefused, match="more than bucket and prefix"), broker(config=config):
        pass


def fill(address: str, topic: str, count: int) -> None:
    with RawClient(address) as client:
        known = describe_topic(client, topic)
        for n in range(count):
            append(client, Topic(topic, TopicId(known.topic_id)), b"%d" % n * 60)


def test_the_next_leader_goes_on(tmp_path: Path) -> None:
    with cluster(3, config=tiered(tmp_path)) as running:
        with RawClient(running.address(1)) as client:
            assert not request_topic(client, "orders", 1, TIERED, replication_factor=3).error_code
        running.wait_for_isr("orders")
        first = running.wait_for_leader("orders")
        fill(running.address(first), "orders", 30)
        eventually(lambda: copied_until(tmp_path) > 0)

        running.kill(first)

        running.wait_until(lambda: running.leader("orders") not in (None, first))
        second = running.wait_for_leader("orders")
        fill(running.address(second), "orders", 30)
        eventually(lambda: copied_until(tmp_path) > 40)
        manifest = newest(tmp_path)
        assert manifest is not None and manifest.leader_epoch > 0 and manifest.base_offset == 0


@pytest.mark.slow
@pytest.mark.process
def test_kills_in_the_middle_of_copies_and_deletions_lose_nothing(tmp_path: Path) -> None:
    archive, data, config = tmp_path / "archive", tmp_path / "data", tmp_path / "penstock.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in tiered(archive).items()))
    for nth in range(2):
        with running_broker("--data", str(data), "--config", str(config)) as (process, address):
            if nth == 0:
                with RawClient(address) as client:
                    topic = create_topic(client, "orders", configs={**TIERED, "local.retention.bytes": "0"})
            before = copied_until(archive)
            fill(address, "orders", 40)
            eventually(lambda: copied_until(archive) > before)  # noqa: B023 - called at once
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        assert before < copied_until(archive) <= 40 * (nth + 1)
    manifest = newest(archive)
    assert manifest is not None and manifest.base_offset == 0
    with running_broker("--data", str(data), "--config", str(config)) as (_, address):
        log = data / "topics" / "orders" / "partition-0"
        eventually(lambda: log.exists() and not (log / f"{0:020}.log").exists())
        with RawClient(address) as client:
            assert [each.value for each in read_all(client, topic)] == 2 * [b"%d" % n * 60 for n in range(40)]
