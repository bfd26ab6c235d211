"""Subscriptions by regular expression match only topics that the member may describe, as in Kafka."""

from __future__ import annotations

from penstock.groups.consumer_group import ConsumerGroup
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.groups.shard_driver import ShardDriver, topic_id

REFRESH_MS = 600_000


class Member:
    """A member that may describe the topics in `described`."""

    def __init__(self, driver: ShardDriver, *described: str) -> None:
        self.driver = driver
        self.described = set(described)
        self.epoch = 0
        self.partitions: list[TopicPartitions] = []

    def beat(self) -> None:
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_regex="t.*" if joins else None,
            topic_partitions=[] if joins else self.partitions,
        )
        client = self.driver.client("m", 1)
        client.may_describe = lambda topic: topic in self.described
        pending = self.driver.submit("m", lambda shard, _: shard.members.consumer_heartbeat(request, client))
        response = pending.response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.partitions = response.assignment.topic_partitions

    @property
    def owned(self) -> set[bytes]:
        return {each.topic_id for each in self.partitions}

    def settle(self) -> None:
        for _ in range(4):
            self.beat()
            self.driver.sleep(1500)

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(milliseconds // 30_000):
            self.driver.sleep(30_000)
            self.beat()


def matched(driver: ShardDriver) -> set[str]:
    group = driver.shard._ledger.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return set(group.regexes["t.*"].topics)


def test_a_topic_that_the_member_may_not_describe_does_not_match() -> None:
    driver = ShardDriver(topics={"t1": 1, "t2": 1, "other": 1})
    member = Member(driver, "t1", "other")
    member.settle()
    assert matched(driver) == {"t1"}
    assert member.owned == {topic_id("t1")}
    driver.add_topic("t3", 1)
    driver.add_topic("t4", 1)
    member.described.add("t3")
    member.settle()
    assert matched(driver) == {"t1", "t3"}


def test_changed_rights_change_the_match_after_the_interval() -> None:
    driver = ShardDriver(topics={"t1": 1, "t2": 1})
    member = Member(driver, "t1", "t2")
    member.settle()
    assert matched(driver) == {"t1", "t2"}
    member.described.remove("t2")
    member.pass_time(REFRESH_MS + 60_000)
    member.settle()
    assert matched(driver) == {"t1"}
    assert member.owned == {topic_id("t1")}


def test_a_new_coordinator_resolves_an_expression_only_with_the_rights_of_a_member() -> None:
    """Until the first heartbeat the match stays; then it is that of the member's rights."""
    driver = ShardDriver(topics={"t1": 1, "t2": 1})
    member = Member(driver, "t1")
    member.settle()
    driver.restart()
    driver.add_topic("t3", 1)
    driver.sleep(1000)
    assert matched(driver) == {"t1"}
    member.described.add("t3")
    member.settle()
    assert matched(driver) == {"t1", "t3"}
