"""The cluster that is backed up, over the wire protocol: any Kafka cluster.

Requests go to leaders and coordinators as clients find them. After an error that a new leader explains, the
metadata is read again and the request repeated for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model.addresses import parse_bootstrap
from penstock.model.errors import ErrorCode, PenstockError, error_name
from penstock.model.ids import COORDINATOR_TOPICS, NO_TOPIC_ID, TopicId, TopicPartition
from penstock.net.client_security import ClientSecurity
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerRejected
from penstock.ports import Rng
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse

__all__ = ["Cluster", "SourceFailed", "SourcePartition", "SourceTopic"]

EARLIEST: Final = -2
LATEST: Final = -1
_TIMEOUT_S: Final = 30.0
ATTEMPTS: Final = 20
PAUSE_S: Final = 0.25
_FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 << 20
#: errors that a change of leaders or coordinators explains
PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class SourceFailed(PenstockError):
    """The cluster does not answer, or refuses; a later attempt may succeed."""


class SourcePartition(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    name: str
    topic_id: TopicId
    replication_factor: int
    partitions: tuple[SourcePartition, ...]


class Fetched(NamedTuple):
    """Batches from one partition; `error` is an `ErrorCode`."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    data: bytes


class Cluster:
    """Connections to the brokers of one cluster."""

    def __init__(self, bootstrap: str, rng: Rng, security: ClientSecurity | None = None) -> None:
        self._client = ClusterClient(parse_bootstrap(bootstrap), "penstock-backup", security, rng=rng)
        self.cluster_id = ""
        self.topics: dict[str, SourceTopic] = {}

    def close(self) -> None:
        self._client.close()

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._client.view.nodes)

    async def refresh(self) -> None:
        """Read the metadata: brokers, and all topics but those of coordinators."""
        answer: MetadataResponse = await self.send_any(
            METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False)
        )
        self._client.view.update_brokers(answer)
        self.cluster_id = answer.cluster_id or ""
        self.topics = {
            topic.name: SourceTopic(
                topic.name,
                TopicId(topic.topic_id),
                max((len(each.replica_nodes) for each in topic.partitions), default=1),
                tuple(
                    SourcePartition(each.partition_index, each.leader_id, each.leader_epoch)
                    for each in sorted(topic.partitions, key=lambda each: each.partition_index)
                ),
            )
            for topic in answer.topics
            if topic.name and topic.name not in COORDINATOR_TOPICS
        }
        without = [topic.name for topic in self.topics.values() if topic.topic_id == NO_TOPIC_ID]
        if without:
            raise SourceFailed(f"topic {without[0]} has no id: the cluster is older than Kafka 2.8")

    async def send_any(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of the first broker that answers."""
        try:
            return await self._client.send(api, request, _TIMEOUT_S)
        except PeerRejected as e:
            raise SourceFailed(str(e)) from None
        except PeerGone as e:
            raise SourceFailed(f"no broker answers {api.name}: {e}") from None

    async def send_to(self, broker: int, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of one broker; SourceFailed if it does not answer."""
        address = self._client.view.address(broker)
        if address is None:
            raise SourceFailed(f"broker {broker} is not in the metadata")
        try:
            return await self._client.send_to(address, api, request, _TIMEOUT_S)
        except PeerGone as e:
            raise SourceFailed(str(e)) from None

    def leader_of(self, key: TopicPartition) -> int:
        """The broker that leads a partition as far as is known; -1 if none does."""
        topic = self.topics.get(key.topic)
        for each in topic.partitions if topic is not None else ():
            if each.partition == key.partition:
                return each.leader
        return -1

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int = LATEST
    ) -> dict[TopicPartition, int]:
        """The high watermarks, or with `EARLIEST` the log starts, of partitions."""
        missing = set(partitions)
        found: dict[TopicPartition, int] = {}
        for attempt in range(ATTEMPTS):
            errors = await self._list_offsets(missing - found.keys(), timestamp, found)
            if not errors:
                return found
            await self._pause(attempt, errors)
        raise SourceFailed(f"no offsets of {len(missing - found.keys())} partitions: {errors.pop()}")

    async def _list_offsets(
        self, partitions: set[TopicPartition], timestamp: int, found: dict[TopicPartition, int]
    ) -> set[str]:
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for key in sorted(partitions):
            asked = ListOffsetsPartition(partition_index=key.partition, timestamp=timestamp)
            by_leader.setdefault(self.leader_of(key), {}).setdefault(key.topic, []).append(asked)
        errors: set[str] = set()

        async def ask(leader: int, topics: dict[str, list[ListOffsetsPartition]]) -> None:
            listed = [ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=listed, timeout_ms=10_000)
            try:
                answer = await self.send_to(leader, LIST_OFFSETS, request)
            except SourceFailed as e:
                errors.add(str(e))
                return
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code:
                        errors.add(error_name(each.error_code))
                        self._check_passing(each.error_code, f"{topic.name}-{each.partition_index}")
                    else:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset

        await asyncio.gather(*(ask(leader, topics) for leader, topics in by_leader.items()))
        return errors

    async def fetch(self, key: TopicPartition, offset: int, bytes_max: int = FETCH_BYTES) -> Fetched:
        """Batches from `offset` on, up to the high watermark; OFFSET_OUT_OF_RANGE is left to the caller."""
        reason = ""
        for attempt in range(ATTEMPTS):
            try:
                data = await self._fetch_once(key, offset, bytes_max)
            except SourceFailed as e:
                reason = str(e)
            else:
                if data.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                    records = b"" if data.records is None else bytes(data.records)  # type: ignore[arg-type]
                    return Fetched(
                        data.error_code,
                        data.high_watermark,
                        data.last_stable_offset,
                        data.log_start_offset,
                        records,
                    )
                self._check_passing(data.error_code, str(key))
                reason = error_name(data.error_code)
            await self._pause(attempt, {reason})
        raise SourceFailed(f"{key} cannot be read: {reason}")

    async def _fetch_once(self, key: TopicPartition, offset: int, bytes_max: int) -> PartitionData:
        topic = self.topics.get(key.topic)
        if topic is None:
            raise SourceFailed(f"topic {key.topic} is gone")
        asked = FetchPartition(partition=key.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=0,
            topics=[FetchTopic(topic=key.topic, topic_id=topic.topic_id, partitions=[asked])],
        )
        answer = await self.send_to(self.leader_of(key), FETCH, request)
        if answer.error_code:
            raise SourceFailed(f"{key} cannot be read: {error_name(answer.error_code)}")
        if not answer.responses or not answer.responses[0].partitions:
            raise SourceFailed(f"{key} is not in the response")
        return answer.responses[0].partitions[0]

    def _check_passing(self, code: int, about: str) -> None:
        if code not in PASSING:
            raise SourceFailed(f"{about}: {error_name(code)}")

    async def _pause(self, attempt: int, reasons: set[str]) -> None:
        if attempt < ATTEMPTS - 1:
            await asyncio.sleep(PAUSE_S)
            await self.refresh()
