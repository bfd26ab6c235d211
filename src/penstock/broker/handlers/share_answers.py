"""Builds the responses of ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.shares.acknowledging import AckOutcome
from penstock.broker.shares.reading import AcquiredData
from penstock.broker.shares.share_fetch import FetchResult
from penstock.model.errors import ApiError, ErrorCode
from penstock.shares.sessions import ShareSession, TopicIdPartition
from penstock.wire.apis import share_acknowledge, share_fetch

__all__ = ["acknowledge_response", "fetch_response"]


def fetch_response(
    session: ShareSession, is_full: bool, outcome: AckOutcome, found: FetchResult | None
) -> Generator[None, None, share_fetch.ShareFetchResponse]:
    """A full response lists all partitions of the session, any other those with news.

    `found` is None for a request that fetches nothing: only acknowledgements are answered.
    """
    response = share_fetch.ShareFetchResponse()
    topics: dict[bytes, share_fetch.ShareFetchableTopicResponse] = {}
    for partition in [*session.partitions, *(p for p in outcome if p not in session.partitions)]:
        yield
        result, error = None if found is None else found.get(partition), outcome.get(partition)
        is_due = result is not None or partition in outcome
        if found is not None:
            has_records, has_error = isinstance(result, AcquiredData), isinstance(result, ErrorCode)
            is_due = session.mark_sent(partition, is_due, has_records, has_error) or is_full
        if not is_due:
            continue
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = share_fetch.ShareFetchableTopicResponse(
                topic_id=partition.topic_id
            )
            response.responses.append(topic)
        topic.partitions.append(_fetched(partition, result, error))
    return response


def _fetched(
    partition: TopicIdPartition, result: AcquiredData | ErrorCode | None, error: ApiError | None
) -> share_fetch.PartitionData:
    data = share_fetch.PartitionData(partition_index=partition.partition, records=b"")
    if error is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = error.code, error.message or None
    if isinstance(result, ErrorCode):
        data.error_code = result
    elif result is not None:
        data.records = result.records()
        data.acquired_records = [
            share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in result.ranges
        ]
    return data


def acknowledge_response(
    outcome: AckOutcome,
) -> Generator[None, None, share_acknowledge.ShareAcknowledgeResponse]:
    topics: dict[bytes, share_acknowledge.ShareAcknowledgeTopicResponse] = {}
    for partition, error in outcome.items():
        yield
        topic = topics.setdefault(
            partition.topic_id, share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=partition.topic_id)
        )
        data = share_acknowledge.PartitionData(partition_index=partition.partition)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message or None
        topic.partitions.append(data)
    return share_acknowledge.ShareAcknowledgeResponse(responses=list(topics.values()))
