"""Fetch, versions 4 to 18."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    OWN_TAGS,
    Records,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    record_batches,
    string,
    tagged_struct,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=2**63 - 1, tag=1)


class FetchTopic(Struct):
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array(int32())


class FetchRequest(Struct):
    cluster_id: str | None = nullable_string("12+", tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = tagged_struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")
    #: of the metadata log: the checksum of the batch that the replica's log ends with
    last_checksum: int = int64("12+", default=-1, tag=OWN_TAGS)


def names_replica(request: FetchRequest) -> bool:
    """Whether a broker fetches for a replica of its own."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = tagged_struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = tagged_struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = tagged_struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction, empty=True)
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = record_batches()


class FetchableTopicResponse(Struct):
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()


class FetchResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


FETCH = Api(1, "Fetch", (4, 18), flexible_from=12, request=FetchRequest, response=FetchResponse)
