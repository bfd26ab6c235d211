"""FetchSnapshot, versions 0 and 1: bytes of a snapshot of the metadata log, from any position."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import NodeEndpoint
from penstock.wire.schema import (
    Records,
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    struct,
    tagged_struct,
    unaligned_batches,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class FetchSnapshotPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid("1+", tag=0)


class FetchSnapshotTopic(Struct):
    name: str = string()
    partitions: list[FetchSnapshotPartition] = array(FetchSnapshotPartition)


class FetchSnapshotRequest(Struct):
    cluster_id: str | None = nullable_string(tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[FetchSnapshotTopic] = array(FetchSnapshotTopic)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class SnapshotPartition(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = tagged_struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    #: cut anywhere, also within a batch
    unaligned_records: Records = unaligned_batches()


class SnapshotTopic(Struct):
    name: str = string()
    partitions: list[SnapshotPartition] = array(SnapshotPartition)


class FetchSnapshotResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[SnapshotTopic] = array(SnapshotTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


FETCH_SNAPSHOT = Api(
    59, "FetchSnapshot", (0, 1), flexible_from=0, request=FetchSnapshotRequest, response=FetchSnapshotResponse
)
