"""The handlers of a broker that serves a backup: requests that would change topics are refused.

Groups may commit offsets, members join, and configs of groups change: that is state of this broker only, and
kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.broker.base.context import AsyncHandler, Context, Handler
from penstock.metadata.image import BROKER, TOPIC
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.api import Api
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from penstock.wire.apis.alter_configs import ALTER_CONFIGS, AlterConfigsResponse
from penstock.wire.apis.alter_configs import AlterConfigsResourceResponse as LegacyAlteration
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopicResult, CreateTopicsResponse
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeletableTopicResult, DeleteTopicsResponse
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

__all__ = ["refusals"]

R = TypeVar("R", LegacyAlteration, AlterConfigsResourceResponse)
_CODE = ErrorCode.POLICY_VIOLATION
_KEPT = (TOPIC, BROKER)


def refusals(
    backup: str, handlers: Mapping[Api[Any, Any], Callable[..., Any]]
) -> dict[Api[Any, Any], Handler]:
    """The handlers that refuse what would change a topic of `backup`, as its address and time.

    `handlers` serve the requests that are not refused.
    """
    reason = f"this broker serves the backup {backup} read-only"
    made: dict[Api[Any, Any], Callable[[str, Context, Any], Any]] = {
        PRODUCE: _produce,
        CREATE_TOPICS: _create_topics,
        DELETE_TOPICS: _delete_topics,
        DELETE_RECORDS: _delete_records,
        CREATE_PARTITIONS: _create_partitions,
        ADD_PARTITIONS_TO_TXN: _add_partitions,
    }
    return {
        **{api: _bound(refuse, reason) for api, refuse in made.items()},
        ALTER_CONFIGS: _altering(_alter_configs, reason, handlers[ALTER_CONFIGS]),
        INCREMENTAL_ALTER_CONFIGS: _altering(
            _incremental_alter_configs, reason, handlers[INCREMENTAL_ALTER_CONFIGS]
        ),
    }


def _bound(refuse: Callable[[str, Context, Any], Any], reason: str) -> Handler:
    return lambda context, request: refuse(reason, context, request)


def _altering(refuse: Callable[[str, Context, Any], Any], reason: str, handler: AsyncHandler) -> AsyncHandler:
    """Refuses changes of topics and of brokers: retention by a broker's config would delete records."""

    async def serve(context: Context, request: Any) -> Any:
        if any(resource.resource_type in _KEPT for resource in request.resources):
            return refuse(reason, context, request)
        return await handler(context, request)

    return serve


def _produce(reason: str, context: Context, request: Any) -> ProduceResponse:
    if not request.acks:
        # A producer without acks has no response that could have the error: as in Kafka, it is disconnected.
        raise ProtocolError(f"Produce without acks: {reason}")
    context.stats.count_errors(_CODE for topic in request.topic_data for _ in topic.partition_data)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=_CODE, error_message=reason, base_offset=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _create_topics(reason: str, context: Context, request: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=_CODE, error_message=reason)
            for topic in request.topics
        ]
    )


def _delete_topics(reason: str, context: Context, request: Any) -> DeleteTopicsResponse:
    named = [(name, bytes(16)) for name in request.topic_names]
    named += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=_CODE, error_message=reason)
            for name, topic_id in named
        ]
    )


def _delete_records(reason: str, context: Context, request: Any) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=-1, error_code=_CODE
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_partitions(reason: str, context: Context, request: Any) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=_CODE, error_message=reason)
            for topic in request.topics
        ]
    )


def _add_partitions(reason: str, context: Context, request: Any) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=_CODE,
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=_CODE)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )


def _alter_configs(reason: str, context: Context, request: Any) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=_unaltered(reason, request, LegacyAlteration))


def _incremental_alter_configs(
    reason: str, context: Context, request: Any
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=_unaltered(reason, request, AlterConfigsResourceResponse)
    )


def _unaltered(reason: str, request: Any, result: Callable[..., R]) -> list[R]:
    return [
        result(
            error_code=_CODE,
            error_message=reason,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
