"""How many heartbeats a consumer group needs until its members have their partitions (KIP-848).

Members behave as the Java client does: a heartbeat after the interval of the last response, and one at once
to acknowledge an assignment. Time is virtual.
"""

from __future__ import annotations

from heapq import heappop, heappush

import pytest

from penstock.groups.settings import GroupSettings
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.groups.shard_driver import ShardDriver

TOPICS = 30
RECONCILIATION_MS = 20


class Client:
    """A member that follows its coordinator."""

    def __init__(self, name: str, regex: str | None) -> None:
        self.name = name
        self.regex = regex
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.acknowledges = False
        self.heartbeats = 0
        self.revoked = 0

    def request(self) -> ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        names = None if self.regex else [f"t{number}" for number in range(TOPICS)]
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=10_000 if joins else -1,
            subscribed_topic_names=([] if self.regex else names) if joins else None,
            subscribed_topic_regex=self.regex if joins else None,
            topic_partitions=self.owned if joins or self.acknowledges else None,
        )

    def beat(self, driver: ShardDriver) -> int:
        """One heartbeat; returns the time until the next one."""
        request, client = self.request(), driver.client(self.name, 1)
        response = driver.submit(
            self.name, lambda shard, _: shard.members.consumer_heartbeat(request, client)
        ).response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        self.heartbeats += 1
        self.epoch = response.member_epoch
        self.acknowledges = response.assignment is not None
        if response.assignment is None:
            return response.heartbeat_interval_ms
        self.revoked += max(0, len(self.owned) - len(response.assignment.topic_partitions))
        self.owned = response.assignment.topic_partitions
        return RECONCILIATION_MS


def settle(driver: ShardDriver, clients: list[Client], apart_ms: int) -> int:
    """Run members that join `apart_ms` after one another. Returns the time when each has its share."""
    due: list[tuple[int, int]] = []
    for number in range(len(clients)):
        heappush(due, (number * apart_ms, number))
    while not all(len(client.owned) == TOPICS // len(clients) for client in clients):
        at, number = heappop(due)
        driver.sleep(max(0, at - driver.now_ms))
        assert driver.now_ms < 60_000
        heappush(due, (driver.now_ms + clients[number].beat(driver), number))
    return driver.now_ms


def members(regex: str | None) -> list[Client]:
    return [Client(name, regex) for name in ("a", "b", "c")]


def driver_with_topics(settings: GroupSettings | None = None) -> ShardDriver:
    return ShardDriver(settings, topics={f"t{number}": 1 for number in range(TOPICS)})


@pytest.mark.parametrize("apart_ms", [0, 40, 300])
def test_members_with_a_regular_expression_share_their_first_target(apart_ms: int) -> None:
    clients = members("t.*")
    settle(driver_with_topics(), clients, apart_ms)

    assert [client.revoked for client in clients] == [0, 0, 0]
    assert max(client.heartbeats for client in clients) <= 5


@pytest.mark.parametrize("regex", ["t.*", None])
def test_a_released_partition_does_not_wait_for_the_ordinary_interval(regex: str | None) -> None:
    clients = members(regex)
    settings = GroupSettings()
    settled_ms = settle(driver_with_topics(settings), clients, apart_ms=1500)

    # The first member learns of the others with its next heartbeat, and releases their share.
    assert clients[0].revoked == TOPICS - TOPICS // 3
    assert settled_ms < settings.consumer_heartbeat_ms + 2 * 1500


def test_members_that_wait_for_nothing_keep_the_ordinary_interval() -> None:
    driver, clients = driver_with_topics(), members("t.*")
    settle(driver, clients, apart_ms=40)
    driver.sleep(1000)

    for client in clients:
        while client.acknowledges:
            client.beat(driver)
        assert client.beat(driver) == 5000
