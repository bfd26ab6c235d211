"""Share groups for tests: their lag, and clients with short waits."""

from __future__ import annotations

from typing import Any

from penstock.client import Queue
from penstock.model.errors import ErrorCode
from penstock.wire.apis import describe_share_group_offsets as offsets
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, create_topic, produce

__all__ = ["lag", "quick", "send"]


def lag(bootstrap: str, group: str) -> int:
    """The number of messages that the group has neither accepted nor given up; -1 if it has no offsets."""
    wanted = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = offsets.DescribeShareGroupOffsetsRequest(groups=[wanted])
    with RawClient(bootstrap) as client:
        (found,) = client.call(offsets.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    lags = [partition.lag for topic in found.topics for partition in topic.partitions]
    return sum(lags) if lags else -1


def quick(bootstrap: str, *topics: str, group: str, **arguments: Any) -> Queue:
    """A queue whose fetches wait for a short time only, so that it closes soon."""
    return Queue(bootstrap, *topics, group=group, **{"fetch_max_wait": 0.05, **arguments})


def send(bootstrap: str, topic: str, *values: str) -> None:
    """Send to the first partition of a new topic. librdkafka would take half a second for it."""
    with RawClient(bootstrap) as client:
        found = produce(client, create_topic(client, topic), batch_of([value.encode() for value in values]))
    assert found.error_code == ErrorCode.NONE, found.error_message
