"""The running cluster into which a cut is restored: what it must not have yet, and the requests to it.

Only Penstock takes batches with the offsets that they have. Another cluster does not know the config
`penstock.restoring`, and is refused before anything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from penstock.archive.errors import ArchiveRefused
from penstock.backup.restored_groups import Target
from penstock.backup.source import PASSING, PAUSE_S, Cluster, SourceFailed
from penstock.backup.source_groups import is_share_group, list_groups, read_configs
from penstock.model.errors import ErrorCode, error_name
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from penstock.ports import Buffer
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import (
    PRODUCE,
    RESTORED_ACKS,
    PartitionProduceData,
    ProduceRequest,
    RestoredPart,
    TopicProduceData,
)

__all__ = ["Destination"]

_RESTORING: Final = "penstock.restoring"
_TOPIC: Final = 2
_DELETE: Final = 1
#: how long a restore waits for a leader: brokers may be restarted meanwhile
_ATTEMPTS: Final = 240
_TIMEOUT_MS: Final = 20_000
_IDLE: Final = ("", "empty", "dead")
_RETRIED: Final = PASSING | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class Destination:
    """A restore into one cluster."""

    def __init__(self, client: Cluster, replication_factor: int | None = None) -> None:
        """`replication_factor` of the topics; None for that of the source, as far as there are brokers."""
        self._client = client
        self._replication_factor = replication_factor
        self._created: dict[str, TopicId] = {}
        #: new ids by those of the source, of the producers of transactions
        self.producer_ids: dict[int, int] = {}
        self._allocation = asyncio.Lock()

    # -- before anything is written

    async def check(
        self, targets: Sequence[Target], groups: Collection[str], shares: Collection[str]
    ) -> None:
        """Raise ArchiveRefused if the cluster cannot take the topics and groups. Nothing is written."""
        client = self._client
        await client.refresh()
        there = [target.name for target in targets if target.name in client.topics]
        if there:
            configs = await read_configs(client, there[:1])
            hint = (
                "it is left from a restore that was interrupted: delete it"
                if configs.get(there[0], {}).get(_RESTORING) == "true"
                else f"restore it under another name (--topic {there[0]}=NEW), or delete it"
            )
            raise ArchiveRefused(f"topic {there[0]} exists already in the cluster: {hint}")
        await self._check_groups(groups, shares)
        await self._create(targets, validate_only=True)

    async def _check_groups(self, groups: Collection[str], shares: Collection[str]) -> None:
        for name, each in (await list_groups(self._client)).items():
            if name not in groups and name not in shares:
                continue
            if is_share_group(each) != (name in shares):
                kind = "a share group" if is_share_group(each) else "no share group"
                raise ArchiveRefused(
                    f"{name} is {kind} in the cluster: restore the group under another name "
                    f"(--group {name}=NEW)"
                )
            if each.group_state.lower() not in _IDLE:
                raise ArchiveRefused(f"group {name} has members in the cluster: stop them first")

    # -- topics

    async def create(self, targets: Sequence[Target]) -> None:
        """Create the topics, which take no other batches than those of the restore until `finish`."""
        await self._create(targets, validate_only=False)
        wanted = {target.name for target in targets}
        for _ in range(_ATTEMPTS):
            await self._client.refresh()
            topics = self._client.topics
            if wanted <= topics.keys() and all(
                each.leader >= 0 for name in wanted for each in topics[name].partitions
            ):
                return
            await asyncio.sleep(PAUSE_S)
        raise SourceFailed("the topics have no leaders")

    async def _create(self, targets: Sequence[Target], *, validate_only: bool) -> None:
        brokers = len(self._client.broker_ids)
        wanted = [
            CreatableTopic(
                name=target.name,
                num_partitions=len(target.topic.partitions),
                replication_factor=self._replication_factor or min(target.topic.replication_factor, brokers),
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in {**target.configs, _RESTORING: "true"}.items()
                ],
            )
            for target in targets
        ]
        if not wanted:
            return
        request = CreateTopicsRequest(topics=wanted, validate_only=validate_only)
        answer = await self._client.send_any(CREATE_TOPICS, request)
        for each in answer.topics:
            if each.error_code == ErrorCode.NONE and not validate_only:
                self._created[each.name] = TopicId(each.topic_id)
        for each in answer.topics:
            reason = each.error_message or error_name(each.error_code)
            if each.error_code == ErrorCode.INVALID_CONFIG and _RESTORING in reason:
                raise ArchiveRefused(
                    "the cluster is no Penstock of this version, so records would get other offsets: restore "
                    "with --data into a new Penstock"
                )
            if each.error_code:
                raise ArchiveRefused(f"topic {each.name} cannot be created: {reason}")

    async def finish(self, targets: Sequence[Target]) -> None:
        """Open the topics to producers. From here on they are not deleted: there may be new records."""
        self._created.clear()
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=_TOPIC,
                    resource_name=target.name,
                    configs=[AlterableConfig(name=_RESTORING, config_operation=_DELETE, value=None)],
                )
                for target in targets
            ]
        )
        answer = await self._client.send_any(INCREMENTAL_ALTER_CONFIGS, request)
        for each in answer.responses:
            if each.error_code:
                reason = each.error_message or error_name(each.error_code)
                raise SourceFailed(
                    f"topic {each.resource_name} is restored, but cannot be opened to producers: {reason}; "
                    f"delete its config {_RESTORING}"
                )

    async def undo(self) -> list[str]:
        """Delete the topics that this restore has created; returns those that are still there."""
        ids = {name: topic_id for name, topic_id in self._created.items() if topic_id != NO_TOPIC_ID}
        if not ids:
            return []
        states = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids.values()]
        request = DeleteTopicsRequest(topics=states, topic_names=[], timeout_ms=_TIMEOUT_MS)
        try:
            answer = await self._client.send_any(DELETE_TOPICS, request)
        except SourceFailed:
            return sorted(ids)
        refused = {TopicId(each.topic_id) for each in answer.responses if each.error_code}
        return sorted(name for name, topic_id in ids.items() if topic_id in refused)

    # -- batches

    async def append(self, key: TopicPartition, batches: Buffer, part: RestoredPart, end_offset: int) -> None:
        """Have the leader append batches up to `end_offset`, and wait until they are committed."""
        reason = ""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    await asyncio.sleep(PAUSE_S)
                    await self._client.refresh()
                reason = await self._append_once(key, batches, part, end_offset)
            except SourceFailed as e:
                reason = str(e)
            if not reason:
                return
        raise SourceFailed(f"{key} cannot be written: {reason}")

    async def _append_once(
        self, key: TopicPartition, batches: Buffer, part: RestoredPart, end_offset: int
    ) -> str:
        """The reason for another attempt, or an empty text."""
        topic = self._client.topics.get(key.topic)
        if topic is None:
            return f"topic {key.topic} is not in the metadata"
        data = PartitionProduceData(index=key.partition, records=memoryview(batches) if batches else None)
        request = ProduceRequest(
            acks=RESTORED_ACKS,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=key.topic, topic_id=topic.topic_id, partition_data=[data])],
            restored=part,
        )
        answer = await self._client.send_to(self._client.leader_of(key), PRODUCE, request)
        (found,) = answer.responses[0].partition_responses
        if found.error_code == ErrorCode.NONE:
            return ""
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and found.base_offset == end_offset:
            return ""  # An earlier attempt was carried out, and its response lost.
        if found.error_code not in _RETRIED:
            reason = found.error_message or error_name(found.error_code)
            raise ArchiveRefused(f"{key} cannot be written: {reason}")
        return error_name(found.error_code)

    async def allocate(self, producers: Collection[int]) -> None:
        """Have new ids for these producers of the source, which no producer of the cluster gets."""
        async with self._allocation:
            for producer_id in sorted(set(producers) - self.producer_ids.keys()):
                self.producer_ids[producer_id] = await self._new_producer_id()

    async def _new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS)
        reason = ""
        for _ in range(_ATTEMPTS):
            answer = await self._client.send_any(INIT_PRODUCER_ID, request)
            if answer.error_code == ErrorCode.NONE:
                return answer.producer_id
            reason = error_name(answer.error_code)
            if answer.error_code not in _RETRIED:
                break
            await asyncio.sleep(PAUSE_S)
        raise SourceFailed(f"the cluster gives no producer id: {reason}")
