"""Topics of requests for committed offsets that are refused as a whole, by a check or by the handler."""

from __future__ import annotations

from typing import Any, Final

from penstock.model.errors import ErrorCode
from penstock.wire.apis.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from penstock.wire.apis.offset_fetch import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

__all__ = ["BY_TOPIC_ID", "GROUPS_FROM", "GROUP_ERROR_FROM", "commit_refused", "fetch_refused"]

#: the first versions of OffsetCommit and OffsetFetch with topic ids, and of OffsetFetch with several groups
#: and with an error for the whole response
BY_TOPIC_ID: Final = 10
GROUPS_FROM: Final = 8
GROUP_ERROR_FROM: Final = 2


def commit_refused(topic: Any, code: ErrorCode) -> OffsetCommitResponseTopic:
    """The error of each partition of a topic of OffsetCommit."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def fetch_refused(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopics:
    """The error of each partition of a topic of OffsetFetch."""
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
