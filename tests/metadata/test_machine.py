"""Random histories of decisions, with the promises of the issue checked after every record."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.metadata.brokers import unregister_broker
from penstock.metadata.configs import config_records
from penstock.metadata.elect_leaders import ElectionType, elect_leader
from penstock.metadata.election import balance_leaders
from penstock.metadata.image import NO_LEADER, RECOVERED, TOPIC, PartitionImage
from penstock.metadata.policy import MIN_ISR, UNCLEAN, min_isr
from penstock.metadata.rebalance import plan_rebalance
from penstock.metadata.topics import delete_topic, grow_topic
from penstock.model.errors import ApiError
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.wire.apis.alter_partition import AlterPartitionResponsePartition
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct
from tests.amounts import amount
from tests.metadata.replays import replayed, state
from tests.metadata.stage import Stage

NODES = range(1, 5)
TOPICS = ("s", "t")
nodes = st.sampled_from(NODES)
placements = st.lists(nodes, min_size=1, max_size=4, unique=True)
names = st.sampled_from(TOPICS)


class CheckedStage(Stage):
    """Compares every partition with what it was, record by record."""

    #: set while a client requests an unclean election
    unclean_requested = False
    #: replicas that a leader just said are in sync
    vouched_for: frozenset[int] = frozenset()
    #: the broker that just came back without knowing what it has, or was forgotten
    lost: frozenset[int] = frozenset()

    def commit(self, records: Sequence[Struct]) -> None:
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                self._change(record)
            else:
                super().commit([record])

    def alter(
        self, partition: PartitionImage, isr: Sequence[int], **changes: object
    ) -> AlterPartitionResponsePartition:
        self.vouched_for = frozenset(isr)
        answer = super().alter(partition, isr, **changes)
        self.vouched_for = frozenset()
        return answer

    def _change(self, record: PartitionChangeRecord) -> None:
        topic = self.image.topics_by_id[TopicId(record.topic_id)]
        partition = topic.partitions[record.partition_id]
        leader, leader_epoch, epoch = partition.leader, partition.leader_epoch, partition.partition_epoch
        gone = set(partition.replicas)
        complete = {*partition.isr, *partition.elr}
        # Without one that has everything, all registered replicas have to be there to compare (KIP-966).
        brokers = [self.image.brokers[node] for node in partition.replicas if node in self.image.brokers]
        recovers = not complete - self.lost and all(b.active for b in brokers if len(partition.replicas) > 1)
        super().commit([record])
        gone -= set(partition.replicas)
        assert partition.partition_epoch == epoch + 1
        assert partition.leader_epoch == leader_epoch + (partition.leader != leader or bool(gone))
        if partition.leader not in (leader, NO_LEADER):
            assert (
                partition.leader in {*complete, *self.vouched_for}
                or (recovers and partition.leader in partition.replicas)
                or self.unclean_requested
                or self.policy.unclean(self.image, topic.name)
            )


class Decisions(RuleBasedStateMachine):
    @initialize(placed=st.tuples(placements, placements), minimum=st.integers(1, 3), unclean=st.booleans())
    def start(self, placed: tuple[list[int], list[int]], minimum: int, unclean: bool) -> None:
        self.stage = CheckedStage(len(NODES))
        for name, replicas in zip(TOPICS, placed, strict=True):
            self.stage.topic(name, replicas, min_isr=minimum, unclean=unclean)

    def first_of(self, topic: str) -> PartitionImage | None:
        known = self.stage.image.topics.get(topic)
        return None if known is None else known.partitions[0]

    @rule(node=nodes, clean=st.booleans())
    def register(self, node: int, clean: bool) -> None:
        clean = clean and node in self.stage.image.brokers
        self.stage.lost = frozenset() if clean else frozenset({node})
        self.stage.register(node, clean=clean)
        self.stage.lost = frozenset()

    @rule(node=nodes, fence=st.booleans(), stop=st.booleans(), heard=st.booleans())
    def beat(self, node: int, fence: bool, stop: bool, heard: bool) -> None:
        if node in self.stage.image.brokers:
            self.stage.beat(node, fence=fence, stop=stop, lowest=self.stage.image.offset if heard else 0)

    @rule(node=nodes)
    def come_up(self, node: int) -> None:
        if node in self.stage.image.brokers:
            self.stage.beat(node)

    @rule(node=nodes)
    def fence(self, node: int) -> None:
        if node in self.stage.image.brokers:
            self.stage.fence(node)

    @rule(node=nodes)
    def unregister(self, node: int) -> None:
        if node in self.stage.image.brokers:
            try:
                records = at_once(unregister_broker(self.stage.image, self.stage.policy, node))
            except ApiError:
                # It is up and has the last in-sync replica of a partition.
                assert not self.stage.image.brokers[node].fenced
                return
            self.stage.lost = frozenset({node})
            self.stage.commit(records)
            self.stage.lost = frozenset()

    @rule(name=names, replicas=placements, minimum=st.integers(1, 3), unclean=st.booleans())
    def create(self, name: str, replicas: list[int], minimum: int, unclean: bool) -> None:
        try:
            self.stage.topic(name, replicas, min_isr=minimum, unclean=unclean)
        except ApiError:
            up = [node for node in replicas if self._active(node)]
            unknown = [node for node in replicas if node not in self.stage.image.brokers]
            assert name in self.stage.image.topics or unknown or not up

    def _active(self, node: int) -> bool:
        broker = self.stage.image.brokers.get(node)
        return broker is not None and broker.active

    @rule(name=names, count=st.integers(1, 3))
    def grow(self, name: str, count: int) -> None:
        known = self.stage.image.topics.get(name)
        up = sum(broker.active for broker in self.stage.image.brokers.values())
        if known is not None and len(known.partitions) < 4 and len(known.partitions[0].replicas) <= up:
            self.stage.commit(
                at_once(grow_topic(self.stage.image, name, len(known.partitions) + count, None))
            )

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.stage.image.topics:
            self.stage.commit(delete_topic(self.stage.image.topics[name]))

    @rule(name=names, wanted=st.lists(nodes, max_size=4, unique=True))
    def alter_isr(self, name: str, wanted: list[int]) -> None:
        partition = self.first_of(name)
        if partition is not None and partition.leader != NO_LEADER:
            isr = [node for node in wanted if node != partition.leader]
            self.stage.alter(partition, [partition.leader, *isr], leader_recovery_state=RECOVERED)

    @rule(name=names)
    def everybody_catches_up(self, name: str) -> None:
        partition = self.first_of(name)
        if partition is not None and partition.leader != NO_LEADER:
            isr = [node for node in partition.replicas if self._active(node)]
            self.stage.alter(partition, isr, leader_recovery_state=RECOVERED)

    @rule(name=names, replicas=st.none() | placements)
    def reassign(self, name: str, replicas: list[int] | None) -> None:
        if name in self.stage.image.topics:
            self.stage.reassign({0: replicas}, name=name)

    @rule()
    def rebalance(self) -> None:
        for (topic, index), replicas in plan_rebalance(self.stage.image, {}):
            assert self.stage.reassign({index: replicas}, name=topic) == [(0, None)]

    @rule(name=names, kind=st.sampled_from(ElectionType))
    def elect(self, name: str, kind: ElectionType) -> None:
        stage = self.stage
        try:
            reports = {p.key: stage.reports(p) for p in stage.image.leaderless.values()}
            record = elect_leader(stage.image, stage.policy, name, 0, kind, reports)
        except ApiError:
            return
        stage.unclean_requested = kind is ElectionType.UNCLEAN
        stage.commit([record])
        stage.unclean_requested = False

    @rule()
    def balance(self) -> None:
        self.stage.commit(balance_leaders(self.stage.image, self.stage.policy, 0))

    @rule(name=names, minimum=st.integers(1, 3), unclean=st.booleans())
    def configure(self, name: str, minimum: int, unclean: bool) -> None:
        if name in self.stage.image.topics:
            values = {MIN_ISR: str(minimum), UNCLEAN: str(unclean).lower()}
            self.stage.commit(config_records(self.stage.image, (TOPIC, name), values))
            self.stage.recover()

    @rule(ends=st.dictionaries(nodes, st.integers(0, 3)))
    def recover(self, ends: dict[int, int]) -> None:
        self.stage.recover(ends)

    @invariant()
    @precondition(lambda self: hasattr(self, "stage"))
    def partitions_are_sound(self) -> None:
        image = self.stage.image
        for partition in image.partitions:
            replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
            assert len(replicas) == len(partition.replicas) == len(partition.directories)
            assert len(isr) == len(partition.isr)
            assert isr <= replicas
            assert elr <= replicas
            assert not isr & elr
            assert partition.leader in isr if partition.leader != NO_LEADER else not isr
            assert {*partition.adding, *partition.removing} <= replicas
            assert not set(partition.adding) & set(partition.removing)
            for node in isr:
                assert image.brokers[node].active
            assert elr <= image.brokers.keys()
            topic = image.topics_by_id[partition.topic_id].name
            minimum = min_isr(image, topic, len(partition.replicas))
            assert len(isr) < minimum or not elr

    @invariant()
    @precondition(lambda self: hasattr(self, "stage"))
    def indexes_are_right(self) -> None:
        image = self.stage.image
        for node in NODES:
            held = {partition.key for partition in image.partitions if node in partition.replicas}
            assert {partition.key for partition in image.partitions_on(node)} == held
            assert image.preferred[node] == sum(p.replicas[0] == node for p in image.partitions)
        assert image.leaderless == {p.key: p for p in image.partitions if p.leader == NO_LEADER}
        astray = {p.key: p for p in image.partitions if p.leader != p.replicas[0]}
        assert {key: p for found in image.astray.values() for key, p in found.items()} == astray
        assert all(p.replicas[0] == node for node, found in image.astray.items() for p in found.values())
        assert all(image.astray.values())

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            assert state(replayed(self.stage.image)) == state(self.stage.image)


TestDecisions = Decisions.TestCase
TestDecisions.settings = settings(max_examples=amount(200), stateful_step_count=50, deadline=None)
