"""Reads the state of real brokers after each of their steps, and passes changes to the invariants.

Only the node whose process ran can have changed. Of its logs, only truncated or appended batches are read, to
keep the cost low. Observation writes nothing and has no effect on a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.coordination.partitioning import partition_of
from penstock.metadata.image import RECOVERING, ClusterImage
from penstock.metadata.policy import UNCLEAN
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC, OFFSETS_TOPIC, TopicPartition
from penstock.ports import Clock
from penstock.raft.node import RaftNode
from penstock.raft.roles import Nominee
from penstock.storage.config import LogConfig
from penstock.storage.log import Log
from penstock.testing.simulation.history import Event
from penstock.testing.simulation.invariants import (
    BatchView,
    PartitionInvariants,
    PartitionView,
    RaftInvariants,
    RaftView,
    ReplicaView,
)
from penstock.testing.simulation.log_mirror import Appended, LogMirror
from penstock.testing.simulation.log_starts import LogStarts, StartView
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.ports import SimClock
from penstock.testing.simulation.process import Process

__all__ = ["Observation", "incarnation", "partition_views"]

#: a replica, its log end, high watermark, recovery point and log start; whether it leads, and in which epoch
_ReplicaState: TypeAlias = tuple[Partition, int, int, int, int, int, bool, int]


class _Seen:
    """The state of a broker at its last observation since its start."""

    def __init__(self, broker: Broker, *, after_clean_stop: bool) -> None:
        self.broker = broker
        #: whether its last life ended otherwise, and its registration has not been looked at
        self.unclean = not after_clean_stop
        self.raft: tuple[object, ...] = ()
        self.metadata = LogMirror()
        #: the states of all replicas after the last step, if all of them could be read
        self.states: list[_ReplicaState] | None = None
        self.replicas: dict[Partition, _ReplicaState] = {}
        self.names: dict[Partition, TopicPartition] = {}
        self.logs: dict[Partition, LogMirror] = {}
        #: of logs that were tampered with: batches as they were found, and as they were appended
        self.rot: dict[TopicPartition, dict[BatchView, BatchView]] = {}
        #: a replica that was set aside has another log afterwards
        self.opened: dict[Partition, Log] = {}
        #: the epoch in which it leads the partition of the simulated group's offsets, if it does
        self.coordinates: int | None = None
        #: the image when that was last looked at
        self.image: ClusterImage | None = None


class Observation:
    """Checks every named invariant; `after_step` is for the loop.

    `coordinates` is called when a broker begins or ceases to lead the partition that stores `group`, by its
    own metadata: with the node and the leader epoch, None when it ceases.
    """

    def __init__(
        self, nodes: Sequence[Node], group: str, coordinates: Callable[[Node, int | None], None]
    ) -> None:
        self._group = group
        self._coordinates = coordinates
        self._nodes = {node.name: node for node in nodes}
        self._seen: dict[int, _Seen] = {}
        self._raft = RaftInvariants()
        self._partitions = PartitionInvariants()
        self._starts = LogStarts()
        self._image_offset = -1
        self._suspended = False

    @property
    def committed_metadata(self) -> int:
        return self._raft.committed_end

    def suspend(self) -> None:
        """Check nothing from now on: the cluster may have to start over from an older state."""
        self._suspended = True

    def quorum_recovered(self) -> None:
        """As `RaftInvariants.recovered`."""
        self._raft.recovered()

    def tampered(
        self, replicas: AbstractSet[tuple[int, TopicPartition]], kept: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """As `PartitionInvariants.tampered`; the metadata log's replicas may be among them."""
        for node_id, partition in replicas:
            if partition.topic == METADATA_TOPIC:
                self._raft.tampered(node_id)
        return self._partitions.tampered(replicas, kept)

    def after_step(self, process: Process) -> None:
        """Raises Violation."""
        node = self._nodes.get(process.host)
        if (
            node is None
            or node.process is not process
            or node.program is None
            or self._suspended
            or process.is_dead
        ):
            return
        seen = self._seen.get(node.id)
        if seen is None or seen.broker is not node.program:
            if seen is not None and seen.coordinates is not None:
                self._coordinates(node, None)
            seen = self._seen[node.id] = _Seen(node.program, after_clean_stop=node.after_clean_stop)
            self._raft.restarted(node.id)
        self._look_at_quorum(seen)
        if seen.broker.stages.cluster.image.offset > self._image_offset:
            self._look_at_image(seen.broker.stages.cluster.image)
        if seen.unclean:
            self._look_at_registration(seen)
        if self._look_at_replicas(seen) or seen.image is not seen.broker.stages.cluster.image:
            seen.image = seen.broker.stages.cluster.image
            self._look_at_coordinator(node, seen)

    def saw(self, event: Event) -> None:
        """An event of a client's history."""
        self._starts.observe(event)

    def _look_at_registration(self, seen: _Seen) -> None:
        lifecycle = seen.broker.stages.replication.lifecycle
        if lifecycle is not None and lifecycle.epoch >= 0:
            seen.unclean = False
            self._partitions.came_back_unclean(seen.broker.stages.config.node_id)

    def _look_at_quorum(self, seen: _Seen) -> None:
        broker_node = seen.broker.stages.cluster.node
        driver, log = broker_node.quorum, broker_node.log
        # A vote counts once it is on the disk. Messages that wait for that have not been sent yet.
        if driver.is_saving or driver.failure is not None:
            return
        node = driver.node
        quorum, stored = node.quorum, log.log
        state = (
            quorum.state,
            quorum.role,
            stored.end_offset,
            stored.leader_epochs.latest,
            quorum.high_watermark,
            quorum.flushed_offset,
            log.snapshot,
        )
        if state == seen.raft:
            return
        seen.raft = state
        try:
            appended = seen.metadata.refresh(stored)
        except PenstockError:
            return  # a disk that has failed has nothing to show
        for part in appended:
            self._raft.appended(quorum.key.id, *part)
        self._raft.check(_raft_view(node, seen.metadata.batches))

    def _look_at_image(self, image: ClusterImage) -> None:
        self._image_offset = image.offset
        fenced = {broker.id for broker in image.brokers.values() if broker.fenced}
        self._partitions.image_changed(partition_views(image), fenced)

    def _look_at_coordinator(self, node: Node, seen: _Seen) -> None:
        broker = seen.broker
        topic = broker.stages.cluster.image.topics.get(OFFSETS_TOPIC)
        epoch: int | None = None
        if topic is not None:
            found = broker.stages.storage.partitions.find(
                OFFSETS_TOPIC, partition_of(self._group, len(topic.partitions))
            )
            epoch = found.leader_epoch if isinstance(found, Partition) and found.leading else None
        if epoch != seen.coordinates:
            seen.coordinates = epoch
            self._coordinates(node, epoch)

    def _look_at_replicas(self, seen: _Seen) -> bool:
        """Returns true if the state of a replica has changed."""
        states: list[_ReplicaState] = [
            (
                partition,
                (log := partition.log).end_offset,
                log.high_watermark,
                log.durability.recovery_point,
                log.log_start_offset,
                log.explained_start,
                partition.leading,
                partition.leader_epoch,
            )
            for partition in seen.broker.stages.storage.partitions
        ]
        if states == seen.states:  # as after most steps
            return False
        known, is_complete = seen.replicas, True
        for state in states:
            if known.get(state[0]) != state:
                is_complete &= self._look_at_replica(seen, state[0], state)
        seen.states = states if is_complete else None
        return True

    def _look_at_replica(self, seen: _Seen, partition: Partition, state: _ReplicaState) -> bool:
        """Check a replica whose state has changed. Returns false if its log cannot be read."""
        log, known = partition.log, seen.replicas.get(partition)
        # Not what the replica counts for, which is what the invariants judge.
        synced_end = log.recovery_point if partition.sync.flusher.acks_wait else log.end_offset
        ends = log.end_offset, log.high_watermark, synced_end
        mirror = seen.logs.get(partition)
        if mirror is None:
            mirror = seen.logs[partition] = LogMirror()
            seen.names[partition] = incarnation(partition.topic, partition.topic_id, partition.index)
        stored_end = mirror.batches[-1].end if mirror.batches else 0
        gone = mirror.before(log.log_start_offset)
        name = seen.names[partition]
        tampered = self._partitions.is_tampered(seen.broker.stages.config.node_id, name)
        try:
            appended = mirror.refresh(log, tampered=tampered)
        except PenstockError:
            # The broker has not noticed damage yet, which in an encrypted file is never one bit of records
            # alone; the end of its log is known all the same.
            self._partitions.replica_changed(ReplicaView(name, seen.broker.stages.config.node_id, *ends))
            return False
        if known is not None and seen.opened.get(partition) is log:
            committed = min(stored_end, known[2])
            self._partitions.kept(name, seen.broker.stages.config.node_id, committed, log.end_offset)
        seen.replicas[partition] = state
        seen.opened[partition] = log
        if tampered:
            appended = self._as_appended(seen, name, appended, is_first_look=known is None)
        for part in appended:
            if part.batches:
                self._partitions.appended(name, seen.broker.stages.config.node_id, *part)
        self._partitions.replica_changed(ReplicaView(name, seen.broker.stages.config.node_id, *ends))
        if (not tampered and not _same_start(known, state)) or (tampered and partition.leading):
            self._starts.check(
                _start_view(seen.broker, name, partition, None if known is None else gone, mirror.batches)
            )
        return True

    def _as_appended(
        self, seen: _Seen, name: TopicPartition, parts: Sequence[Appended], *, is_first_look: bool
    ) -> list[Appended]:
        """Batches of a log that was tampered with, before bits of their headers changed."""
        rot = seen.rot.setdefault(name, {})
        if is_first_look:
            found = [batch for part in parts for batch in part.batches]
            rot.update((batch, self._partitions.as_appended(name, batch)) for batch in found)
        return [
            Appended(
                None if part.before is None else rot.get(part.before, part.before),
                [rot.get(batch, batch) for batch in part.batches],
            )
            for part in parts
        ]


def _same_start(before: _ReplicaState | None, now: _ReplicaState) -> bool:
    """Returns true if the log start, the role and the epoch are as before, and the log start is allowed."""
    return before is not None and before[4:] == now[4:] and now[4] <= now[2]


def _start_view(
    broker: Broker,
    name: TopicPartition,
    partition: Partition,
    gone: Sequence[BatchView] | None,
    batches: Sequence[BatchView],
) -> StartView:
    """`gone` are the batches before the new log start, None if the log was not observed before."""
    log = partition.log
    return StartView(
        partition=name,
        name=TopicPartition(partition.topic, partition.index),
        node_id=broker.stages.config.node_id,
        start=log.log_start_offset,
        high_watermark=log.high_watermark,
        leads=partition.leading,
        leader_epoch=partition.leader_epoch,
        is_new=gone is None,
        first_end=batches[0].end if batches else log.log_start_offset,
        expired=_expired(log.config, gone, _true_ms(broker.stages.world.clock)),
        explained=log.explained_start >= log.log_start_offset,
    )


def _true_ms(clock: Clock) -> int:
    """The right time, whatever the clock of the broker shows: nothing may be deleted before its time."""
    assert isinstance(clock, SimClock)
    return clock.true_ms()


def _expired(config: LogConfig, gone: Sequence[BatchView] | None, now_ms: int) -> bool:
    """Returns true if retention expires the batches that are gone; false for a log without an observation."""
    if not config.delete or config.retention_ms < 0:
        return False
    return (
        gone is None
        or max((batch.timestamp_ms for batch in gone), default=now_ms) < now_ms - config.retention_ms
    )


def _raft_view(node: RaftNode, batches: Sequence[BatchView]) -> RaftView:
    role, snapshot = node.quorum.role, node.quorum.log.snapshot
    return RaftView(
        node_id=node.quorum.key.id,
        epoch=node.quorum.epoch,
        is_leader=node.quorum.is_leader,
        pre_vote=role if isinstance(role, Nominee) and role.pre_vote else None,
        voted_for=None if node.quorum.state.voted is None else node.quorum.state.voted.id,
        batches=batches,
        end=node.quorum.log.end_offset,
        high_watermark=node.quorum.high_watermark,
        flushed_end=node.quorum.flushed_offset,
        snapshot_end=0 if snapshot is None else snapshot.offset,
        voters=frozenset(voter.key.id for voter in node.quorum.voters),
    )


def incarnation(topic: str, topic_id: bytes, index: int) -> TopicPartition:
    """A partition's name that no other topic's has, made again under the same name."""
    return TopicPartition(f"{topic}#{topic_id.hex()[:8]}", index)


def partition_views(image: ClusterImage) -> list[PartitionView]:
    return [
        PartitionView(
            incarnation(topic.name, topic.id, partition.index),
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(partition.replicas),
            tuple(partition.isr),
            tuple(partition.elr),
            partition.leader_recovery == RECOVERING,
            tuple(partition.last_known_leader),
            image.topic_configs(topic.name).get(UNCLEAN) == "true",
        )
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    ]
