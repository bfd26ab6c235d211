"""Partition folders that were swapped, renamed or copied by hand while their broker was stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode, PenstockError
from penstock.ports import Files
from penstock.testing import broker
from tests.broker.events import Events
from tests.broker.nodes import cluster, eventually, run
from tests.broker.raw import RawClient
from tests.broker.replication import described, make_topic, produce, replica
from tests.broker.requests import Topic, append, create_topic, read_all
from tests.broker.stopped_replicas import stopped, values


def swap(one: Path, other: Path) -> None:
    aside = one.parent / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def two_topics(data: Path) -> tuple[Topic, Topic]:
    """Two partitions each, every one with records of its own."""
    with broker(data=data) as running, RawClient(running.bootstrap) as client:
        topics = create_topic(client, "a", partitions=2), create_topic(client, "b", partitions=2)
        for topic in topics:
            for partition in range(2):
                append(client, topic, b"%s-%d" % (topic.name.encode(), partition), partition=partition)
    return topics


def check(data: Path, *topics: Topic) -> None:
    with broker(data=data) as running, RawClient(running.bootstrap) as client:
        for topic in topics:
            for partition in range(2):
                found = [r.value for r in read_all(client, topic, partition=partition)]
                assert found == [b"%s-%d" % (topic.name.encode(), partition)]


@pytest.mark.parametrize(
    ("one", "other", "moved"),
    [("a/partition-0", "a/partition-1", 2), ("a/partition-0", "b/partition-1", 2), ("a", "b", 4)],
)
@pytest.mark.parametrize("crashed", [False, True])
def test_swapped_folders_serve_their_own_partitions(
    tmp_path: Path, events: Events, one: str, other: str, moved: int, crashed: bool
) -> None:
    topics = two_topics(tmp_path)
    swap(tmp_path / "topics" / one, tmp_path / "topics" / other)
    if crashed:
        (tmp_path / "clean-shutdown").unlink()
    check(tmp_path, *topics)
    found = events.of("partition_misplaced")
    assert len(found) == moved and {level for level, _ in found} == {"error"}
    assert len(events.of("replica_unclean")) == moved
    assert not list((tmp_path / "quarantine").iterdir())
    check(tmp_path, *topics)
    assert len(events.of("partition_misplaced")) == moved, "all is well after that"


def test_without_a_quarantine_folders_are_not_moved(tmp_path: Path, events: Events) -> None:
    """A file is in the place of the quarantine. The broker moves the folders when the file is removed."""
    topics = two_topics(tmp_path)
    swap(tmp_path / "topics/a/partition-0", tmp_path / "topics/a/partition-1")
    shutil.copytree(tmp_path / "topics/b/partition-0", tmp_path / "topics/stray/partition-0")
    (tmp_path / "quarantine").write_text("in the way")
    with broker(data=tmp_path):
        pass
    ((level, ignored),) = events.of("misplaced_partitions_ignored")
    assert level == "error" and "quarantine" in ignored["error"]
    (tmp_path / "quarantine").unlink()
    check(tmp_path, *topics)


def test_a_renamed_folder_is_put_back(tmp_path: Path, events: Events) -> None:
    topics = two_topics(tmp_path)
    (tmp_path / "topics" / "a" / "partition-1").rename(tmp_path / "topics" / "b" / "partition-7")
    check(tmp_path, *topics)
    ((_, fields),) = events.of("partition_misplaced")
    assert (fields["topic"], fields["partition"]) == ("a", 1)
    assert fields["found"] == str(tmp_path / "topics" / "b" / "partition-7")


def test_a_copy_under_another_name_is_quarantined(tmp_path: Path, events: Events) -> None:
    topics = two_topics(tmp_path)
    shutil.rmtree(tmp_path / "topics" / "b" / "partition-0")
    shutil.copytree(tmp_path / "topics" / "a" / "partition-0", tmp_path / "topics" / "b" / "partition-0")
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topics[0])] == [b"a-0"]
        assert read_all(client, topics[1]) == [], "another partition's records are worse than none"
        assert [r.value for r in read_all(client, topics[1], partition=1)] == [b"b-1"]
    ((_, fields),) = events.of("partitions_quarantined")
    assert "same identity" in fields["reason"]


@pytest.mark.parametrize("damage", ["removed", "emptied"])
def test_a_folder_with_an_identity_is_put_back_where_one_without_lies(
    tmp_path: Path, events: Events, damage: str
) -> None:
    """A power loss takes the identity of a folder without records, and then it is swapped with another."""
    topics = two_topics(tmp_path)
    place = tmp_path / "topics" / "a" / "partition-0"
    swap(place, tmp_path / "topics" / "b" / "partition-0")
    (tmp_path / "clean-shutdown").unlink()
    if damage == "removed":
        (place / "partition.metadata").unlink()
    else:
        (place / "partition.metadata").write_bytes(b"")
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topics[0])] == [b"a-0"]
        assert read_all(client, topics[1]) == [], "nothing says that the other folder is b's"
    ((_, fields),) = events.of("partition_misplaced")
    assert (fields["topic"], fields["partition"]) == ("a", 0)
    ((_, fields),) = events.of("partitions_quarantined")
    assert "it has no identity" in fields["reason"]


def test_swapped_folders_that_lost_their_identities_are_quarantined(tmp_path: Path, events: Events) -> None:
    """The manifest of the last clean shutdown has their segments; offsets and epochs alone look alike."""
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topics = create_topic(client, "a", partitions=2), create_topic(client, "b", partitions=2)
        append(client, topics[0], b"short")
        append(client, topics[1], b"a longer record")
        append(client, topics[1], b"other", partition=1)
    folders = [tmp_path / "topics" / name / "partition-0" for name in "ab"]
    swap(*folders)
    for folder in folders:
        (folder / "partition.metadata").unlink()
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        for topic in topics:
            assert read_all(client, topic) == [], "another partition's records are worse than none"
        assert [r.value for r in read_all(client, topics[1], partition=1)] == [b"other"]
    reasons = [fields["reason"] for _, fields in events.of("partitions_quarantined")]
    assert len(reasons) == 2 and all("not the segments" in reason for reason in reasons)


def test_folders_of_release_0_1_0_are_identified_by_their_path(tmp_path: Path) -> None:
    topics = two_topics(tmp_path)
    identities = sorted((tmp_path / "topics").rglob("partition-*/partition.metadata"))
    contents = [path.read_bytes() for path in identities]
    for path in identities:
        path.unlink()
    check(tmp_path, *topics)
    assert [path.read_bytes() for path in identities] == contents, "and have an identity from now on"


def test_a_metadata_log_that_was_swapped_refuses_the_start(tmp_path: Path) -> None:
    topics = two_topics(tmp_path)
    names = tmp_path / "topics" / "__cluster_metadata" / "partition-0", tmp_path / "topics/a/partition-1"
    swap(*names)
    with (
        pytest.raises(
            PenstockError, match=r"is the folder of partition 1 of .*: move the folder with the metadata"
        ),
        broker(data=tmp_path),
    ):
        pytest.fail("a start without the metadata log")
    swap(*names)
    check(tmp_path, *topics)


def test_swapped_folders_of_the_last_replica_in_sync_destroy_nothing() -> None:
    def exchange(files: Files, one: str, other: str) -> None:
        files.rename(one, f"{one}-aside")
        files.rename(other, one)
        files.rename(f"{one}-aside", other)

    async def main() -> None:
        async with cluster(3) as nodes:
            for name in ("a", "b"):
                await make_topic(nodes, 1, 2, 3, name=name)
                for number in range(5):
                    answer = await produce(nodes, 1, b"%s%d" % (name.encode(), number), name=name)
                    assert answer.error_code == ErrorCode.NONE
            await stopped(nodes)
            exchange(nodes.disks[1], "/data/topics/a/partition-0", "/data/topics/b/partition-0")
            await nodes.start()
            controller = await nodes.settled()
            for name in ("a", "b"):
                await eventually(lambda name=name: sorted(described(controller, name).isr) == [1, 2, 3])
                for node in (1, 2, 3):
                    found = values(replica(nodes[node], name))
                    assert found == [b"%s%d" % (name.encode(), number) for number in range(5)]

    run(main())
