"""Topics of one cluster, mirrored by the brokers of another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from penstock.broker.replica.partition import Partition
from penstock.net.link_client import LinkError
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.broker.links.clusters import (
    DEFAULTS,
    create,
    creates,
    ends_at,
    lines,
    link,
    log_of,
    records,
    reports,
)
from tests.broker.links.commands import alter_link, end_topics, look
from tests.waiting import eventually


class Clusters(NamedTuple):
    source: BrokerThread
    destination: BrokerThread

    @property
    def old(self) -> str:
        return self.source.bootstrap

    @property
    def new(self) -> str:
        return self.destination.bootstrap


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        yield Clusters(source, destination)


def send(
    bootstrap: str,
    topic: str,
    count: int,
    first: int = 0,
    codec: str = "none",
    partition: int = 0,
    apart: bool = False,
) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec}
    )
    for n in range(first, first + count):
        headers = [("n", b"%d" % n)]
        producer.produce(topic, b"%d" % n * 20, b"k%d" % n, partition, timestamp=10**12 + n, headers=headers)
        if apart:
            producer.flush(30)
    assert producer.flush(30) == 0


def finish(
    new: str, *topics: str, complete: bool = True, wait_s: float = 60
) -> list[tuple[str, int, int, int]]:
    with lines(new) as line:
        ended = end_topics(line, "west", topics or None, complete=complete, wait_s=wait_s)
    return [(each.topic, each.partition, each.end_offset, each.aborted) for each in ended]


def test_a_topic_is_mirrored_at_the_same_offsets_and_promoted(clusters: Clusters) -> None:
    """Old and new records, all codecs, configs, new partitions; read-only until it is promoted."""
    old, new = clusters.old, clusters.new
    create(old, "orders", 2, retention_ms="-1", max_message_bytes="2000000")
    for nth, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        send(old, "orders", 50, 50 * nth, codec)
    create(old, "other")
    link(new, old, topics="orders*")
    ends_at(new, "orders", 250)
    send(old, "orders", 30, partition=1)
    ends_at(new, "orders", 30, partition=1)
    for partition in (0, 1):
        assert records(new, "orders", partition) == records(old, "orders", partition)
    admin = AdminClient({"bootstrap.servers": new})
    assert "other" not in admin.list_topics(timeout=30).topics
    config = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")])
    (values,) = [future.result(30) for future in config.values()]
    assert (values["retention.ms"].value, values["max.message.bytes"].value) == ("-1", "2000000")
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": new, "message.timeout.ms": 60_000})
    producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error.name()))
    producer.flush(30)
    assert failed == ["POLICY_VIOLATION"]

    source_admin = AdminClient({"bootstrap.servers": old})
    for future in source_admin.create_partitions([NewPartitions("orders", 3)]).values():
        future.result(30)
    change = ConfigEntry("retention.ms", "60000000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
    for future in source_admin.incremental_alter_configs([resource]).values():
        future.result(30)
    eventually(lambda: len(admin.list_topics(timeout=30).topics["orders"].partitions) == 3)
    send(old, "orders", 7, partition=2)
    ends_at(new, "orders", 7, partition=2)

    assert finish(new) == [("orders", 0, 250, 0), ("orders", 1, 30, 0), ("orders", 2, 7, 0)]
    send(new, "orders", 5, 1000)
    assert [each[0] for each in records(new, "orders")][-5:] == list(range(250, 255))
    send(old, "orders", 1)
    assert len(records(new, "orders")) == 255


def test_transactions_and_gaps_of_compaction_are_mirrored(clusters: Clusters) -> None:
    """Committed, aborted and open transactions; the open one is aborted by a failover."""
    old, new = clusters.old, clusters.new
    create(old, "pairs")
    link(new, old)
    writer = Producer({"bootstrap.servers": old, "transactional.id": "w"})
    writer.init_transactions(30)
    for outcome in ("commit", "abort", "commit", "open"):
        writer.begin_transaction()
        for n in range(3):
            writer.produce("pairs", f"{outcome}{n}".encode())
        writer.flush(30)
        if outcome == "commit":
            writer.commit_transaction(30)
        elif outcome == "abort":
            writer.abort_transaction(30)
    ends_at(new, "pairs", 15)
    for isolation in ("read_committed", "read_uncommitted"):
        assert records(new, "pairs", isolation=isolation) == records(old, "pairs", isolation=isolation)
    assert len(records(new, "pairs")) == 6
    clusters.source.kill()
    assert finish(new, complete=False) == [("pairs", 0, 16, 1)]
    # The destination's producers get other ids, and are never told that a record is a duplicate.
    send(new, "pairs", 4)
    assert len(records(new, "pairs")) == 10


def test_a_transaction_of_this_cluster_leaves_no_marker_in_a_mirror(clusters: Clusters) -> None:
    """A producer adds the topic to its transaction, is refused, and aborts: the mirror goes on."""
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 3)
    link(new, old)
    ends_at(new, "orders", 3)
    writer = Producer({"bootstrap.servers": new, "transactional.id": "w"})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce("orders", b"x", partition=0)
    writer.flush(30)
    writer.abort_transaction(30)
    send(old, "orders", 2)
    ends_at(new, "orders", 5)
    assert records(new, "orders") == records(old, "orders")
    assert reason(new, "orders") == ""


def test_a_producer_with_the_id_of_a_mirrored_one_writes_no_duplicates(clusters: Clusters) -> None:
    """Both clusters have given out the same first ids; one producer is older than the link."""
    old, new = clusters.old, clusters.new
    create(new, "mine")
    older = Producer({"bootstrap.servers": new, "enable.idempotence": True})
    older.produce("mine", b"x")
    assert older.flush(30) == 0
    create(old, "orders")
    send(old, "orders", 3)
    link(new, old)
    ends_at(new, "orders", 3)
    finish(new)
    older.produce("orders", b"new", partition=0)
    assert older.flush(30) == 0
    send(new, "orders", 2, 50)
    assert [each[0] for each in records(new, "orders")] == list(range(6))
    clusters.destination.kill()
    clusters.destination.start()
    older.produce("orders", b"newer", partition=0)
    assert older.flush(30) == 0
    assert len(records(new, "orders")) == 7
    image = clusters.destination.broker.stages.cluster.image
    assert image.next_producer_id > 100_000


def test_committed_offsets_are_taken_over_up_to_the_mirrored_end(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 100)
    commit(old, "billing", "orders", 70)
    commit(old, "other", "orders", 20)
    link(new, old, groups="bill*")
    ends_at(new, "orders", 100)
    eventually(lambda: committed(new, "billing", "orders") == 70)
    assert committed(new, "other", "orders") == -1001
    commit(old, "billing", "orders", 40)
    eventually(lambda: committed(new, "billing", "orders") == 40)
    # A reader of the destination goes on by itself.
    commit(new, "billing", "orders", 90)
    commit(old, "billing", "orders", 95)
    eventually(lambda: "billing" in foreign_groups(new))
    assert committed(new, "billing", "orders") == 90


def test_a_topic_that_exists_already_is_not_touched(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    create(new, "orders")
    send(old, "orders", 3)
    send(new, "orders", 2, 10)
    link(new, old)
    eventually(lambda: "topic orders exists, and is not mirrored" in reports(new))
    link(new, old, "east")
    eventually(lambda: reports(new).count("topic orders exists, and is not mirrored") == 2)
    assert len(records(new, "orders")) == 2


def test_a_topic_has_one_link(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    link(new, old)
    creates(new, "orders")
    link(new, old, "east")
    eventually(lambda: "topic orders is mirrored by link west" in reports(new))


def test_a_topic_that_was_created_again_at_the_source_stops_its_mirror(clusters: Clusters) -> None:
    """Also with fewer partitions. The records of the former topic stay."""
    old, new = clusters.old, clusters.new
    create(old, "orders", 2)
    send(old, "orders", 5)
    link(new, old)
    ends_at(new, "orders", 5)
    before = records(new, "orders")
    admin = AdminClient({"bootstrap.servers": old})
    for future in admin.delete_topics(["orders"]).values():
        future.result(30)
    create(old, "orders", 1)
    send(old, "orders", 9, 100)
    eventually(lambda: "topic orders was created again at the source" in reason(new, "orders"))
    assert records(new, "orders") == before
    assert any("was created again" in each for each in reports(new))


def test_a_source_that_lost_records_stops_the_mirror(clusters: Clusters) -> None:
    """As after an unclean election: the log is shorter, and then grows with other records."""
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 20)
    send(old, "orders", 10, 20)
    link(new, old)
    ends_at(new, "orders", 30)
    before = records(new, "orders")
    truncate(clusters.source, "orders", 20)
    eventually(lambda: "before the mirrored end 30" in reason(new, "orders"))
    send(old, "orders", 25, 500)
    eventually(lambda: phase(new, "orders") == "diverged")
    assert "in place of the mirrored batch" in reason(new, "orders")
    assert records(new, "orders") == before


def test_retention_that_overtakes_a_link_leaves_a_gap(clusters: Clusters) -> None:
    """What was mirrored stays; the offsets that are missing are counted."""
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 10)
    link(new, old)
    ends_at(new, "orders", 10)
    link(new, old, paused="true")
    eventually(lambda: reason(new, "orders") == "the link is paused")
    send(old, "orders", 20, 10, apart=True)
    delete_before(old, "orders", 25)
    link(new, old, paused="false")
    ends_at(new, "orders", 30)
    assert [each[0] for each in records(new, "orders")] == [*range(10), *range(25, 30)]
    found = log_of(new, "orders")
    assert found is not None and found.missed == 15
    # The restarted broker finds a sound log, and goes on.
    clusters.destination.restart()
    send(old, "orders", 1, 30)
    ends_at(new, "orders", 31)


def test_the_log_start_is_followed_only_on_request(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 20)
    link(new, old)
    ends_at(new, "orders", 20)
    delete_before(old, "orders", 15)
    send(old, "orders", 1, 20)
    ends_at(new, "orders", 21)
    assert records(new, "orders")[0][0] == 0
    link(new, old, log_start="source")
    eventually(lambda: records(new, "orders")[0][0] == 15)


def test_an_empty_mirror_starts_where_the_source_does(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 20)
    delete_before(old, "orders", 12)
    link(new, old)
    ends_at(new, "orders", 20)
    assert records(new, "orders") == records(old, "orders")
    found = log_of(new, "orders")
    assert found is not None and found.missed == 0


def test_both_clusters_restart(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 10)
    link(new, old)
    ends_at(new, "orders", 10)
    clusters.source.restart()
    send(old, "orders", 10, 10)
    ends_at(new, "orders", 20)
    clusters.destination.restart()
    send(old, "orders", 10, 20)
    ends_at(new, "orders", 30)
    clusters.destination.kill()
    clusters.destination.start()
    send(old, "orders", 10, 30)
    ends_at(new, "orders", 40)
    assert records(new, "orders") == records(old, "orders")


def test_a_promotion_without_its_source_says_so(clusters: Clusters) -> None:
    old, new = clusters.old, clusters.new
    create(old, "orders")
    send(old, "orders", 10)
    link(new, old)
    ends_at(new, "orders", 10)
    clusters.source.kill()
    with pytest.raises(LinkError, match="1 of 1 partitions are not complete: orders-0 lacks 0 records"):
        finish(new, wait_s=1)
    assert finish(new, complete=False) == [("orders", 0, 10, 0)]


def test_a_prefix_is_part_of_the_name_and_mirrors_of_others_are_left_out(clusters: Clusters) -> None:
    """Links with prefixes in both directions make no loop."""
    old, new = clusters.old, clusters.new
    create(old, "orders")
    create(new, "orders")
    send(old, "orders", 4)
    send(new, "orders", 3)
    link(new, old, "west", prefix="west.")
    link(old, new, "east", prefix="east.")
    ends_at(new, "west.orders", 4)
    ends_at(old, "east.orders", 3)
    create(old, "last")
    creates(new, "west.last")
    assert set(AdminClient({"bootstrap.servers": new}).list_topics(timeout=30).topics) >= {
        "orders",
        "west.last",
    }
    assert "west.east.orders" not in AdminClient({"bootstrap.servers": new}).list_topics(timeout=30).topics


def test_a_link_that_mirrors_topics_cannot_be_removed(clusters: Clusters) -> None:
    from penstock.cli.failure import Failure

    old, new = clusters.old, clusters.new
    create(old, "orders")
    link(new, old)
    creates(new, "orders")
    every = ("bootstrap.servers", "topics", "interval.ms", "source.cluster.id")
    with lines(new) as line, pytest.raises(Failure, match="topic orders is mirrored by link west"):
        alter_link(line, "west", dict.fromkeys(every))
    finish(new)
    with lines(new) as line:
        alter_link(line, "west", dict.fromkeys(every))
        assert look(line).topics["orders"].ends == (0,)


def test_a_source_that_is_this_cluster_is_refused(clusters: Clusters) -> None:
    new = clusters.new
    create(new, "orders")
    link(new, new, prefix="x.")
    eventually(lambda: "the source of the link is this cluster" in reports(new))


def reason(bootstrap: str, topic: str) -> str:
    found = log_of(bootstrap, topic)
    return "" if found is None else found.reason


def phase(bootstrap: str, topic: str) -> str:
    found = log_of(bootstrap, topic)
    return "" if found is None else found.phase


def foreign_groups(bootstrap: str) -> list[str]:
    with lines(bootstrap) as line:
        return [
            group for each in look(line).reports.values() for link in each for group in link.foreign_groups
        ]


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
    except KafkaException:
        # There is no coordinator yet.
        return -1001
    finally:
        consumer.close()
    return int(found.offset)


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


def truncate(source: BrokerThread, topic: str, offset: int) -> None:
    """Cut the log of the source, as a leader that was elected uncleanly would."""
    done = threading.Event()

    def cut() -> None:
        partition = source.broker.stages.storage.partitions.find(topic, 0)
        assert isinstance(partition, Partition)
        partition.log.high_watermark = offset
        partition.log.truncate_to(offset)
        done.set()

    source.broker.stages.listening.server.loop.call_soon_threadsafe(cut)
    assert done.wait(30)
