"""DescribeLogDirs, versions 1 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    string,
    tagged_struct,
)


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class DescribeLogDirsRequest(Struct):
    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic, empty=True)
    #: whether the response has the findings of the broker about its health
    include_health: bool = boolean("2+", tag=OWN_TAGS)


class FollowerLag(Struct):
    """The lag of one follower, as its leader knows it."""

    broker_id: int = int32()
    records: int = int64()
    milliseconds: int = int64()


class MirroredLog(Struct):
    """The mirror of a partition of another cluster, as the broker that leads it here knows it."""

    link: str = string()
    phase: str = string()
    #: why it does not go on; empty if it does
    reason: str = string()
    #: the end of what is mirrored and committed
    end_offset: int = int64()
    last_timestamp_ms: int = int64(default=-1)
    #: the end at the source; -1 if it is not known
    source_end_offset: int = int64(default=-1)
    lag_ms: int = int64(default=-1)
    #: offsets that the source had deleted before they were mirrored
    missed: int = int64()
    errors: int = int64()
    bytes: int = int64()
    open_transactions: int = int32()
    #: transactions that were aborted here at the end of the mirror
    aborted: int = int32()
    is_closed: bool = boolean()
    #: of a returning topic: the end of what it has in common with the source, -1 while that is not known;
    #: the records behind it; and the leader epoch of the comparison
    common_offset: int = int64(tag=0, default=-1)
    divergent_records: int = int64(tag=1)
    leader_epoch: int = int32(tag=2, default=-1)
    #: of a returning topic: its id at the source
    source_topic_id: str = string(tag=3)
    #: the state of the topic that the leader has applied, with the number of a promotion with a fence
    topic_state: str = string(tag=4)


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()
    #: ranges that are known to be damaged and could not be repaired yet
    damaged_ranges: int = int32("2+", tag=OWN_TAGS)
    #: of a partition that this broker leads
    follower_lags: list[FollowerLag] = array(FollowerLag, "2+", tag=OWN_TAGS + 1)
    #: of a partition that this broker leads, and that a link mirrors
    mirror: MirroredLog | None = tagged_struct(MirroredLog, "2+", tag=OWN_TAGS + 2)


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
    #: bytes of the volume that are free, and that the broker may not write
    reserved_bytes: int = int64("2+", tag=OWN_TAGS + 2)


class HealthFinding(Struct):
    """A reason for a level of health below Healthy (`penstock.observability.health.Finding`)."""

    part: str = string()
    level: str = string()
    code: str = string()
    reason: str = string()
    subject: str = string()


class LinkProblem(Struct):
    """Why a topic is not mirrored."""

    topic: str = string()
    reason: str = string()


class LinkReport(Struct):
    """A link to another cluster, as one broker sees it."""

    name: str = string()
    #: why the broker does not reach the source, or refuses it; empty if it does not
    error: str = string()
    errors: int = int64()
    #: comparisons of topics and groups that were completed
    rounds: int = int64()
    problems: list[LinkProblem] = array(LinkProblem)
    #: groups whose offsets readers of this cluster have committed
    foreign_groups: list[str] = array(string())
    #: the topics that the last completed comparison of offsets took for promoted, as TOPIC/STATE
    promotions: list[str] = array(string(), tag=0)


class DescribeLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    #: why the broker deletes nothing by time; empty while it does
    deletion_suspended: str = string("2+", tag=OWN_TAGS)
    #: how the broker's metadata differs from the other nodes'; empty where it does not
    metadata_diverged: str = string("2+", tag=OWN_TAGS + 1)
    #: the broker's wall clock; -1 if it does not say
    clock_ms: int = int64("2+", default=-1, tag=OWN_TAGS + 2)
    #: whether `health` was requested, and is known: a healthy broker has no findings
    reports_health: bool = boolean("2+", tag=OWN_TAGS + 3)
    health: list[HealthFinding] = array(HealthFinding, "2+", tag=OWN_TAGS + 4)
    #: the links of the cluster
    links: list[LinkReport] = array(LinkReport, "2+", tag=OWN_TAGS + 5)


DESCRIBE_LOG_DIRS = Api(
    35,
    "DescribeLogDirs",
    (1, 5),
    flexible_from=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
