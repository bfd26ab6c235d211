"""A broker keeps its identity and data over restarts; the owner of a data directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.app.stages import Stages
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, PenstockError
from penstock.testing import broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.broker.raw import RawClient
from tests.broker.requests import (
    append,
    create_topic,
    delete_topic,
    fetch,
    read_all,
    topic_exists,
)


def everything(client: RawClient) -> MetadataResponse:
    return client.call(METADATA, 12, MetadataRequest(topics=None))


def test_cluster_topics_ids_and_partitions_survive(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        for number in range(3):
            create_topic(client, f"topic-{number}", partitions=number + 1)
        before = everything(client)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        after = everything(client)

    assert after.cluster_id == before.cluster_id
    assert sorted(after.topics, key=lambda t: t.name or "") == sorted(
        before.topics, key=lambda t: t.name or ""
    )


def test_records_of_every_partition_survive_and_offsets_go_on(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=3)
        for partition in range(3):
            for i in range(partition + 1):
                append(client, topic, b"%d" % i, partition=partition)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        for partition in range(3):
            found = [r.value for r in read_all(client, topic, partition=partition)]
            assert found == [b"%d" % i for i in range(partition + 1)]
            assert append(client, topic, b"next", partition=partition) == partition + 1


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
        delete_topic(client, topic)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert not topic_exists(client, topic.name)
        assert fetch(client, topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert list((tmp_path / "topics").iterdir()) == [tmp_path / "topics" / "__cluster_metadata"]


def test_a_directory_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    with broker(data=tmp_path), pytest.raises(PenstockError, match="in use"), broker(data=tmp_path):
        pytest.fail("two brokers in one directory")


def test_a_directory_belongs_to_its_node(tmp_path: Path) -> None:
    with broker(data=tmp_path):
        pass

    other = broker(data=tmp_path, config={"node.id": "7"})
    with pytest.raises(PenstockError, match="belongs to node 1"), other:
        pytest.fail("another node's directory")


def test_directories_of_two_clusters_do_not_mix(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with broker(data=tmp_path / name):
            pass

    both = broker(config={"penstock.memory": "false", "log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    with pytest.raises(PenstockError, match="cluster"), both:
        pytest.fail("directories of two clusters")


def test_a_second_directory_can_be_added(tmp_path: Path) -> None:
    with broker(data=tmp_path / "a") as running, RawClient(running.bootstrap) as client:
        old = create_topic(client)
        append(client, old, b"x")

    both = {"penstock.memory": "false", "log.dirs": f"{tmp_path}/a,{tmp_path}/b"}
    with broker(config=both) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, old)] == [b"x"]
        new = create_topic(client, partitions=4)
        for partition in range(4):
            append(client, new, b"y", partition=partition)
        assert (tmp_path / "b" / "topics" / new.name).exists()

    with broker(config=both) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, old)] == [b"x"]
        for partition in range(4):
            assert [r.value for r in read_all(client, new, partition=partition)] == [b"y"]


class _Mount:
    """Notes when it is attached and closed."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.events: list[str] = []
        self._failure = failure
        self.running: Broker

    async def attach(self, stages: Stages) -> None:
        self.events.append(f"attached, serving: {self.running.serving.health.phase.serving}")
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self.events.append("closed")


def _run(mount: _Mount) -> None:
    async def run() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "penstock.memory": "true"})
        mount.running = await Broker.open(config, system_world(config), mount=mount)
        await mount.running.start()
        mount.events.append(f"started, serving: {mount.running.serving.health.phase.serving}")
        await mount.running.stop()

    asyncio.run(run())


def test_a_mount_is_attached_before_clients_are_served_and_closed_at_the_end() -> None:
    mount = _Mount()
    _run(mount)
    assert mount.events == ["attached, serving: False", "started, serving: True", "closed"]


def test_a_mount_that_fails_fails_the_start() -> None:
    mount = _Mount(PenstockError("no such topic"))
    with pytest.raises(PenstockError, match="no such topic"):
        _run(mount)
    assert mount.events == ["attached, serving: False", "closed"]
