"""The cluster image: the state after replaying the metadata log.

Changed by `apply` alone, one record at a time, in log order; applying costs what the record says, never what
the cluster holds (only the end of a topic, or of its eligible leaders, costs its partitions). `offset` is the
last record applied. The image keeps the lists of the records given to it, so they must not change in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

from penstock.metadata.broker_image import BrokerImage, ControllerImage
from penstock.metadata.partition_image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Origin,
    PartitionImage,
    PartitionKey,
)
from penstock.metadata.scram_table import ScramCredentials
from penstock.metadata.token_table import DelegationTokens
from penstock.metadata.topic_image import NO_TIME, TopicImage, topic_of, unified_name
from penstock.model.ids import TopicId
from penstock.security.acl_store import AclStore
from penstock.security.acls import Acl
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "LINK",
    "NO_LEADER",
    "NO_TIME",
    "RECOVERED",
    "RECOVERING",
    "REVOCATION",
    "ROLE",
    "TOPIC",
    "BrokerImage",
    "ClusterImage",
    "ControllerImage",
    "Origin",
    "PartitionImage",
    "PartitionKey",
    "TopicImage",
    "topic_of",
    "unified_name",
]

#: resource types that have configs, as the protocol numbers them
TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
#: a resource type of Penstock's: a role, whose configs are named by its members
ROLE: Final = 100
#: a resource type of Penstock's: a principal whose connections are closed when its config changes (ADR 59)
REVOCATION: Final = 101
#: a resource type of Penstock's: a link to another cluster, whose topics are mirrored (ADR 93)
LINK: Final = 102

#: the entity of a client quota: types and names in the order of types; None is the default of a type
QuotaKey: TypeAlias = tuple[tuple[str, str | None], ...]


class ClusterImage:
    """Topics, brokers, controllers, configs, features, rights, credentials, quotas, the next producer id.

    Why it has more than 25 methods: one applies each type of metadata record.
    """

    def __init__(self) -> None:
        self.offset = -1
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[TopicId, TopicImage] = {}
        #: topics by their `unified_name`
        self.unified_names: dict[str, str] = {}
        self.brokers: dict[int, BrokerImage] = {}
        #: replaced when a broker changes, or gets its first or loses its last replica; compare with `is`
        self.membership = object()
        self.controllers: dict[int, ControllerImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.acls = AclStore()
        #: by user and mechanism
        self.scram = ScramCredentials()
        #: delegation tokens by their ids
        self.tokens = DelegationTokens()
        self.quotas: dict[QuotaKey, dict[str, float]] = {}
        #: replaced with every change of a quota; compare with `is`
        self.quota_generation = object()
        #: the partitions that have no leader, and those that are being reassigned
        self.leaderless: dict[PartitionKey, PartitionImage] = {}
        self.reassigning: dict[PartitionKey, PartitionImage] = {}
        #: by their first replica, the partitions that another replica leads, or none
        self.astray: dict[int, dict[PartitionKey, PartitionImage]] = {}
        self._by_replica: dict[int, dict[PartitionKey, PartitionImage]] = {}
        #: how many partitions have each broker as their first replica
        self.preferred: Counter[int] = Counter()

    def topic_configs(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC, name), {})

    def partitions_on(self, broker: int) -> Collection[PartitionImage]:
        """The partitions that have a replica on `broker`, registered or not."""
        return self._by_replica.get(broker, {}).values()

    @property
    def replica_nodes(self) -> Collection[int]:
        """The brokers that have replicas, registered or not."""
        return self._by_replica.keys()

    @property
    def partitions(self) -> Iterator[PartitionImage]:
        return (partition for topic in self.topics.values() for partition in topic.partitions.values())

    def apply(self, record: object, offset: int) -> None:
        """Take in the record at `offset` of the metadata log."""
        self.offset = offset
        _APPLY[type(record)](self, record)

    def add_topic(self, topic: TopicImage) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        self.unified_names[unified_name(topic.name)] = topic.name

    def index(self, partition: PartitionImage) -> None:
        """Let `partitions_on` and the other indexes have a partition that its topic gets."""
        self._share(partition)
        self._note_replicas(partition)
        self._note_state(partition)

    def _share(self, partition: PartitionImage) -> None:
        """Have the ids of topics and directories once: each record has copies of its own."""
        topic = self.topics_by_id.get(partition.topic_id)
        if topic is not None:
            partition.topic_id = topic.id
        if len(partition.directories) == len(partition.replicas):
            partition.directories = list(map(self._directory, partition.replicas, partition.directories))

    def _directory(self, node: int, directory: bytes) -> bytes:
        broker = self.brokers.get(node)
        known = () if broker is None else broker.log_directories
        return known[known.index(directory)] if directory in known else directory

    def _topic(self, record: TopicRecord) -> None:
        self.add_topic(topic_of(record))

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(TopicId(record.topic_id))
        del self.topics[topic.name]
        del self.unified_names[unified_name(topic.name)]
        self.configs.pop((TOPIC, topic.name), None)
        for partition in topic.partitions.values():
            self._forget_replicas(partition.key, partition.replicas)
            self.leaderless.pop(partition.key, None)
            self.reassigning.pop(partition.key, None)

    def _partition(self, record: PartitionRecord) -> None:
        partition = PartitionImage(record)
        topic = self.topics_by_id[partition.topic_id]
        topic.partitions[partition.index] = partition
        if record.changed_ms != NO_TIME:
            topic.changed_ms = record.changed_ms
        self.index(partition)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partition = self.topics_by_id[TopicId(record.topic_id)].partitions[record.partition_id]
        if record.replicas is not None:
            self._forget_replicas(partition.key, partition.replicas)
        partition.change(record)
        if record.replicas is not None:
            self._share(partition)
            self._note_replicas(partition)
        self._note_state(partition)

    def _note_state(self, partition: PartitionImage) -> None:
        key = partition.key
        for holds, index in (
            (partition.leader == NO_LEADER, self.leaderless),
            (partition.reassigning, self.reassigning),
        ):
            if holds:
                index[key] = partition
            else:
                index.pop(key, None)
        if partition.leader != partition.replicas[0]:
            self.astray.setdefault(partition.replicas[0], {})[key] = partition
        else:
            self._forget_astray(key, partition.replicas[0])

    def _forget_astray(self, key: PartitionKey, first: int) -> None:
        astray = self.astray.get(first)
        if astray is not None and astray.pop(key, None) is not None and not astray:
            del self.astray[first]

    def _note_replicas(self, partition: PartitionImage) -> None:
        self.preferred[partition.replicas[0]] += 1
        # One key for all: a cluster may have millions of replicas.
        key = partition.key
        for node in partition.replicas:
            if node not in self._by_replica:
                self._by_replica[node] = {}
                self.membership = object()
            self._by_replica[node][key] = partition

    def _forget_replicas(self, key: PartitionKey, nodes: Sequence[int]) -> None:
        self._forget_astray(key, nodes[0])
        self.preferred[nodes[0]] -= 1
        if not self.preferred[nodes[0]]:
            del self.preferred[nodes[0]]
        for node in nodes:
            held = self._by_replica[node]
            del held[key]
            if not held:
                del self._by_replica[node]
                self.membership = object()

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """No name clears all: those of every topic depend on the minimum that has changed.

        Without a leader, nothing is committed by any minimum: eligible replicas stay eligible, because no
        other replica could ever lead.
        """
        topics = [self.topics[record.topic_name]] if record.topic_name else self.topics.values()
        for topic in topics:
            for index, partition in topic.partitions.items():
                if partition.elr and partition.leader != NO_LEADER:
                    partition.change(
                        PartitionChangeRecord(
                            topic_id=topic.id, partition_id=index, eligible_leader_replicas=[]
                        )
                    )

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(key, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[key]
        if record.resource_type == ROLE:
            self.acls.set_member(record.resource_name, record.name, record.value is not None)
        if record.changed_ms != NO_TIME and record.resource_name in self.topics:
            self.topics[record.resource_name].changed_ms = record.changed_ms

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls.add(
            record.id,
            Acl(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            ),
        )

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.remove(record.id)

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = record

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.name, record.mechanism), None)

    def _token(self, record: DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    def _quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda e: e[0]))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]
        self.quota_generation = object()

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _register(self, record: RegisterBrokerRecord) -> None:
        known, broker = self.brokers.get(record.broker_id), BrokerImage(record, self.offset)
        if known is not None and known.fenced and broker.fenced:
            # A broker that registers again and again without coming up has been gone all the time.
            broker.fenced_offset = known.fenced_offset
        self.brokers[record.broker_id] = broker
        self.membership = object()

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)
        self.membership = object()

    def _registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker, self.membership = self.brokers[record.broker_id], object()
        if record.fenced:
            broker.fenced = record.fenced > 0
            broker.fenced_offset = self.offset
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = True
            broker.shutdown_offset = self.offset
        if record.log_dirs:
            broker.log_directories = list(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker.cordoned = list(record.cordoned_log_dirs)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerImage(record)

    def _no_op(self, record: NoOpRecord) -> None:
        """A record that only moves the log's end."""


_APPLY: Final[dict[type[object], Callable[[ClusterImage, Any], None]]] = {
    TopicRecord: ClusterImage._topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._partition,
    PartitionChangeRecord: ClusterImage._partition_change,
    ClearElrRecord: ClusterImage._clear_elr,
    ConfigRecord: ClusterImage._config,
    FeatureLevelRecord: ClusterImage._feature,
    ProducerIdsRecord: ClusterImage._producer_ids,
    RegisterBrokerRecord: ClusterImage._register,
    UnregisterBrokerRecord: ClusterImage._unregister,
    BrokerRegistrationChangeRecord: ClusterImage._registration_change,
    RegisterControllerRecord: ClusterImage._register_controller,
    NoOpRecord: ClusterImage._no_op,
    AccessControlEntryRecord: ClusterImage._acl,
    RemoveAccessControlEntryRecord: ClusterImage._remove_acl,
    UserScramCredentialRecord: ClusterImage._scram,
    RemoveUserScramCredentialRecord: ClusterImage._remove_scram,
    DelegationTokenRecord: ClusterImage._token,
    RemoveDelegationTokenRecord: ClusterImage._remove_token,
    ClientQuotaRecord: ClusterImage._quota,
}
