"""DescribeLogDirs of a broker under test."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
)


def log_dirs(client: RawClient) -> dict[str, DescribeLogDirsResult]:
    response = client.call(DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=None))
    assert response.error_code == ErrorCode.NONE
    return {result.log_dir: result for result in response.results}


def placement(client: RawClient, topic: Topic) -> dict[str, int]:
    """The partition in each directory."""
    found = {}
    for path, result in log_dirs(client).items():
        for stored in result.topics:
            if stored.name == topic.name:
                (found[path],) = [p.partition_index for p in stored.partitions]
    return found
