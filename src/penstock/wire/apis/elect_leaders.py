"""ElectLeaders, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, nullable_array, nullable_string, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class ElectLeadersRequest(Struct):
    #: 0 the preferred replica, 1 an unclean one
    election_type: int = int8("1+")
    #: null for all of them
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


ELECT_LEADERS = Api(
    43, "ElectLeaders", (0, 2), flexible_from=2, request=ElectLeadersRequest, response=ElectLeadersResponse
)
