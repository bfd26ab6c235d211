"""What a broker is and has stays the same when it is started again; who may use its directory."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.ids import format_topic_id
from penstock.ports import File
from penstock.storage.memory import MemoryFiles
from penstock.testing import broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.broker.disks import on_disk
from tests.broker.events import Events
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


def test_files_of_a_topic_that_is_not_known_are_set_aside(tmp_path: Path, events: Events) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2)
        append(client, topic, b"x")
    shutil.copytree(tmp_path / "topics" / topic.name, tmp_path / "topics" / "stray")
    for metadata in (tmp_path / "topics" / "stray").rglob("*.metadata"):
        metadata.write_text(metadata.read_text().replace(format_topic_id(topic.id), "another" + 15 * "A"))
    files = sorted(path.name for path in (tmp_path / "topics" / "stray" / "partition-0").iterdir())

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]
    assert not (tmp_path / "topics" / "stray").exists()
    (entry,) = (tmp_path / "quarantine").iterdir()
    assert sorted(path.name for path in (entry / "data" / "partition-0").iterdir()) == files
    ((level, fields),) = events.of("partitions_quarantined")
    assert level == "warning"
    assert (fields["topic"], fields["partitions"], fields["path"]) == ("stray", [0, 1], str(entry))


def test_a_partition_that_is_not_assigned_here_is_set_aside(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
    folder = tmp_path / "topics" / topic.name
    shutil.copytree(folder / "partition-0", folder / "partition-7")

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]
    assert not (folder / "partition-7").exists()
    (entry,) = (tmp_path / "quarantine").iterdir()
    assert (entry / "data" / "partition-7").is_dir()


def test_a_partition_that_lost_its_topics_id_keeps_its_records(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
    (tmp_path / "topics" / topic.name / "topic.metadata").unlink()

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]


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


class _Unidentified(MemoryFiles):
    """A disk on which no identity of a partition can be written."""

    refuses = False

    def open(self, path: str, *, create: bool = False) -> File:
        if self.refuses and create and path.endswith("partition.metadata"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return super().open(path, create=create)


def test_a_folder_whose_identity_cannot_be_written_is_used_and_identified_later(events: Events) -> None:
    files = _Unidentified()
    with on_disk(files) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "t")
        append(client, topic, b"kept")
    identity = "/disk/topics/t/partition-0/partition.metadata"
    files.remove(identity)
    files.refuses = True
    with on_disk(files) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"kept"]
    ((level, fields),) = events.of("partition_not_identified")
    assert (level, fields["topic"], fields["partition"]) == ("warning", "t", 0)
    files.refuses = False
    with on_disk(files):
        pass
    assert files.exists(identity)
    assert len(events.of("partition_not_identified")) == 1
