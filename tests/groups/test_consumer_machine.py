"""Members of a consumer group (KIP-848) do whatever they like; the group's promises hold all the same.

- A partition is never in two members' current assignments, whatever their epochs.
- Once all members follow the protocol, all partitions are owned, and evenly.
- The last acknowledged commit is what anyone reads; a member that no longer has a partition, or has it anew,
  does not overwrite it under the epoch that it had before.
- What the log says is what the group is, always.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.groups import assignors, computations, targets
from penstock.groups.consumer_group import ConsumerGroup
from penstock.model.errors import ErrorCode
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.amounts import amount
from tests.groups.shard_driver import ShardDriver, topic_id

NAMES = ["a", "b", "c", "d"]
TOPICS = {"t": 4, "u": 2}


class Member:
    """The state of one client. It takes a while to revoke partitions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.epoch = 0
        self.topics = ["t", "u"]
        self.reads: set[tuple[bytes, int]] = set()
        self.assigned: set[tuple[bytes, int]] = set()

    @property
    def id(self) -> str:
        return f"{self.name}{self.incarnation}"

    @property
    def instance(self) -> str | None:
        return "static" if self.name == "d" else None

    def forget(self) -> None:
        self.epoch, self.reads, self.assigned = 0, set(), set()


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ShardDriver(topics=TOPICS)
        self.members = {name: Member(name) for name in NAMES}
        self.committed = -1
        self.next_offset = 0

    # -- what members do

    @rule(name=st.sampled_from(NAMES), says=st.booleans(), assignor=st.sampled_from([None, "range"]))
    def heartbeat(self, name: str, says: bool, assignor: str | None) -> None:
        """`says`: the heartbeat lists the owned partitions, which is optional."""
        member = self.members[name]
        joins = member.epoch == 0
        owned = [
            TopicPartitions(topic_id=topic, partitions=[p for t, p in sorted(member.reads) if t == topic])
            for topic in {t for t, _ in member.reads}
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member.id,
            member_epoch=member.epoch,
            instance_id=member.instance,
            rebalance_timeout_ms=10_000 if joins else -1,
            subscribed_topic_names=member.topics,
            server_assignor=assignor,
            topic_partitions=owned if joins or says else None,
        )
        client = self.driver.client(name, 1)
        answer = self.driver.submit(name, lambda shard, _: shard.members.consumer_heartbeat(request, client))
        response = answer.response
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            member.epoch = response.member_epoch
            if response.assignment is not None:
                member.assigned = {
                    (t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions
                }
                # It starts to read at once what it is given; what it is to give back it still reads.
                member.reads |= member.assigned
        elif answer.error != ErrorCode.UNRELEASED_INSTANCE_ID:
            member.forget()

    @rule(name=st.sampled_from(NAMES))
    def let_go(self, name: str) -> None:
        member = self.members[name]
        member.reads &= member.assigned

    @rule(name=st.sampled_from(NAMES), for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        member = self.members[name]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member.id,
            member_epoch=-2 if for_a_while and member.instance is not None else -1,
            instance_id=member.instance,
        )
        self.driver.submit(
            name, lambda shard, _: shard.members.consumer_heartbeat(request, self.driver.client(name, 1))
        )
        member.forget()
        member.incarnation += 1

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        self.members[name].forget()
        self.members[name].incarnation += 1

    @rule(name=st.sampled_from(NAMES), topics=st.lists(st.sampled_from(["t", "u"]), unique=True))
    def want_something_else(self, name: str, topics: list[str]) -> None:
        self.members[name].topics = topics

    @rule(name=st.sampled_from(NAMES), behind=st.integers(0, 2))
    def commit(self, name: str, behind: int) -> None:
        member = self.members[name]
        self.next_offset += 1
        epoch = member.epoch - behind
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=max(epoch, 0),
            member_id=member.id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic_id("t"),
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=self.next_offset)
                    ],
                )
            ],
        )
        group = self.group
        known = None if group is None else group.members.get(member.id)
        answer = self.driver.submit(name, lambda shard, _: shard.commit(request, 9))
        if answer.response is not None:
            assert known is not None
            since = known.assignment_epoch(topic_id("t"), 0)
            assert max(epoch, 0) == known.epoch or (since is not None and since <= epoch < known.epoch)
            self.committed = self.next_offset

    # -- what happens to them

    @rule(ms=st.sampled_from([100, 1000, 9000, 40_000]))
    def time_passes(self, ms: int) -> None:
        self.driver.sleep(ms)

    @rule(ms=st.integers(1, 5))
    def a_moment_passes(self, ms: int) -> None:
        """Not long enough for a target that is computed over many turns."""
        self.driver.sleep(ms)

    @rule()
    def coordinator_restarts(self) -> None:
        self.driver.restart()

    @rule(topic=st.sampled_from(["t", "u"]))
    def topic_grows(self, topic: str) -> None:
        partitions = len(self.driver.image.topics[topic].partitions)
        if partitions < 8:
            self.driver.add_topic(topic, partitions + 1)

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def everyone_behaves(self, names: set[str]) -> None:
        """When the sessions of the other members have expired, `names` own all partitions, evenly."""
        for name in names:
            self.members[name].topics = ["t", "u"]
        for _ in range(60):
            self.driver.sleep(1000)
            for name in sorted(names):
                self.let_go(name)
                self.heartbeat(name, True, None)
        group = self.group
        assert group is not None and group.state_name == "Stable"
        assert set(group.members) == {self.members[name].id for name in names}
        everything = {
            (topic_id(t), p) for t, image in self.driver.image.topics.items() for p in image.partitions
        }
        assert {(t, p) for t, owners in group.owners.items() for p in owners} == everything
        assert set().union(*(self.members[name].reads for name in names)) == everything

    # -- what must hold

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.driver.shard._ledger.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @invariant()
    def no_partition_is_in_two_assignments(self) -> None:
        if self.group is None:
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.group.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic, epochs in partitions.items():
                    for index in epochs:
                        assert owners.setdefault((topic, index), member.id) == member.id
        assert owners == {(t, p): m for t, found in self.group.owners.items() for p, m in found.items()}

    @invariant()
    def nobody_reads_what_another_member_reads(self) -> None:
        """Only of current members: a fenced member learns of it with its next heartbeat."""
        if self.group is None:
            return
        reads: dict[tuple[bytes, int], str] = {}
        for member in self.members.values():
            known = self.group.members.get(member.id)
            if known is not None and known.epoch == member.epoch:
                for partition in member.reads:
                    assert reads.setdefault(partition, member.id) == member.id

    @invariant()
    def the_last_acknowledged_commit_is_read(self) -> None:
        request = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        for shard in (self.driver.shard, self.driver.replica()):
            assert shard.fetch(request).topics[0].partitions[0].committed_offset == self.committed

    @invariant()
    def the_log_says_what_the_group_is(self) -> None:
        replayed: Any = self.driver.replica()._ledger.groups.get("g")
        group = self.group
        if group is None:
            assert replayed is None
            return
        for name in (
            "epoch",
            "metadata_hash",
            "assignment_epoch",
            "target",
            "owners",
            "instances",
            "regexes",
        ):
            assert getattr(replayed, name) == getattr(group, name), name
        assert {m: _all(x) for m, x in replayed.members.items()} == {
            m: _all(x) for m, x in group.members.items()
        }


def _all(member: Any) -> dict[str, object]:
    return {name: getattr(member, name) for name in member.__slots__}


class SlowlyAssigned(ConsumerGroups):
    """The same with targets that are computed like those of large groups, in the smallest steps."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(targets, "AT_ONCE_MAX", 1)
        self._patch.setattr(computations, "SLICES_PER_TURN", 1)
        for module in (targets, assignors):
            self._patch.setattr(module, "SLICE", 1)

    def teardown(self) -> None:
        self._patch.undo()


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=amount(40), stateful_step_count=30, deadline=None)
TestSlowlyAssigned = SlowlyAssigned.TestCase
TestSlowlyAssigned.settings = settings(max_examples=amount(40), stateful_step_count=30, deadline=None)
