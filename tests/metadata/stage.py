"""A cluster's metadata on a stage: decisions are made on the image, logged and applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from penstock.metadata.alter_partition import alter_partition
from penstock.metadata.brokers import fence_broker, heartbeat, register_broker
from penstock.metadata.configs import settle_min_isr
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.metadata.policy import MIN_ISR, UNCLEAN, Policy
from penstock.metadata.reassignment import alter_reassignments
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.metadata.unclean_recovery import ReplicaReport, recover, strategy_for
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponsePartition,
    BrokerState,
)
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.wire.apis.broker_registration import BrokerRegistrationRequest
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct

CLUSTER = "a-cluster"
NO_OFFSET = 2**62


class Stage:
    """`brokers` are registered and up from the start."""

    def __init__(self, brokers: int = 0, policy: Policy | None = None) -> None:
        self.image = ClusterImage()
        self.policy = policy or Policy()
        self.log: list[Struct] = []
        self._ids = count(1000)
        self.commit([FeatureLevelRecord(name="metadata.version", feature_level=30)])
        self.commit(settle_min_isr(self.image, 2))
        for node in range(1, brokers + 1):
            self.register(node)
            self.beat(node)

    def commit(self, records: Sequence[Struct]) -> None:
        for record in records:
            self.log.append(record)
            self.image.apply(record, self.image.offset + 1)

    def unique(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")

    # -- brokers --------------------------------------------------------------------------------------

    def registration(self, node: int, **changes: object) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=node,
            cluster_id=CLUSTER,
            incarnation_id=self.unique(),
            listeners=[Listener(name="INTERNAL", host=f"host{node}", port=9000 + node)],
            features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            log_dirs=[(10_000 + node).to_bytes(16, "big")],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def register(
        self, node: int, *, alive: bool = False, clean: bool = False, **changes: object
    ) -> BrokerRegistrationRequest:
        """Register a new incarnation of a broker, which is fenced then."""
        if clean:
            known = self.image.brokers[node]
            changes = {
                "previous_broker_epoch": known.epoch,
                "previous_incarnation_id": known.incarnation,
                **changes,
            }
        request = self.registration(node, **changes)
        records, epoch = at_once(
            register_broker(
                self.image,
                self.policy,
                request,
                cluster_id=CLUSTER,
                session_alive=alive,
                next_offset=self.image.offset + 1,
            )
        )
        self.commit(records)
        assert self.image.brokers[node].epoch == epoch
        return request

    def beat(
        self, node: int, *, lowest: int = NO_OFFSET, fence: bool = False, stop: bool = False
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker that has read the whole log."""
        request = BrokerHeartbeatRequest(
            broker_id=node,
            broker_epoch=self.image.brokers[node].epoch,
            current_metadata_offset=self.image.offset,
            want_fence=fence,
            want_shut_down=stop,
        )
        records, answer = at_once(heartbeat(self.image, self.policy, request, lowest))
        self.commit(records)
        return answer

    def fence(self, *nodes: int) -> None:
        for node in nodes:
            self.commit(at_once(fence_broker(self.image, self.policy, node)))

    # -- unclean recovery -----------------------------------------------------------------------------

    def reports(
        self, partition: PartitionImage, ends: Mapping[int, int] | None = None
    ) -> dict[int, ReplicaReport]:
        """What brokers that are up report; `ends` has the ends of logs, which are empty otherwise."""
        return {
            node: ReplicaReport(
                node, self.epoch(node), partition.leader_epoch, -1 if not end else 0, end_offset=end
            )
            for node in partition.replicas
            if node in self.image.brokers and self.image.brokers[node].active
            for end in ((ends or {}).get(node, 0),)
        }

    def recover(self, ends: Mapping[int, int] | None = None) -> dict[int, str]:
        """Elect leaders where enough is reported; returns the brokers that the last partition waits for."""
        waiting: dict[int, str] = {}
        for partition in list(self.image.leaderless.values()):
            strategy = strategy_for(self.image, self.policy, partition)
            if strategy is not None:
                recovery = recover(
                    self.image, self.policy, partition, strategy, self.reports(partition, ends)
                )
                self.commit([] if recovery.record is None else [recovery.record])
                waiting = dict(recovery.waiting_for)
        return waiting

    # -- partitions -----------------------------------------------------------------------------------

    def topic(
        self, name: str, *replicas: Sequence[int], min_isr: int | None = None, unclean: bool = False
    ) -> PartitionImage:
        """Make a topic with those replicas; returns its first partition."""
        configs: dict[str, str] = {} if min_isr is None else {MIN_ISR: str(min_isr)}
        if unclean:
            configs[UNCLEAN] = "true"
        topic = NewTopic(name, assignments=dict(enumerate(replicas)), configs=configs)
        self.commit(at_once(create_topic(self.image, topic, Defaults(1, 1), lambda: TopicId(self.unique()))))
        return self.partition(name)

    def partition(self, name: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def alter(
        self, partition: PartitionImage, isr: Sequence[int], **changes: object
    ) -> AlterPartitionResponsePartition:
        """The leader proposes `isr` with the right epochs, except for `changes`."""
        wanted = AlterPartitionRequestPartition(
            partition_index=partition.index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=node, broker_epoch=self.epoch(node)) for node in isr],
            leader_recovery_state=partition.leader_recovery,
        )
        sender = changes.pop("sender", partition.leader)
        assert isinstance(sender, int)
        for name, value in changes.items():
            setattr(wanted, name, value)
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epoch(sender),
            topics=[AlterPartitionRequestTopic(topic_id=partition.topic_id, partitions=[wanted])],
        )
        records, response = alter_partition(self.image, self.policy, request)
        self.commit(records)
        return response.topics[0].partitions[0]

    def epoch(self, node: int) -> int:
        return self.image.brokers[node].epoch if node in self.image.brokers else -1

    def reassign(
        self, targets: Mapping[int, list[int] | None], name: str = "t", allow_factor_change: bool = True
    ) -> list[tuple[int, str | None]]:
        """(error code, message) by partition."""
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=allow_factor_change,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(partition_index=i, replicas=r) for i, r in targets.items()
                    ],
                )
            ],
        )
        records, response = alter_reassignments(self.image, self.policy, request)
        self.commit(records)
        return [(p.error_code, p.error_message) for p in response.responses[0].partitions]
