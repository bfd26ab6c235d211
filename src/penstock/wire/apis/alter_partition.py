"""AlterPartition, versions 2 and 3: a leader's ISR proposal; 3 with broker epochs."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlterPartitionRequestPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32(), "2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionRequestTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[AlterPartitionRequestPartition] = array(AlterPartitionRequestPartition)


class AlterPartitionRequest(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopic] = array(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32())
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionResponseTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[AlterPartitionResponsePartition] = array(AlterPartitionResponsePartition)


class AlterPartitionResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopic] = array(AlterPartitionResponseTopic)


ALTER_PARTITION = Api(
    56,
    "AlterPartition",
    (2, 3),
    flexible_from=0,
    request=AlterPartitionRequest,
    response=AlterPartitionResponse,
)
