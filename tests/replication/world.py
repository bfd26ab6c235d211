"""A few replicas, a controller and a network that delays and loses, around the real replication core.

Every step is one event; after each, `check` says whether a promise was broken:
- candidate completeness: an eligible replica has every record that was acknowledged or read;
- a consumed offset always has the same record, and consumed offsets leave no gap;
- the high watermark that clients see never moves back, also across leaders.

The promised faults: any broker may crash and lose what it had not synced, as long as one other that may be
elected is up; brokers may be cut off, fenced, slow to hear of metadata; messages may be late or lost, and
overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.replication.epochs import EpochEnd, ReplicaLog, diverging_epoch
from penstock.replication.follower import (
    Append,
    FetchAnswer,
    FetchPosition,
    FollowerState,
    Hold,
    SetAside,
    Truncate,
)
from penstock.replication.leader import IsrProposal, LeaderState, Reaction
from tests.replication.controller import NOBODY, ModelController, PartitionMetadata
from tests.replication.leaders import MAX_LAG_MS, Registered
from tests.replication.logs import ModelLog, Record

_FETCH_MOST = 2


class BrokenPromise(AssertionError):
    """What a user would see go wrong."""


class Rules(NamedTuple):
    """The code under test; mutations put something else here."""

    leader: type[LeaderState] = LeaderState
    follower: type[FollowerState] = FollowerState
    diverging: Callable[[ReplicaLog, int, int, int], EpochEnd | None] = diverging_epoch
    #: whether a leader recovers only a high watermark that all other replicas have reported in its epoch
    reported_by_all: bool = True


REAL_RULES = Rules()


@dataclass
class Node:
    id: int
    broker_epoch: int
    log: ModelLog = field(default_factory=ModelLog)
    alive: bool = True
    #: what it has heard from the controller
    metadata: PartitionMetadata | None = None
    registered: dict[int, Registered] = field(default_factory=dict)
    leader: LeaderState | None = None
    follower: FollowerState | None = None
    #: (offset, value) of acks=all appends without a response yet
    unanswered: list[tuple[int, str]] = field(default_factory=list)
    #: whether it may have known of more that is committed before it crashed
    forgetful: bool = False


class World:
    def __init__(self, brokers: int, rules: Rules = REAL_RULES, min_isr: int = 2) -> None:
        self.rules = rules
        self.now_ms = 0
        self.controller = ModelController(range(brokers), min_isr)
        self.nodes = [Node(i, self.controller.brokers[i].epoch) for i in range(brokers)]
        self.network: list[Callable[[], None]] = []
        self.consumed: dict[int, Record] = {}
        self.acknowledged: dict[int, str] = {}
        self._values = 0
        for node in range(brokers):
            self.learn(node)

    # -- events; each takes the number of a node, and does nothing where it cannot happen

    def produce(self, at: int, acks_all: bool) -> None:
        node = self.nodes[at]
        if not node.alive or node.leader is None or (acks_all and not node.leader.enough_replicas()):
            return
        self._values += 1
        value = f"v{self._values}"
        if acks_all:
            node.unanswered.append((node.log.end_offset, value))
        node.log.append(node.leader.leader_epoch, value)
        node.leader.local_end_advanced(node.log.end_offset, self.now_ms)
        self._settle(node)

    def fetch(self, at: int) -> None:
        node = self.nodes[at]
        follower = node.follower
        if node.alive and follower is not None and (position := follower.next_fetch(self.now_ms)) is not None:
            epoch = node.broker_epoch
            self.network.append(lambda: self._serve(node, epoch, follower, position))

    def deliver(self, index: int) -> None:
        if self.network:
            self.network.pop(index % len(self.network))()

    def lose(self, index: int) -> None:
        if self.network:
            self.network.pop(index % len(self.network))

    def learn(self, at: int) -> None:
        """The node hears of all the metadata there is."""
        node = self.nodes[at]
        if not node.alive:
            return
        old, new = node.metadata, self.controller.partition
        node.metadata = new
        node.registered = {broker: copy(r) for broker, r in self.controller.brokers.items()}
        if old is None or new.leader_epoch > old.leader_epoch:
            self._take_role(node, new)
        elif node.leader is not None:
            node.leader.metadata_changed(new.partition_epoch, range(len(self.nodes)), new.isr, self.now_ms)
        self._settle(node)

    def tick(self, at: int, ms: int) -> None:
        self.now_ms += ms
        node = self.nodes[at]
        if node.alive and node.leader is not None:
            self._request(node, node.leader, node.leader.tick(self.now_ms))

    def retry_proposal(self, at: int) -> None:
        node = self.nodes[at]
        if node.alive and node.leader is not None:
            proposal = node.leader.proposal
            if proposal is not None:
                reaction = node.leader.rejected(proposal, ErrorCode.NETWORK_EXCEPTION, self.now_ms)
                assert reaction is Reaction.RETRY
                self._request(node, node.leader, proposal)

    def sync(self, at: int) -> None:
        log = self.nodes[at].log
        log.durable = log.end_offset

    def crash(self, at: int, lost: int) -> None:
        """The node dies, with up to `lost` of the records that it has not synced."""
        node = self.nodes[at]
        if node.alive and self._can_spare(at):
            node.alive = False
            node.log.truncate_to(max(node.log.durable, node.log.end_offset - lost))
            node.log.high_watermark = node.log.log_start_offset
            node.forgetful = True
            node.leader = node.follower = node.metadata = None
            node.unanswered.clear()

    def restart(self, at: int) -> None:
        node = self.nodes[at]
        if not node.alive:
            node.alive = True
            node.broker_epoch = self.controller.register(at)

    def recover_high_watermark(self, at: int) -> None:
        """A leader below min ISR queries all other replicas for the high watermark."""
        node, others = self.nodes[at], [other for other in self.nodes if other.id != at]
        leader = node.leader
        if not node.alive or leader is None or not leader.needs_high_watermark_recovery(self.now_ms):
            return
        reporting = [other for other in others if self._can_decide(other, leader)]
        if len(reporting) == len(others) or (reporting and not self.rules.reported_by_all):
            leader.recover_high_watermark(max(other.log.high_watermark for other in reporting))
            self._settle(node)

    def _can_decide(self, node: Node, leader: LeaderState) -> bool:
        """What a broker forgets in a crash it has noted not long before; here it has noted nothing."""
        node.forgetful &= node.log.high_watermark < len(self.consumed)
        epoch = -1 if node.metadata is None else node.metadata.leader_epoch
        return node.alive and not node.forgetful and epoch == leader.leader_epoch

    def fence(self, at: int) -> None:
        if self._can_spare(at):
            self.controller.fence(at)

    def unfence(self, at: int) -> None:
        if self.nodes[at].alive and self.nodes[at].broker_epoch == self.controller.brokers[at].epoch:
            self.controller.unfence(at)

    def _can_spare(self, at: int) -> bool:
        others = self.controller.partition.candidates - {at}
        return any(self.nodes[n].alive for n in others)

    # -- promises

    def check(self) -> None:
        for at in self.controller.partition.candidates:
            node = self.nodes[at]
            if not node.alive:
                continue
            for offset, record in self.consumed.items():
                if node.log.read(offset, 1) != [record]:
                    raise BrokenPromise(f"candidate {at} lacks offset {offset}, {record}, that was read")
            for offset, value in self.acknowledged.items():
                held = node.log.read(offset, 1)
                if not held or held[0][1] != value:
                    raise BrokenPromise(f"candidate {at} lacks {value} at {offset}, that was acknowledged")

    def heal(self) -> None:
        """With every broker up and nothing lost, all agree in the end."""
        for _ in range(40):
            # No lag to speak of: just so that one thing is later than another.
            self.now_ms += 1
            for at, node in enumerate(self.nodes):
                self.restart(at)
                self.unfence(at)
                self.learn(at)
                self.retry_proposal(at)
                self.fetch(at)
                node.log.durable = node.log.end_offset
            while self.network:
                self.deliver(0)
            self.check()
        partition = self.controller.partition
        leader = self.nodes[partition.leader]
        if partition.isr != frozenset(range(len(self.nodes))) or partition.leader == NOBODY:
            raise BrokenPromise(f"in sync are only {sorted(partition.isr)} of {len(self.nodes)}")
        for node in self.nodes:
            if node.log.records != leader.log.records or node.log.high_watermark != leader.log.end_offset:
                raise BrokenPromise(f"{node.id} has not converged")

    # -- what the shell of a broker does

    def _take_role(self, node: Node, partition: PartitionMetadata) -> None:
        node.leader = node.follower = None
        node.unanswered.clear()
        if partition.leader == node.id:
            node.leader = self.rules.leader(
                broker=node.id,
                broker_epoch=node.broker_epoch,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=range(len(self.nodes)),
                isr=partition.isr,
                min_isr=self.controller.min_isr,
                end_offset=node.log.end_offset,
                local_end=node.log.end_offset,
                high_watermark=node.log.high_watermark,
                brokers=lambda broker: node.registered.get(broker),
                max_lag_ms=MAX_LAG_MS,
                now_ms=self.now_ms,
            )
        elif partition.leader != NOBODY:
            node.follower = self.rules.follower(partition.leader, partition.leader_epoch, node.log, 0)

    def _serve(self, source: Node, broker_epoch: int, follower: FollowerState, sent: FetchPosition) -> None:
        """The leader answers a fetch, which may be of an incarnation that is gone by now."""
        node = self.nodes[follower.leader]
        if not node.alive:
            return
        answer, records = self._read(node, source.id, broker_epoch, sent)
        self.network.append(lambda: self._answered(source, follower, sent, answer, records))

    def _read(
        self, node: Node, replica: int, broker_epoch: int, sent: FetchPosition
    ) -> tuple[FetchAnswer, list[Record]]:
        leader, log = node.leader, node.log
        if leader is None or leader.leader_epoch != sent.leader_epoch:
            return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), []
        try:
            diverging = self.rules.diverging(
                log, leader.leader_epoch, sent.fetch_offset, sent.last_fetched_epoch
            )
            if diverging is not None:
                return FetchAnswer(diverging=diverging), []
            proposal = leader.follower_fetched(
                replica, broker_epoch, sent.fetch_offset, sent.log_start_offset, self.now_ms
            )
        except ApiError as e:
            return FetchAnswer(e.code), []
        self._request(node, leader, proposal)
        self._settle(node)
        answer = FetchAnswer(high_watermark=log.high_watermark, log_start_offset=log.log_start_offset)
        return answer, log.read(sent.fetch_offset, _FETCH_MOST)

    def _answered(
        self,
        node: Node,
        follower: FollowerState,
        sent: FetchPosition,
        answer: FetchAnswer,
        records: list[Record],
    ) -> None:
        if not node.alive or node.follower is not follower:
            return
        step = follower.answered(sent, answer, self.now_ms)
        if step is Hold.LIST_OFFSETS:
            log = self.nodes[follower.leader].log
            step = follower.offsets_listed(sent, log.log_start_offset, log.end_offset, self.now_ms)
        if isinstance(step, SetAside):
            raise BrokenPromise(f"{node.id} has to cut {step.offset}, below its high watermark")
        if isinstance(step, Truncate):
            node.log.truncate_to(step.offset)
        elif isinstance(step, Append):
            for epoch, value in records:
                node.log.append(epoch, value)
            node.log.advance_high_watermark(step.high_watermark)

    def _request(self, node: Node, leader: LeaderState, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            epoch, until_ms = node.broker_epoch, self.now_ms + MAX_LAG_MS
            self.network.append(lambda: self._decide(node, epoch, leader, proposal, until_ms))

    def _decide(
        self, node: Node, broker_epoch: int, leader: LeaderState, proposal: IsrProposal, until_ms: int
    ) -> None:
        if self.now_ms >= until_ms:
            return  # a controller that has not served a request for so long is not the active one any more
        if not any(self.nodes[member.broker].alive for member in proposal.isr):
            return  # would leave only the dead in charge: more than the promised faults
        error = self.controller.alter_partition(node.id, broker_epoch, proposal)
        partition = self.controller.partition

        def answered() -> None:
            if not node.alive or node.leader is not leader:
                return
            if error is ErrorCode.NONE:
                leader.accepted(
                    proposal, partition.partition_epoch, partition.leader_epoch, partition.isr, self.now_ms
                )
            else:
                leader.rejected(proposal, error, self.now_ms)
            self._settle(node)

        self.network.append(answered)

    def _settle(self, node: Node) -> None:
        """After anything that may move the high watermark: readers read, producers are answered."""
        leader, log = node.leader, node.log
        if leader is None:
            return
        if leader.high_watermark < log.high_watermark:
            raise BrokenPromise(f"the high watermark of {node.id} moved back")
        for offset in range(log.high_watermark, leader.high_watermark):
            record = log.records[offset]
            if self.consumed.setdefault(offset, record) != record:
                raise BrokenPromise(f"offset {offset} was {self.consumed[offset]} and is {record}")
        log.advance_high_watermark(leader.high_watermark)
        if len(self.consumed) <= max(self.consumed, default=-1):
            raise BrokenPromise("there is a gap in what was read")
        is_current = leader.leader_epoch == self.controller.partition.leader_epoch
        if is_current and leader.latest_offset_known() and leader.high_watermark < len(self.consumed):
            raise BrokenPromise("clients see the high watermark move back with the new leader")
        while node.unanswered and (code := leader.acknowledgement(node.unanswered[0][0] + 1)) is not None:
            offset, value = node.unanswered.pop(0)
            if code is ErrorCode.NONE:
                self.acknowledged[offset] = value
