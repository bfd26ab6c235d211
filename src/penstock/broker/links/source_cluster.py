"""The source cluster of a link, over the wire protocol: topics, leaders, offsets, configs, groups.

One for each link and broker. The parts of the link have the metadata read again from time to time, and after
errors that a new leader explains.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.linking.committed import Committed
from penstock.linking.definition import LinkDefinition
from penstock.linking.limits import Quota
from penstock.model.addresses import Address, parse_bootstrap
from penstock.model.errors import ErrorCode, PenstockError, PolicyViolation, error_name
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from penstock.net.client import Peer
from penstock.net.client_security import client_security
from penstock.net.cluster_client import ClusterClient
from penstock.ports import World
from penstock.quotas.entities import USER
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponseTopic
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from penstock.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.routing import coordinator_in, coordinator_request

__all__ = ["GroupOffsets", "SourceCluster", "SourceError", "SourceTopic"]

_Committed: TypeAlias = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
_TIMEOUT_S: Final = 30.0
_EARLIEST, _LATEST = -2, -1
#: of a response to `fetch`, and the epoch of a request without a session
_FETCH_BYTES: Final = 1 << 20
_NO_SESSION: Final = -1
_TOPIC: Final = 2
#: DescribeConfigs: a config that was set for the topic
_SET_FOR_TOPIC: Final = 1
_SHARE: Final = "share"
#: DescribeClientQuotas: any name of a type, and its default
_SPECIFIED: Final = 2
#: the round trip from which on a source is far, and of how many requests the shortest counts
_FAR_S: Final = 0.005
_ROUND_TRIPS: Final = 5
_CLIENT_ID: Final = "penstock-link"
#: topics of one DescribeConfigs request
_TOPICS_MAX: Final = 200


class SourceError(PenstockError):
    """The source refuses a request, or is not what it was; a later attempt may succeed."""


class SourcePartition(NamedTuple):
    """The leader of a partition; -1 while there is none."""

    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic of the source, with its partitions by index."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, SourcePartition]


class GroupOffsets(NamedTuple):
    """The committed offsets of a group at the source."""

    committed: Mapping[TopicPartition, Committed]
    #: partitions whose next offset is in a transaction that has not ended
    unstable: Collection[TopicPartition]


class SourceCluster:
    """Requests of one broker to the source of one link."""

    def __init__(self, definition: LinkDefinition, world: World) -> None:
        lookup = definition.security.get
        protocol = lookup("security.protocol") or "PLAINTEXT"
        security = client_security(protocol, lookup, in_thread=world.workers.in_thread)
        bootstrap = parse_bootstrap(definition.bootstrap)
        self._client = ClusterClient(bootstrap, _CLIENT_ID, security, rng=world.rng)
        self._reading: asyncio.Task[None] | None = None
        self.cluster_id = ""
        self._clock = world.clock
        #: of the last requests that a broker of the source answers at once
        self._round_trips_s: deque[float] = deque(maxlen=_ROUND_TRIPS)
        #: all topics that the link may see
        self.topics: dict[str, SourceTopic] = {}
        #: counts the readings of the metadata
        self.generation = 0

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._client.close()

    # -- metadata

    async def refresh(self) -> None:
        """Read the metadata; those who ask while it is being read get the same."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.shield(self._reading)

    async def _refresh(self) -> None:
        answer = await self._any(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        self._client.view.update_brokers(answer)
        self.cluster_id = answer.cluster_id or ""
        self.topics = {
            topic.name: _source_topic(topic) for topic in answer.topics if topic.name and not topic.error_code
        }
        self.generation += 1
        await self._time_round_trip()
        without = [topic.name for topic in self.topics.values() if topic.topic_id == NO_TOPIC_ID]
        if without:
            raise SourceError(f"topic {without[0]} has no id: the source is older than Kafka 2.8")

    async def _time_round_trip(self) -> None:
        """Time one request; where that takes long, as many as count: a busy source is slow once."""
        times: list[float] = []
        while not times or (times[-1] >= _FAR_S and len(self._round_trips_s) + len(times) < _ROUND_TRIPS):
            began = self._clock.monotonic()
            await self._any(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
            times.append(self._clock.monotonic() - began)
        self._round_trips_s.extend(times)

    @property
    def is_far(self) -> bool:
        """Whether one request at a time would leave the line to the source empty for most of the time."""
        return min(self._round_trips_s, default=0.0) >= _FAR_S

    def address(self, broker: int) -> Address | None:
        return self._client.view.address(broker)

    def new_peer(self, address: Address) -> Peer:
        """A connection for fetches, which its owner closes."""
        return self._client.new_peer(address)

    # -- offsets

    async def log_range(self, key: TopicPartition, leader: int) -> tuple[int, int]:
        """The log start and the high watermark of a partition."""
        return await self._offset(key, leader, _EARLIEST), await self._offset(key, leader, _LATEST)

    async def _offset(self, key: TopicPartition, leader: int, timestamp: int) -> int:
        asked = ListOffsetsPartition(partition_index=key.partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=key.topic, partitions=[asked])],
            timeout_ms=10_000,
        )
        answer = await self._to(leader, LIST_OFFSETS, request)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise SourceError(f"no offsets of {key}: {error_name(each.error_code)}")
                return each.offset
        raise SourceError(f"no offsets of {key}")

    async def fetch(self, topic: SourceTopic, index: int, leader: int, offset: int) -> PartitionData:
        """Batches of a partition from the one that has `offset` on, as the leader has them."""
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[wanted])],
        )
        answer = await self._to(leader, FETCH, request)
        for each in answer.responses:
            for data in each.partitions:
                return data
        raise SourceError(f"{topic.name}-{index} cannot be read: {error_name(answer.error_code)}")

    # -- configs

    async def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The configs that were set for each topic. Topics that may not be described are left out."""
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(topics), _TOPICS_MAX):
            resources = [
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
                for name in topics[start : start + _TOPICS_MAX]
            ]
            answer = await self._any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
            for result in answer.results:
                if not result.error_code:
                    found[result.resource_name] = {
                        each.name: each.value
                        for each in result.configs
                        if each.config_source == _SET_FOR_TOPIC and each.value is not None
                    }
        return found

    async def set_state(self, topic: str, name: str, value: str) -> bool:
        """Set a config of a topic; returns true once all brokers show it. PolicyViolation if refused."""
        altered = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[altered])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        for each in (await self._any(INCREMENTAL_ALTER_CONFIGS, request)).responses:
            if each.error_code:
                raise PolicyViolation(
                    f"the source cannot be fenced: {error_name(each.error_code)}, {each.error_message}"
                )
        wanted = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[name])
        for broker in sorted(self._client.view.nodes):
            answer = await self._to(broker, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[wanted]))
            if [each.value for result in answer.results for each in result.configs] != [value]:
                return False
        return True

    async def log_ends(self, wanted: Mapping[TopicPartition, SourcePartition]) -> dict[TopicPartition, int]:
        """The ends of logs of the leaders, with what is not committed yet."""
        ends: dict[TopicPartition, int] = {}
        for leader in {each.leader for each in wanted.values()}:
            topics: dict[str, OffsetForLeaderTopic] = {}
            for key, at in wanted.items():
                if at.leader == leader:
                    topic = topics.setdefault(key.topic, OffsetForLeaderTopic(topic=key.topic))
                    topic.partitions.append(
                        OffsetForLeaderPartition(partition=key.partition, leader_epoch=at.leader_epoch)
                    )
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))
            for found in (await self._to(leader, OFFSET_FOR_LEADER_EPOCH, request)).topics:
                for each in found.partitions:
                    if not each.error_code:
                        ends[TopicPartition(found.topic, each.partition)] = each.end_offset
        return ends

    # -- access

    async def acls(self) -> list[Acl]:
        """All ACLs about topics and groups."""
        found = []
        for kind in (ResourceType.TOPIC, ResourceType.GROUP):
            request = DescribeAclsRequest(
                resource_type_filter=kind,
                resource_name_filter=None,
                pattern_type_filter=PatternType.ANY,
                principal_filter=None,
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
            answer = await self._any(DESCRIBE_ACLS, request)
            if answer.error_code:
                raise SourceError(f"ACLs cannot be read: {error_name(answer.error_code)}")
            found += [
                Acl(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for each in answer.resources
                for acl in each.acls
            ]
        return found

    async def quotas(self) -> list[Quota]:
        """All quotas of users."""
        named = ComponentData(entity_type=USER, match_type=_SPECIFIED, match=None)
        answer = await self._any(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=[named]))
        if answer.error_code:
            raise SourceError(f"quotas cannot be read: {error_name(answer.error_code)}")
        return [
            Quota(tuple((part.entity_type, part.entity_name) for part in entry.entity), each.key, each.value)
            for entry in answer.entries or ()
            for each in entry.values
        ]

    # -- groups

    async def groups(self) -> list[str]:
        """The names of all groups with committed offsets of consumers."""
        names: dict[str, None] = {}
        for broker in sorted(self._client.view.nodes):
            listed = await self._to(broker, LIST_GROUPS, ListGroupsRequest())
            if listed.error_code:
                raise SourceError(f"groups cannot be listed: {error_name(listed.error_code)}")
            names.update((each.group_id, None) for each in listed.groups if each.group_type.lower() != _SHARE)
        return list(names)

    async def committed(self, group: str) -> GroupOffsets:
        """The committed offsets of a group."""
        found = coordinator_in(await self._any(FIND_COORDINATOR, coordinator_request(group)))
        if found.error_code:
            raise SourceError(f"group {group} has no coordinator: {error_name(found.error_code)}")
        request = OffsetFetchRequest(
            group_id=group,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=True,
        )
        return self._offsets(group, await self._to(found.node_id, OFFSET_FETCH, request))

    def _offsets(self, group: str, answer: OffsetFetchResponse) -> GroupOffsets:
        """Responses of versions up to 7 have one group, newer ones have a list."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        offsets: dict[TopicPartition, Committed] = {}
        unstable: set[TopicPartition] = set()
        codes = {answer.error_code, *(each.error_code for each in answer.groups)}
        topics: list[tuple[str, Iterable[_Committed]]] = [
            (each.name, each.partitions) for each in answer.topics
        ]
        for of_group in answer.groups:
            topics += [
                (each.name or names.get(TopicId(each.topic_id), ""), each.partitions)
                for each in of_group.topics
            ]
        for name, partitions in topics:
            for found in partitions:
                key = TopicPartition(name, found.partition_index)
                if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    unstable.add(key)
                    continue
                codes.add(found.error_code)
                if found.committed_offset >= 0 and name:
                    offsets[key] = Committed(found.committed_offset, found.metadata or "")
        wrong = sorted(codes - {ErrorCode.NONE})
        if wrong:
            raise SourceError(f"the offsets of group {group} cannot be read: {error_name(wrong[0])}")
        return GroupOffsets(offsets, unstable)

    # -- requests

    async def _any(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of the first broker that answers."""
        return await self._client.send(api, request, _TIMEOUT_S)

    async def _to(self, broker: int, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        address = self.address(broker)
        if address is None:
            raise SourceError(f"broker {broker} of the source is not in its metadata")
        return await self._client.send_to(address, api, request, _TIMEOUT_S)


def _source_topic(topic: MetadataResponseTopic) -> SourceTopic:
    partitions = {
        each.partition_index: SourcePartition(each.leader_id, each.leader_epoch) for each in topic.partitions
    }
    return SourceTopic(topic.name or "", TopicId(topic.topic_id), partitions)
