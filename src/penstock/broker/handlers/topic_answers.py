"""Answers of Metadata and DescribeTopicPartitions that need no image."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from penstock.metadata.topics import check_topic_name
from penstock.model.errors import ErrorCode, InvalidTopic
from penstock.model.ids import INTERNAL_TOPICS, NO_TOPIC_ID
from penstock.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.apis.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

__all__ = ["bad_cursor", "merged", "refused", "undescribed", "why_unknown"]

_NOT_REQUESTED: Final = -(2**31)
#: topics between two yields
_STEP: Final = 64


def refused(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """The response to topic ids in versions 10 and 11, which do not support the field (KIP-516)."""
    code = ErrorCode.INVALID_REQUEST
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=t.name or "", topic_id=t.topic_id) for t in topics
        ]
    )


def merged(topics: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once; if some topics are given by id, those given by name are ignored."""
    by_id = {topic.topic_id: topic for topic in topics if topic.topic_id != NO_TOPIC_ID}
    by_name = {topic.name: topic for topic in topics}
    return list(by_id.values() or by_name.values())


def why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopic as e:
        return e.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def bad_cursor(
    request: DescribeTopicPartitionsRequest,
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """The response to a cursor whose topic was not requested, or whose partition is negative."""
    response = DescribeTopicPartitionsResponse()
    for topic in request.topics:
        response.topics.append(undescribed(topic.name, ErrorCode.INVALID_REQUEST, _NOT_REQUESTED))
        if not len(response.topics) % _STEP:
            yield
    return response


def undescribed(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )
