"""Classic members do whatever they like; the group's promises hold all the same.

- No partition is owned by two members of one generation, and all are owned once the generation is stable.
- The last acknowledged commit is what anyone reads, whatever crashes; a stale generation never overwrites it.
- What the log says is what the group is, whenever it is stable.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.model.errors import ErrorCode
from penstock.wire.apis.heartbeat import HeartbeatRequest
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.amounts import amount
from tests.groups.shard_driver import PendingRequest, ShardDriver, subscription, topic_id

PARTITIONS = 5
NAMES = ["a", "b", "c", "d"]


class Consumer:
    """The state of one client, which may break the protocol."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.joining: PendingRequest | None = None
        self.syncing: PendingRequest | None = None
        #: what the leader has to divide
        self.members: list[str] = []
        self.owned: set[int] = set()

    def forget(self) -> None:
        self.id, self.generation, self.owned = "", -1, set()


class ClassicGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ShardDriver(topics={"t": PARTITIONS})
        self.consumers = {name: Consumer(name, "static" if name == "d" else None) for name in NAMES}
        self.committed = -1
        self.next_offset = 0

    # -- what members do

    @rule(name=st.sampled_from(NAMES), version=st.sampled_from([3, 9]))
    def join(self, name: str, version: int) -> None:
        consumer = self.consumers[name]
        consumer.owned = set()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=consumer.id,
            group_instance_id=consumer.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
        )
        client = self.driver.client(name, version)
        consumer.joining = self.driver.submit(
            name, lambda shard, pending: shard.members.join(request, client, pending)
        )
        self.hear()

    @rule(name=st.sampled_from(NAMES))
    def sync(self, name: str) -> None:
        consumer = self.consumers[name]
        members = consumer.members
        shares: dict[str, list[int]] = {member: [] for member in members}
        for index in range(PARTITIONS if members else 0):
            shares[members[index % len(members)]].append(index)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=consumer.generation,
            member_id=consumer.id,
            group_instance_id=consumer.instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=bytes(share))
                for m, share in shares.items()
            ],
        )
        consumer.syncing = self.driver.submit(
            name, lambda shard, pending: shard.members.sync(request, pending)
        )
        self.hear()

    @rule(name=st.sampled_from(NAMES))
    def heartbeat(self, name: str) -> None:
        consumer = self.consumers[name]
        request = HeartbeatRequest(
            group_id="g",
            generation_id=consumer.generation,
            member_id=consumer.id,
            group_instance_id=consumer.instance,
        )
        answer = self.driver.submit(name, lambda shard, _: shard.members.heartbeat(request))
        if answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.forget()
        self.hear()

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        consumer = self.consumers[name]
        identity = MemberIdentity(member_id=consumer.id, group_instance_id=consumer.instance)
        request = LeaveGroupRequest(group_id="g", members=[identity])
        self.driver.submit(name, lambda shard, _: shard.members.leave(request))
        consumer.forget()
        self.hear()

    @rule(name=st.sampled_from(NAMES), behind=st.integers(0, 1))
    def commit(self, name: str, behind: int) -> None:
        consumer = self.consumers[name]
        self.next_offset += 1
        generation = consumer.generation - behind
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=consumer.id,
            group_instance_id=consumer.instance,
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
        current = None if group is None else group.generation
        answer = self.driver.submit(
            name, lambda shard, _: shard.commit(request, self.driver.client(name).version)
        )
        if answer.response is not None:
            assert generation < 0 or generation == current, "a stale generation has committed"
            self.committed = self.next_offset
        self.hear()

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def behave(self, names: set[str]) -> None:
        """Some members behave correctly: join, with their id if it is required, and sync."""
        for _ in range(2):
            for name in sorted(names):
                if self.consumers[name].joining is None:
                    self.join(name, 9)
        self.time_passes(3000)
        for name in sorted(names):
            if self.consumers[name].joining is None:
                self.sync(name)

    # -- what happens to them

    @rule(ms=st.sampled_from([100, 3000, 9000, 25_000]))
    def time_passes(self, ms: int) -> None:
        self.driver.sleep(ms)
        self.hear()

    @rule()
    def coordinator_restarts(self) -> None:
        self.driver.restart()
        for consumer in self.consumers.values():
            consumer.joining = consumer.syncing = None

    def hear(self) -> None:
        """Everyone takes the answers that came."""
        for consumer in self.consumers.values():
            if consumer.joining is not None and consumer.joining.answered:
                self._joined(consumer, consumer.joining)
                consumer.joining = None
            if consumer.syncing is not None and consumer.syncing.answered:
                response = consumer.syncing.response
                if isinstance(response, SyncGroupResponse) and not response.error_code:
                    consumer.owned = set(response.assignment)
                consumer.syncing = None

    def _joined(self, consumer: Consumer, pending: PendingRequest) -> None:
        response = pending.response
        if not isinstance(response, JoinGroupResponse):
            consumer.forget()
            return
        consumer.id = response.member_id
        if response.error_code == ErrorCode.NONE:
            consumer.generation = response.generation_id
            consumer.members = [m.member_id for m in response.members]
        elif response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            consumer.forget()

    # -- what must hold

    @property
    def group(self) -> Any:
        return self.driver.shard._ledger.groups.get("g")

    @invariant()
    def no_partition_has_two_owners_in_one_generation(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for consumer in self.consumers.values():
            for index in consumer.owned:
                assert owners.setdefault((consumer.generation, index), consumer.id) == consumer.id

    @invariant()
    def a_stable_generation_owns_everything(self) -> None:
        group = self.group
        if group is not None and group.state_name == "Stable":
            shares = [set(member.assignment) for member in group.members.values()]
            if any(shares):
                assert set().union(*shares) == set(range(PARTITIONS))
                assert sum(map(len, shares)) == PARTITIONS

    @invariant()
    def the_last_acknowledged_commit_is_read(self) -> None:
        request = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        for shard in (self.driver.shard, self.driver.replica()):
            assert shard.fetch(request).topics[0].partitions[0].committed_offset == self.committed

    @precondition(lambda self: self.group is not None and self.group.state_name in ("Stable", "Empty"))
    @invariant()
    def the_log_says_what_the_group_is(self) -> None:
        replayed: Any = self.driver.replica()._ledger.groups.get("g")
        if replayed is None:
            return
        group = self.group
        if group.state_name == "Stable":
            assert replayed.generation == group.generation
            assert replayed.leader == group.leader
            assert {m.id: m.assignment for m in replayed.members.values()} == {
                m.id: m.assignment for m in group.members.values()
            }

    @invariant()
    def the_bookkeeping_is_right(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.awaiting == sum(m.join is not None for m in group.members.values())
        assert group.instances == {
            m.instance_id: m.id for m in group.members.values() if m.instance_id is not None
        }
        assert (group.leader in group.members) if group.members else True
        assert set(group.pending_syncs) <= set(group.members)


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(max_examples=amount(60), stateful_step_count=40, deadline=None)
