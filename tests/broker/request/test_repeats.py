"""Elements with large answers that a request names again and again.

A frame of 9 KB that named one group 1,000 times had a response of 60 MB, and took 350 MB of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from penstock.broker.request.repeats import REPEATED_MAX
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.api import Api
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    TopicRequest,
)
from penstock.wire.apis.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from penstock.wire.schema import Struct
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.waiting import eventually

#: a small request, and one of several parts
_TIMES = (REPEATED_MAX + 5, 400)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={"auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap, timeout_s=60) as connected:
        for kind in (0, 1):
            # Coordinators load their partitions, which exist from the first look on.
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["group"])
            eventually(partial(_is_found, connected, find))
        yield connected


def _is_found(client: RawClient, request: FindCoordinatorRequest) -> bool:
    return client.call(FIND_COORDINATOR, 4, request).coordinators[0].error_code == ErrorCode.NONE


def _resource(**more: Any) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=2, resource_name="missing", **more)


#: the API, its request with a number of elements, and the list of its response
REQUESTS: dict[str, tuple[Api[Any, Any], Callable[[int], Struct], str]] = {
    "OffsetFetch": (
        OFFSET_FETCH,
        lambda number: OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="group", topics=None) for _ in range(number)]
        ),
        "groups",
    ),
    "DescribeGroups": (
        DESCRIBE_GROUPS,
        lambda number: DescribeGroupsRequest(groups=["group"] * number),
        "groups",
    ),
    "ConsumerGroupDescribe": (
        CONSUMER_GROUP_DESCRIBE,
        lambda number: ConsumerGroupDescribeRequest(group_ids=["group"] * number),
        "groups",
    ),
    "ShareGroupDescribe": (
        SHARE_GROUP_DESCRIBE,
        lambda number: ShareGroupDescribeRequest(group_ids=["group"] * number),
        "groups",
    ),
    "DescribeShareGroupOffsets": (
        DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda number: DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(group_id="group", topics=None) for _ in range(number)
            ]
        ),
        "groups",
    ),
    "DescribeTransactions": (
        DESCRIBE_TRANSACTIONS,
        lambda number: DescribeTransactionsRequest(transactional_ids=["id"] * number),
        "transaction_states",
    ),
    "DescribeConfigs": (
        DESCRIBE_CONFIGS,
        lambda number: DescribeConfigsRequest(
            resources=[_resource(configuration_keys=None) for _ in range(number)]
        ),
        "results",
    ),
}


@pytest.mark.parametrize("times", _TIMES)
@pytest.mark.parametrize("name", REQUESTS)
def test_an_element_is_answered_a_few_times(client: RawClient, name: str, times: int) -> None:
    api, request, answers = REQUESTS[name]
    found = getattr(client.call(api, api.max_version, request(times)), answers)
    codes = [answer.error_code for answer in found]
    assert len(codes) == times
    refused = [code for code in codes if code == ErrorCode.INVALID_REQUEST]
    assert len(refused) == times - REPEATED_MAX
    few = getattr(client.call(api, api.max_version, request(REPEATED_MAX)), answers)
    assert len(few) == REPEATED_MAX
    assert ErrorCode.INVALID_REQUEST not in {answer.error_code for answer in few}


@pytest.mark.parametrize("times", _TIMES)
def test_partitions_are_described_a_few_times(client: RawClient, times: int) -> None:
    topic = create_topic(client, partitions=2).name
    wanted = TopicRequest(name=topic, partition_indexes=[0] * times + [1])
    response = client.call(DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=[wanted]))
    (found,) = response.topics
    codes = [(each.partition_index, each.error_code) for each in found.partitions]
    assert len(codes) == times + 1
    assert codes.count((0, ErrorCode.NONE)) == REPEATED_MAX
    assert codes.count((0, ErrorCode.INVALID_REQUEST)) == times - REPEATED_MAX
    assert codes[-1] == (1, ErrorCode.NONE)


def test_partitions_and_configs_that_are_named_one_by_one_have_no_limit(client: RawClient) -> None:
    """Their answers are not much larger than the request. A large group is divided into many parts."""
    group = OffsetFetchRequestGroup(
        group_id="group", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=list(range(3000)))]
    )
    (found,) = client.call(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group])).groups
    assert found.error_code == ErrorCode.NONE
    assert sum(len(topic.partitions) for topic in found.topics) == 3000
    resources = [_resource(configuration_keys=["retention.ms"]) for _ in range(REPEATED_MAX + 5)]
    results = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources)).results
    assert {result.error_code for result in results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
