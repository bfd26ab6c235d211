"""GetReplicaLogInfo, version 0 (KIP-966)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import OWN_TAGS, Struct, array, boolean, int16, int32, int64, nullable_array, uuid


class LogInfoTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())
    #: for each partition the offset of a batch whose checksum is wanted, -1 for none; empty if none is wanted
    batches_at: list[int] = array(int64(), tag=OWN_TAGS)


class GetReplicaLogInfoRequest(Struct):
    topic_partitions: list[LogInfoTopic] | None = nullable_array(LogInfoTopic, empty=True)


class PartitionLogInfo(Struct):
    partition: int = int32()
    last_written_leader_epoch: int = int32()
    current_leader_epoch: int = int32()
    log_end_offset: int = int64()
    error_code: int = int16()
    log_start_offset: int = int64(tag=OWN_TAGS)
    high_watermark: int = int64(tag=OWN_TAGS + 1)
    #: whether the log is known to have damaged ranges or holes
    is_damaged: bool = boolean(tag=OWN_TAGS + 2)
    #: the log start up to which retention or DeleteRecords has deleted records
    explained_start_offset: int = int64(tag=OWN_TAGS + 3)
    #: the newest leader epochs of the log, oldest first: each epoch and its first offset in turn
    leader_epochs: list[int] = array(int64(), tag=OWN_TAGS + 4)
    #: the checksum of the batch that was asked for; -1 if it is not known
    batch_checksum: int = int64(default=-1, tag=OWN_TAGS + 5)
    #: up to where compaction has left out offsets from the one that was asked for on; -1 if it is not known
    gaps_to: int = int64(default=-1, tag=OWN_TAGS + 6)
    #: the offset behind the last damage of a log that `is_damaged`; -1 if it is not known
    damaged_to: int = int64(default=-1, tag=OWN_TAGS + 7)
    #: the offset behind the last sound record of a log that is damaged to its end; -1 for any other log
    sound_end_offset: int = int64(default=-1, tag=OWN_TAGS + 8)


class TopicPartitionLogInfo(Struct):
    topic_id: bytes = uuid()
    partition_log_info: list[PartitionLogInfo] = array(PartitionLogInfo)


class GetReplicaLogInfoResponse(Struct):
    throttle_time_ms: int = int32()
    broker_epoch: int = int64()
    #: only the first 1,000 partitions are answered for
    truncated: bool = boolean()
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = array(TopicPartitionLogInfo)


GET_REPLICA_LOG_INFO = Api(
    93,
    "GetReplicaLogInfo",
    (0, 0),
    flexible_from=0,
    request=GetReplicaLogInfoRequest,
    response=GetReplicaLogInfoResponse,
)
