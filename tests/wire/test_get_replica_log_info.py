"""GetReplicaLogInfo by the bytes that KIP-966's schema gives it: no other codec here knows the API."""

from __future__ import annotations

from penstock.wire.apis.get_replica_log_info import (
    GET_REPLICA_LOG_INFO,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from tests.wire.cases import CASES, Case

TOPIC_ID = bytes(range(16))


def case(direction: str) -> Case:
    (found,) = [c for c in CASES if c.api is GET_REPLICA_LOG_INFO and c.direction == direction]
    return found


def test_request() -> None:
    request = GetReplicaLogInfoRequest(
        topic_partitions=[LogInfoTopic(topic_id=TOPIC_ID, partitions=[1, 258])]
    )
    encoded = b"\x02" + TOPIC_ID + b"\x03" + b"\0\0\0\x01" + b"\0\0\x01\x02" + b"\0" + b"\0"
    assert case("request").encode(request) == encoded
    assert case("request").decode(encoded) == request
    assert case("request").decode(b"\0\0") == GetReplicaLogInfoRequest(topic_partitions=None)


def test_response() -> None:
    info = PartitionLogInfo(
        partition=1, last_written_leader_epoch=2, current_leader_epoch=3, log_end_offset=4, error_code=5
    )
    response = GetReplicaLogInfoResponse(
        broker_epoch=7,
        truncated=True,
        topic_partition_log_info_list=[TopicPartitionLogInfo(topic_id=TOPIC_ID, partition_log_info=[info])],
    )
    partition = b"\0\0\0\x01" + b"\0\0\0\x02" + b"\0\0\0\x03" + b"\0" * 7 + b"\x04" + b"\0\x05" + b"\0"
    encoded = b"\0\0\0\0" + b"\0" * 7 + b"\x07" + b"\x01" + b"\x02" + TOPIC_ID + b"\x02" + partition + b"\0\0"
    assert case("response").encode(response) == encoded
    assert case("response").decode(encoded) == response
