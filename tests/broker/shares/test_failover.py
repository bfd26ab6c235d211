"""Failover of share groups on three brokers: the leader of the partition, the share coordinator and the group
coordinator are killed in turn. No accepted record is delivered again, and none is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from penstock.model.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TopicId
from penstock.testing import Cluster, cluster
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, describe_topic
from tests.broker.share_groups import ACCEPT, RELEASE, Member, offsets, set_group_configs
from tests.testing.cluster_clients import create, produce

GROUP = "workers"
RECORDS = 40
PATIENCE_S = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 15_000,
}


class Worker:
    """A member that finds the leader of the partition, and its coordinator, again after each failure."""

    def __init__(self, running: Cluster, topic: Topic) -> None:
        self._running = running
        self._topic = topic
        self._connections = ExitStack()
        self._group_epoch = 0
        self.member = self.connected(topic.name)

    def connected(self, leads: str) -> Member:
        """The member, with a connection to the leader of partition 0 of a topic."""
        leader = self._running.wait_for_leader(leads)
        client = self._connections.enter_context(RawClient(self._running.address(leader)))
        member = Member(client, GROUP, self._topic, "worker")
        member.epoch = self._group_epoch
        return member

    def close(self) -> None:
        self._connections.close()

    def join(self) -> None:
        """Send heartbeats until the partition is assigned."""

        def assigned() -> bool:
            answer: ShareGroupHeartbeatResponse = self.connected(OFFSETS_TOPIC).heartbeat()
            if answer.error_code:
                return False
            self._group_epoch = answer.member_epoch
            return bool(answer.assignment and answer.assignment.topic_partitions)

        retried(assigned)

    def take(self, count: int) -> list[tuple[int, int, int]]:
        """Acquire up to `count` records, in a new session after a failure."""
        found: list[tuple[int, int, int]] = []

        def taken() -> bool:
            try:
                response, data = self.member.fetch(max_records=count, share_acquire_mode=1)
            except OSError:
                self.member = self.connected(self._topic.name)
                raise
            if response.error_code or (data is not None and data.error_code):
                self.member = self.connected(self._topic.name)
                return False
            if data is not None:
                found.extend((a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records)
            return bool(found)

        retried(taken)
        return found


def retried(attempt: Callable[[], bool]) -> None:
    """Repeat an attempt until it succeeds: brokers may be gone, or may not know their role yet."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if attempt():
                return
        except (OSError, AssertionError) as e:
            failure: Any = e
        else:
            failure = None
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s") from failure
        time.sleep(0.02)


def numbers(ranges: list[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in ranges for offset in range(first, last + 1)]


def test_leaders_and_coordinators_are_killed() -> None:
    with cluster(3, config=SETTINGS) as running:
        create(running, "jobs")
        produce(running, "jobs", *(b"%d" % i for i in range(RECORDS)))
        with RawClient(running.address(running.wait_for_leader("jobs"))) as client:
            set_group_configs(client, GROUP, share_auto_offset_reset="earliest")
            topic = Topic("jobs", TopicId(describe_topic(client, "jobs").topic_id))
            # Creates the topic of the group coordinator.
            client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        worker = Worker(running, topic)
        worker.join()
        accepted: set[int] = set()
        for victim_of in ("jobs", SHARE_STATE_TOPIC, OFFSETS_TOPIC):
            taken = numbers(worker.take(6))
            assert accepted.isdisjoint(taken)
            kept, released = taken[::2], taken[1::2]
            acks = sorted([(n, n, [ACCEPT]) for n in kept] + [(n, n, [RELEASE]) for n in released[:1]])
            assert worker.member.outcome(*acks) == "NONE"
            accepted.update(kept)
            victim = running.wait_for_leader(victim_of)
            running.kill(victim)
            running.wait_for_leader(victim_of, other_than=victim)
            running.wait_for_leader("jobs", other_than=victim)
            again = worker.take(6)
            assert accepted.isdisjoint(numbers(again)), "an accepted record was delivered again"
            if victim_of == "jobs":
                counts = {n: count for first, last, count in again for n in range(first, last + 1)}
                assert counts[released[0]] == 2, "the count of a released record is persisted"
            assert worker.member.outcome(*((n, n, [ACCEPT]) for n in numbers(again))) == "NONE"
            accepted.update(numbers(again))
            running.start(victim)
            for name in ("jobs", SHARE_STATE_TOPIC, OFFSETS_TOPIC):
                running.wait_for_isr(name)
            worker.join()
        while len(accepted) < RECORDS:
            taken = numbers(worker.take(10))
            assert accepted.isdisjoint(taken)
            assert worker.member.outcome(*((n, n, [ACCEPT]) for n in taken)) == "NONE"
            accepted.update(taken)
        assert accepted == set(range(RECORDS))
        with RawClient(running.address(running.wait_for_leader(OFFSETS_TOPIC))) as client:
            assert offsets(client, GROUP) == [(RECORDS, 0)]
        worker.close()
