"""Limits how often a request names the same element, if the answer to it may be large.

The offsets of a group, its members, or the configs of a broker may take 100 KB. A request of a few kilobytes
that names one of them a thousand times would have a response of 100 MB. A request may name one up to
`REPEATED_MAX` times, and each is answered, as in Kafka. Further ones are answered with INVALID_REQUEST.

Without repetitions, a response is not larger than what the broker holds in memory anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.wire.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from penstock.wire.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from penstock.wire.apis.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)
from penstock.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from penstock.wire.apis.describe_transactions import DescribedTransaction, DescribeTransactionsResponse
from penstock.wire.apis.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from penstock.wire.apis.share_group_describe import DescribedGroup as DescribedShareGroup
from penstock.wire.apis.share_group_describe import ShareGroupDescribeResponse
from penstock.wire.apis.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from penstock.wire.apis.streams_group_describe import StreamsGroupDescribeResponse

__all__ = ["REPEATED_MAX", "Seen", "has_many"]

REPEATED_MAX: Final = 10
_CODE: Final = ErrorCode.INVALID_REQUEST
_MESSAGE: Final = f"The request names this more than {REPEATED_MAX} times."


class _Repeats(NamedTuple):
    """The list of an API whose elements may have large answers."""

    elements: str
    #: what identifies an element; None if its answer is not larger than the element by much
    key: Callable[[Any], Hashable | None]
    #: the response to an element that is named too often
    refuse: Callable[[Any], Any]
    #: the list of an element that has what may be named too often
    inner: str = ""


def _whole_group(group: Any) -> str | None:
    """All offsets of a group. Otherwise the request names each partition."""
    return group.group_id if group.topics is None else None


def _all_configs(resource: Any) -> tuple[int, str] | None:
    wanted = resource.configuration_keys
    return (resource.resource_type, resource.resource_name) if wanted is None else None


def _config_refusal(resource: Any) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(
        error_code=_CODE,
        error_message=_MESSAGE,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    return DescribeConfigsResponse(results=[result])


def _partition(topic: TopicRequest) -> tuple[str, tuple[int, ...]]:
    """A part of a request has one partition."""
    return topic.name, tuple(topic.partition_indexes)


def _producers_refusal(topic: TopicRequest) -> DescribeProducersResponse:
    partitions = [
        PartitionResponse(partition_index=index, error_code=_CODE, error_message=_MESSAGE)
        for index in topic.partition_indexes
    ]
    return DescribeProducersResponse(topics=[TopicResponse(name=topic.name, partitions=partitions)])


#: by API key
_REPEATS: Final[dict[int, _Repeats]] = {
    # OffsetFetch
    9: _Repeats(
        "groups",
        _whole_group,
        lambda group: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=_CODE)]
        ),
    ),
    # DescribeGroups
    15: _Repeats(
        "groups",
        str,
        lambda name: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=name, error_code=_CODE, error_message=_MESSAGE)]
        ),
    ),
    # DescribeConfigs
    32: _Repeats("resources", _all_configs, _config_refusal),
    # DescribeProducers
    61: _Repeats("topics", _partition, _producers_refusal, inner="partition_indexes"),
    # DescribeTransactions
    65: _Repeats(
        "transactional_ids",
        str,
        lambda name: DescribeTransactionsResponse(
            transaction_states=[DescribedTransaction(transactional_id=name, error_code=_CODE)]
        ),
    ),
    # ConsumerGroupDescribe
    69: _Repeats(
        "group_ids",
        str,
        lambda name: ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(group_id=name, error_code=_CODE, error_message=_MESSAGE)]
        ),
    ),
    # ShareGroupDescribe
    77: _Repeats(
        "group_ids",
        str,
        lambda name: ShareGroupDescribeResponse(
            groups=[DescribedShareGroup(group_id=name, error_code=_CODE, error_message=_MESSAGE)]
        ),
    ),
    # StreamsGroupDescribe
    89: _Repeats(
        "group_ids",
        str,
        lambda name: StreamsGroupDescribeResponse(
            groups=[DescribedStreamsGroup(group_id=name, error_code=_CODE, error_message=_MESSAGE)]
        ),
    ),
    # DescribeShareGroupOffsets
    90: _Repeats(
        "groups",
        _whole_group,
        lambda group: DescribeShareGroupOffsetsResponse(
            groups=[
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, error_code=_CODE, error_message=_MESSAGE
                )
            ]
        ),
    ),
}


def has_many(api_key: int) -> Callable[[Any], bool] | None:
    """A function that tells whether a request may name an element too often; None if there is no limit."""
    repeats = _REPEATS.get(api_key)
    if repeats is None:
        return None
    name, inner = repeats.elements, repeats.inner

    def has_many(request: Any) -> bool:
        elements = getattr(request, name) or ()
        number = sum([len(getattr(each, inner)) for each in elements]) if inner else len(elements)
        return number > REPEATED_MAX

    return has_many


class Seen:
    """The elements that a request has named so far, part after part."""

    __slots__ = ("_counts", "_repeats")

    def __init__(self, api_key: int) -> None:
        self._repeats = _REPEATS.get(api_key)
        self._counts: Counter[Hashable] = Counter()

    def refusals(self, part: Any) -> list[Any]:
        """Remove the elements from a part of the request that are named too often; the responses to them."""
        if self._repeats is None:
            return []
        name, key_of, refuse, _ = self._repeats
        kept, refused = [], []
        for element in getattr(part, name) or ():
            key = key_of(element)
            if key is not None:
                self._counts[key] += 1
                if self._counts[key] > REPEATED_MAX:
                    refused.append(refuse(element))
                    continue
            kept.append(element)
        if refused:
            setattr(part, name, kept)
        return refused
