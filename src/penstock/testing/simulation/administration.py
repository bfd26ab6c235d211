"""A simulated operator: changes the cluster with admin requests while faults happen.

The operator sends each request once, to any broker, and accepts every outcome. The checks are only that no
invariant breaks. Reassignments are cancelled or replaced, topics are deleted and created again under their
names, voters are removed while other voters are down. At the end the operator removes all throttles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from penstock.metadata.features import UpgradeType
from penstock.metadata.image import BROKER
from penstock.metadata.image import TOPIC as TOPIC_CONFIGS
from penstock.metadata.policy import UNCLEAN
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC, OFFSETS_TOPIC, TopicPartition
from penstock.records.record import Record, build_batch
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.history import Deleting, DeletionRefused
from penstock.testing.simulation.workload import earliest, produce
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequest
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequest
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER, UnregisterBrokerRequest
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest

__all__ = ["CHANGES", "Operator"]

#: a topic that is created and deleted; no client uses it, so no check depends on its records
_PASSING: Final = "passing"
_RETENTION: Final = "retention.ms"
_RETENTION_MS: Final = "300"
_PARTITIONS_MAX: Final = 5
_REPLICAS_MAX: Final = 3
#: bytes a second, for replicas that catch up
_THROTTLED_RATE: Final = 2_000
_SET, _UNSET = 0, 1
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Operator:
    """Changes the cluster of `brokers`, by their internal addresses, in which `partitions` are written to."""

    def __init__(
        self,
        client: Client,
        brokers: dict[int, tuple[str, int]],
        partitions: Sequence[TopicPartition],
        pause_s: float,
    ) -> None:
        self.client = client
        self.rng = client.rng
        self.brokers = brokers
        self.partitions = partitions
        self._pause_s = pause_s
        #: whether a throttle may be in force
        self.throttled = False
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.rng.random() * self._pause_s)
            await self._attempt(self.rng.choice(CHANGES))
        while self.throttled:
            await self._attempt(unthrottle)

    async def _attempt(self, change: Change) -> None:
        try:
            self.note(f"{change.__name__}: {await change(self)}")
        except Unanswered:
            self.note(f"{change.__name__}: not answered")
            await self.client.backoff()

    def note(self, text: str) -> None:
        self.client.loop.trace.note(self.client.loop.time(), self.client.name, text)

    def any_partition(self) -> TopicPartition:
        """One of those that are written to, mostly."""
        others = [TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(_PASSING, 0)]
        return self.rng.choice([*self.partitions, *others])


#: sends one request and returns its outcome
Change: TypeAlias = Callable[[Operator], Awaitable[str]]


# -- replicas and leaders


async def reassign(operator: Operator) -> str:
    """Give a partition other replicas, or more, or fewer, or the same in another order; never one alone."""
    ids, rng = list(operator.brokers), operator.rng
    target = rng.sample(ids, rng.randint(2, min(_REPLICAS_MAX, len(ids))))
    return await _reassign(operator, operator.any_partition(), target)


async def reassign_and_cancel(operator: Operator) -> str:
    partition, ids = operator.any_partition(), list(operator.brokers)
    began = await _reassign(operator, partition, operator.rng.sample(ids, min(_REPLICAS_MAX, len(ids))))
    await asyncio.sleep(operator.rng.random() * 0.05)
    return f"{began}, {await _reassign(operator, partition, None)}"


async def _reassign(operator: Operator, partition: TopicPartition, target: list[int] | None) -> str:
    wanted = ReassignablePartition(partition_index=partition.partition, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=partition.topic, partitions=[wanted])]
    )
    answer = await operator.client.send_to_any(ALTER_PARTITION_REASSIGNMENTS, request)
    code = answer.error_code or answer.responses[0].partitions[0].error_code
    return f"{partition} to {target}: {ErrorCode(code).name}"


async def elect(operator: Operator) -> str:
    """Have all preferred replicas lead."""
    answer = await operator.client.send_to_any(ELECT_LEADERS, ElectLeadersRequest(topic_partitions=None))
    return ErrorCode(answer.error_code).name


async def throttle(operator: Operator) -> str:
    operator.throttled = True
    return await _alter_throttles(operator, _SET, str(_THROTTLED_RATE), "*")


async def unthrottle(operator: Operator) -> str:
    outcome = await _alter_throttles(operator, _UNSET, None, None)
    operator.throttled = operator.throttled and outcome != ErrorCode.NONE.name
    return outcome


async def _alter_throttles(operator: Operator, how: int, rate: str | None, replicas: str | None) -> str:
    rates = [AlterableConfig(name=name, config_operation=how, value=rate) for name in _RATES]
    throttled = [AlterableConfig(name=name, config_operation=how, value=replicas) for name in _THROTTLED]
    brokers = [
        AlterConfigsResource(resource_type=BROKER, resource_name=str(node), configs=rates)
        for node in operator.brokers
    ]
    topic = operator.partitions[0].topic
    named = AlterConfigsResource(resource_type=TOPIC_CONFIGS, resource_name=topic, configs=throttled)
    request = IncrementalAlterConfigsRequest(resources=[*brokers, named])
    answer = await operator.client.send_to_any(INCREMENTAL_ALTER_CONFIGS, request)
    codes = [response.error_code for response in answer.responses if response.error_code]
    return ErrorCode(codes[0] if codes else ErrorCode.NONE).name


# -- topics


async def grow(operator: Operator) -> str:
    """Add a partition, which only the group's members use."""
    count = operator.rng.randint(len(operator.partitions) + 1, _PARTITIONS_MAX)
    topic = CreatePartitionsTopic(name=operator.partitions[0].topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000)
    answer = await operator.client.send_to_any(CREATE_PARTITIONS, request)
    return f"to {count}: {ErrorCode(answer.results[0].error_code).name}"


async def come_and_go(operator: Operator) -> str:
    """Make a topic, or make it again: under the name, and in the place, of one that has just gone.

    Every other one would rather lose records than wait; every other one lets go of them soon.
    """
    client = operator.client
    gone = await client.send_to_any(
        DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=_PASSING)], timeout_ms=1000)
    )
    if operator.rng.random() < 0.5:
        await asyncio.sleep(operator.rng.random() * 0.3)
    factor = min(_REPLICAS_MAX, len(operator.brokers))
    unclean = CreatableTopicConfig(name=UNCLEAN, value=operator.rng.choice(("true", "false")))
    kept = CreatableTopicConfig(name=_RETENTION, value=operator.rng.choice(("-1", _RETENTION_MS)))
    configs = [unclean, kept]
    topic = CreatableTopic(name=_PASSING, num_partitions=1, replication_factor=factor, configs=configs)
    made = await client.send_to_any(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
    if operator.rng.random() < 0.5:
        # Else it is written to under the id of the one before.
        client.topic_ids.pop(_PASSING, None)
    records = [Record(i, client.clock.now_ms(), None, b"passing") for i in range(operator.rng.randint(1, 5))]
    wrote = await produce(client, TopicPartition(_PASSING, 0), build_batch(records))
    codes = [gone.responses[0].error_code, made.topics[0].error_code, wrote.error_code]
    return ", ".join(ErrorCode(code).name for code in codes)


async def delete_records(operator: Operator) -> str:
    """Delete records up to a random offset; they may be gone as soon as the request is sent."""
    client, partition = operator.client, operator.rng.choice(operator.partitions)
    before = await earliest(client, partition) + operator.rng.randint(1, 8)
    client.saw(Deleting(partition, before))
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=before)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    answer = await client.send_to_leader(partition, DELETE_RECORDS, request)
    code = ErrorCode(answer.topics[0].partitions[0].error_code)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        # No other error says that nothing has been deleted: the leader may have moved meanwhile.
        client.saw(DeletionRefused(partition, before))
    client.forget(partition)
    return f"{partition} before {before}: {code.name}"


# -- voters


async def change_voters(operator: Operator) -> str:
    """Add a voter, or remove one if at least three remain."""
    topic = DescribeQuorumRequestTopic(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartition()]
    )
    client = operator.client
    answer = await client.send_to_any(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    quorum = answer.topics[0].partitions[0]
    voters = {voter.replica_id: voter.replica_directory_id for voter in quorum.current_voters}
    others = {other.replica_id: other.replica_directory_id for other in quorum.observers}
    if others:
        node = operator.rng.choice(sorted(others))
        host, port = operator.brokers[node]
        joining = AddRaftVoterRequest(
            timeout_ms=1000,
            voter_id=node,
            voter_directory_id=others[node],
            listeners=[Endpoint(name="INTERNAL", host=host, port=port)],
        )
        added = await client.send_to_any(ADD_RAFT_VOTER, joining)
        return f"{node} joins {sorted(voters)}: {ErrorCode(added.error_code).name}"
    node = operator.rng.choice(sorted(voters))
    leaving = RemoveRaftVoterRequest(voter_id=node, voter_directory_id=voters[node])
    removed = await client.send_to_any(REMOVE_RAFT_VOTER, leaving)
    return f"{node} leaves {sorted(voters)}: {ErrorCode(removed.error_code).name}"


# -- brokers


async def change_features(operator: Operator) -> str:
    """As a rolling upgrade ends, or is taken back."""
    level = operator.rng.randint(0, 1)
    update = FeatureUpdate(
        feature="group.version",
        max_version_level=level,
        upgrade_type=UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE,
    )
    answer = await operator.client.send_to_any(
        UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update])
    )
    return f"to {level}: {ErrorCode(answer.error_code).name}"


async def unregister(operator: Operator) -> str:
    """Forget a broker, which comes back by itself if it is up."""
    node = operator.rng.choice(list(operator.brokers))
    answer = await operator.client.send_to_any(UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=node))
    return f"{node}: {ErrorCode(answer.error_code).name}"


#: the changes to choose from; `reassign` is listed twice, because it interacts with most of them
CHANGES: Final[tuple[Change, ...]] = (
    reassign,
    reassign,
    reassign_and_cancel,
    elect,
    throttle,
    unthrottle,
    grow,
    come_and_go,
    delete_records,
    change_voters,
    change_features,
    unregister,
)
