"""`penstock.testing.cluster`: quick, breakable in each way that it promises, and ahead of time."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import CLIENT, PATIENCE_S, create, produce, producer, read

#: all that brokers may wait for as they start: longer than a cluster has to be there
PAUSES = dict.fromkeys(
    (
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "controller.quorum.election.backoff.max.ms",
        "controller.quorum.election.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
        "replica.fetch.backoff.ms",
    ),
    120_000,
)


@pytest.fixture
def three() -> Iterator[Cluster]:
    with cluster(brokers=3) as running:
        yield running


def first_offset(running: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "unused", **CLIENT})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    return int(low)


def leader_according_to(running: Cluster, broker: int, topic: str) -> int:
    """The leader that one broker gives to its clients."""
    client = AdminClient({"bootstrap.servers": running.address(broker), **CLIENT})
    return int(client.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0].leader)


def test_ready_after_half_a_second_of_work_and_no_pause() -> None:
    """Of the processor, which others use, too: it takes a tenth of that. Any broker then knows all."""

    def seconds() -> float:
        started = time.process_time()
        with cluster(brokers=3, config=PAUSES) as running:
            took = time.process_time() - started
            for broker in running.ids:
                client = AdminClient({"bootstrap.servers": running.address(broker), **CLIENT})
                assert sorted(client.list_topics(timeout=PATIENCE_S).brokers) == [1, 2, 3]
            return took

    assert any(seconds() < 0.5 for _ in range(20))


def test_faults_of_unknown_brokers_are_refused(three: Cluster) -> None:
    """A mistake in a test must not look like a cluster that survives everything."""
    for break_it in (three.kill, three.stop, three.restart, three.pause, three.partition, three.address):
        with pytest.raises(ValueError, match="no broker 4, but 1 to 3"):
            break_it(4)
    with pytest.raises(ValueError, match="no broker 4"):
        three.partition(1, 4)
    with pytest.raises(ValueError, match="from itself"):
        three.partition(1, 1)
    with pytest.raises(ValueError, match="forward"):
        three.advance(-1)
    three.kill(3)
    with pytest.raises(RuntimeError, match="broker 3 does not run"):
        three.kill(3)
    with pytest.raises(RuntimeError, match="broker 2 runs already"):
        three.start(3, 2)
    assert not three.is_running(3)
    with pytest.raises(ValueError, match="one broker at least"), cluster(brokers=0):
        """There is none."""


def test_a_timeout_names_the_missing_condition(three: Cluster) -> None:
    with pytest.raises(TimeoutError, match=r"t-0 still has no leader after 0.01 s"):
        three.wait_for_leader("t", timeout=0.01)
    create(three, "t")
    with pytest.raises(TimeoutError, match=f"t-0 still has the leader {three.leader('t')} after"):
        three.wait_for_leader("t", other_than=three.leader("t"), timeout=0.01)
    with pytest.raises(TimeoutError, match=r"t-0 has \[1, 2, 3\] in sync after"):
        three.wait_for_isr("t", size=2, timeout=0.01)


def test_without_a_majority_no_broker_starts_and_nothing_hangs(three: Cluster) -> None:
    for broker in three.ids:
        three.kill(broker)
    with pytest.raises(TimeoutError, match=r"broker 1 is not up .* more than half of the voters \(1, 2, 3\)"):
        three.start(1, timeout=0.2)
    assert not three.is_running(1)
    three.start(1, 2)


def test_configs_need_not_be_strings() -> None:
    with cluster(brokers=1, config={"num.partitions": 3, "auto.create.topics.enable": True}) as running:
        produce(running, "t", b"x")
        running.wait_until(lambda: running.leader("t", 2) == 1)


def test_no_thread_stays_after_any_fault_of_a_broker() -> None:
    before = set(threading.enumerate())
    with cluster(brokers=3) as running:
        running.partition(1)
        running.pause(2)
        running.kill(3)
    assert set(threading.enumerate()) <= before


def test_no_connection_stays_that_came_in_the_moment_of_death(monkeypatch: pytest.MonkeyPatch) -> None:
    unclosed: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unclosed.append)
    with cluster(brokers=1) as running:
        host, port = running.address(1).split(":")
        for _ in range(10):
            visitors = [socket.create_connection((host, int(port))) for _ in range(30)]
            running.kill(1)
            for visitor in visitors:
                visitor.close()
            running.start(1)
    gc.collect()
    assert not unclosed


def test_a_killed_leader_takes_nothing_with_it(three: Cluster) -> None:
    create(three, "t")
    produce(three, "t", b"before")
    killed = three.wait_for_leader("t")
    three.kill(killed)
    assert not three.is_running(killed)
    produce(three, "t", b"after")
    assert three.leader("t") not in (None, killed)
    assert read(three, "t", 2) == [b"before", b"after"]
    three.restart(killed)
    assert three.wait_for_isr("t") == [1, 2, 3]


def test_a_stopped_broker_hands_over_first(three: Cluster) -> None:
    create(three, "t")
    stopped = three.wait_for_leader("t")
    three.stop(stopped)
    assert three.leader("t") not in (None, stopped)
    with pytest.raises(RuntimeError, match="does not run"):
        three.pause(stopped)


def test_memory_outlives_all_brokers(three: Cluster) -> None:
    create(three, "t")
    produce(three, "t", b"kept")
    for broker in three.ids:
        three.kill(broker)
    assert three.leader("t") is None
    three.start(*three.ids)
    three.wait_for_leader("t")
    assert read(three, "t", 1) == [b"kept"]


def test_a_leader_that_hangs_is_replaced_when_its_session_ends() -> None:
    with cluster(brokers=3, config={"broker.session.timeout.ms": 60_000}) as three:
        create(three, "t")
        hanging = three.wait_for_leader("t")
        three.pause(hanging)
        three.advance(20)
        assert three.leader("t") == hanging
        three.advance(45)
        assert three.wait_for_leader("t", other_than=hanging) != hanging
        produce(three, "t", b"meanwhile")
        three.resume(hanging)
        assert three.wait_for_isr("t") == [1, 2, 3]
        assert read(three, "t", 1) == [b"meanwhile"]


def test_a_minority_that_is_cut_off_can_write_nothing(three: Cluster) -> None:
    create(three, "t")
    alone = three.wait_for_leader("t")
    three.partition(alone)
    client = producer(
        three,
        **{"bootstrap.servers": three.address(alone), "enable.idempotence": False, "message.timeout.ms": 300},
    )
    acknowledged: list[bool] = []
    client.produce("t", b"lost", on_delivery=lambda error, message: acknowledged.append(error is None))
    client.flush(PATIENCE_S)
    assert acknowledged == [False]
    three.advance(5)
    three.wait_for_leader("t", other_than=alone)
    # librdkafka keeps sending to the broker that is cut off if its first metadata response names that one:
    # it does not retry after REQUEST_TIMED_OUT. So the broker of the request must know the new leader.
    majority = next(broker for broker in three.ids if broker != alone)
    three.wait_until(lambda: leader_according_to(three, majority, "t") != alone)
    # A producer id may come from the broker that is cut off, which has none to give out.
    settings = {"bootstrap.servers": three.address(majority), "enable.idempotence": False}
    produce(three, "t", b"kept", **settings)
    three.heal()
    assert three.wait_for_isr("t") == [1, 2, 3]
    assert read(three, "t", 1) == [b"kept"]


def test_one_link_that_is_cut_leaves_the_others(three: Cluster) -> None:
    """A follower that cannot reach its leader leaves the ISR; the leader goes on with the third broker."""
    create(three, "t")
    leader = three.wait_for_leader("t")
    follower = next(broker for broker in three.ids if broker not in (leader, three.controller))
    # Before: where the leader is the controller, too, the follower could not get the client a producer id.
    waiting = producer(three)
    waiting.produce("t", b"before")
    assert waiting.flush(PATIENCE_S) == 0
    three.partition(leader, follower)
    waiting.produce("t", b"v")
    assert waiting.flush(0.2) == 1
    three.advance(40)
    assert waiting.flush(PATIENCE_S) == 0
    assert follower not in three.isr("t")
    assert three.leader("t") == leader
    three.heal()
    assert three.wait_for_isr("t") == [1, 2, 3]


def test_moving_time_keeps_all_brokers_alive(three: Cluster) -> None:
    """All step together, so no heartbeat is missed."""
    create(three, "t")
    before = [three.leader("t"), three.controller, three.isr("t")]
    three.advance(60)
    assert [three.leader("t"), three.controller, three.isr("t")] == before


@pytest.mark.parametrize("retention_s", [60, 7 * 24 * 3600])
def test_retention_comes_when_its_time_has_come(three: Cluster, retention_s: int) -> None:
    create(three, "t", **{"retention.ms": str(retention_s * 1000)})
    produce(three, "t", b"old")
    three.advance(retention_s / 2)
    assert first_offset(three, "t") == 0
    three.advance(retention_s / 2 + 15)
    three.wait_until(lambda: first_offset(three, "t") == 1)


def test_committed_offsets_are_forgotten_when_their_time_is_over() -> None:
    """Also where the sessions of members do not go by the time that passes."""
    with cluster(brokers=3, config={"offsets.retention.minutes": 1}) as running:
        create(running, "t")
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", **CLIENT})
        consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)

        def committed() -> int:
            (partition,) = consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)
            offset: int = partition.offset
            return offset

        running.advance(30)
        assert committed() == 5
        running.advance(31)
        assert committed() == OFFSET_INVALID
        consumer.close()


def member(running: Cluster) -> Consumer:
    """A member of a group that has its partition, and sends no heartbeat for as long as a test takes."""
    calm = {"group.id": "g", "session.timeout.ms": 45_000, "heartbeat.interval.ms": 40_000}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, **calm, **CLIENT})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    return consumer


@pytest.mark.parametrize("expire", [False, True])
def test_members_lose_their_sessions_only_on_request(three: Cluster, expire: bool) -> None:
    create(three, "t")
    consumer = member(three)
    three.advance(60, expire_sessions=expire)
    if expire:
        # The response to its next heartbeat would end its membership, and it would join again.
        with pytest.raises(KafkaException):
            consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    else:
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    consumer.close()


def test_a_group_survives_its_coordinator(three: Cluster) -> None:
    create(three, "t")
    produce(three, "t", b"one", b"two")
    consumer = member(three)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": three.bootstrap, **CLIENT})
    three.kill(admin.describe_consumer_groups(["g"])["g"].result(timeout=PATIENCE_S).coordinator.id)
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": "g", **CLIENT})
    (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)
    assert committed.offset == 1
    consumer.close()
