"""DescribeLogDirs, versions 1 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import OWN_TAGS, Struct, array, boolean, int16, int32, int64, nullable_array, string


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class DescribeLogDirsRequest(Struct):
    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic, empty=True)


class FollowerLag(Struct):
    """The lag of one follower, as its leader knows it."""

    broker_id: int = int32()
    records: int = int64()
    milliseconds: int = int64()


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()
    #: ranges that are known to be damaged and could not be repaired yet
    damaged_ranges: int = int32("2+", tag=OWN_TAGS)
    #: of a partition that this broker leads
    follower_lags: list[FollowerLag] = array(FollowerLag, "2+", tag=OWN_TAGS + 1)


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")
    #: whether it takes no records for lack of room
    is_full: bool = boolean("2+", tag=OWN_TAGS)
    #: of logs that were set aside instead of being deleted
    quarantined_bytes: int = int64("2+", tag=OWN_TAGS + 1)


class DescribeLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    #: why the broker deletes nothing by time; empty while it does
    deletion_suspended: str = string("2+", tag=OWN_TAGS)
    #: how the broker's metadata differs from the other nodes'; empty where it does not
    metadata_diverged: str = string("2+", tag=OWN_TAGS + 1)


DESCRIBE_LOG_DIRS = Api(
    35,
    "DescribeLogDirs",
    (1, 5),
    flexible_from=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
