"""A member of a share group on the wire, and what its tests need beside it."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.apis import incremental_alter_configs as configs
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.share_acknowledge import (
    SHARE_ACKNOWLEDGE,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.wire.apis.share_fetch import SHARE_FETCH, FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, new_name, produce_request

__all__ = [
    "ACCEPT",
    "GAP",
    "REJECT",
    "RELEASE",
    "RENEW",
    "TOPIC_RESOURCE",
    "Member",
    "append",
    "offsets",
    "set_configs",
    "set_group_configs",
]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32


def append(client: RawClient, topic: Topic, *values: bytes) -> None:
    (answer,) = client.call(PRODUCE, 13, produce_request(topic, batch_of(values), version=13)).responses
    assert answer.partition_responses[0].error_code == ErrorCode.NONE


def set_group_configs(client: RawClient, group: str, **values: str) -> None:
    set_configs(client, GROUP_RESOURCE, group, **values)


def set_configs(client: RawClient, kind: int, name: str, **values: str) -> None:
    """Set configs of a group or topic; names have `_` for `.`."""
    changes = [
        configs.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.call(configs.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


class Member:
    """A member of a share group with one topic, as a client on the wire."""

    def __init__(self, client: RawClient, group: str, topic: Topic, name: str = "") -> None:
        self.client, self.group, self.topic = client, group, topic
        self.id = name or new_name("m")[-36:]
        self.epoch = 0
        self.session_epoch = 0

    def join(self) -> Member:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.client.call(FIND_COORDINATOR, 4, request)
        assigned: Any = None
        while not assigned:
            response = self.heartbeat()
            assert response.error_code == ErrorCode.NONE, response.error_message
            self.epoch = response.member_epoch
            assigned = response.assignment and response.assignment.topic_partitions
        return self

    def heartbeat(self, epoch: int | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=[self.topic.name],
        )
        return self.client.call(SHARE_GROUP_HEARTBEAT, 1, request)

    def fetch(self, *acks: tuple[int, int, list[int]], version: int = 2, **changes: Any) -> Any:
        """(response, its only partition or None)."""
        partition = FetchPartition(partition_index=0, acknowledgement_batches=_batches(acks))
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[FetchTopic(topic_id=self.topic.id, partitions=[partition])],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = self.client.call(SHARE_FETCH, version, request)
        if not response.error_code and request.share_session_epoch >= 0:
            self.session_epoch = request.share_session_epoch + 1
        return response, response.responses[0].partitions[0] if response.responses else None

    def take(self, **changes: Any) -> list[tuple[int, int, int]]:
        """Fetch until there are acquired records: (first, last, delivery count)."""
        for _ in range(120):
            response, partition = self.fetch(**changes)
            assert response.error_code == ErrorCode.NONE, response.error_message
            if partition is not None and partition.acquired_records:
                return [(a.first_offset, a.last_offset, a.delivery_count) for a in partition.acquired_records]
        raise AssertionError("no records came")

    def acknowledge(
        self,
        *acks: tuple[int, int, list[int]],
        version: int = 2,
        epoch: int | None = None,
        renew: bool = False,
    ) -> Any:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic.id,
                    partitions=[
                        AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(acks))
                    ],
                )
            ],
        )
        response = self.client.call(SHARE_ACKNOWLEDGE, version, request)
        if not response.error_code and request.share_session_epoch > 0:
            self.session_epoch = request.share_session_epoch + 1
        return response

    def outcome(self, *acks: tuple[int, int, list[int]], **changes: Any) -> str:
        """The name of the error of an acknowledgement."""
        response = self.acknowledge(*acks, **changes)
        code = response.error_code or response.responses[0].partitions[0].error_code
        return ErrorCode(code).name


def _batches(acks: tuple[tuple[int, int, list[int]], ...]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=f, last_offset=last, acknowledge_types=t) for f, last, t in acks
    ]


def offsets(client: RawClient, group: str) -> list[tuple[int, int]]:
    """(start offset, lag) of the share partitions."""
    wanted = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = describe.DescribeShareGroupOffsetsRequest(groups=[wanted])
    (answer,) = client.call(describe.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    return [(p.start_offset, p.lag) for topic in answer.topics for p in topic.partitions]
