"""Responses to a replica fetcher: partitions to advance, and those with an error or a divergence."""

from __future__ import annotations

from penstock.broker.replica.fetch_responses import split_response
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.replication.epochs import EpochEnd
from penstock.replication.follower import FetchAnswer
from penstock.wire.apis.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData

TOPIC_ID = TopicId(b"t" * 16)


def test_errors_and_divergences_are_separated_from_records() -> None:
    partitions = [
        PartitionData(partition_index=0, high_watermark=5, log_start_offset=1, records=b"records"),
        PartitionData(partition_index=1, error_code=ErrorCode.FENCED_LEADER_EPOCH),
        PartitionData(partition_index=2, diverging_epoch=EpochEndOffset(epoch=3, end_offset=7)),
        PartitionData(partition_index=3, high_watermark=9, log_start_offset=0, records=None),
    ]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    fetched, refused = split_response(FetchResponse(responses=[topic]))
    assert fetched == [(TOPIC_ID, 0, 5, 1, b"records"), (TOPIC_ID, 3, 9, 0, b"")]
    (first, fenced), (second, diverging) = refused
    assert (first, second) == ((TOPIC_ID, 1), (TOPIC_ID, 2))
    assert isinstance(fenced, FetchAnswer)
    assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
    assert diverging.diverging == EpochEnd(3, 7)
