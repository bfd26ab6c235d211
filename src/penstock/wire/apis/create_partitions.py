"""CreatePartitions, versions 0 to 3."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int16, int32, nullable_array, nullable_string, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32())


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(
        CreatePartitionsAssignment, empty=True
    )


class CreatePartitionsRequest(Struct):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class CreatePartitionsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


CREATE_PARTITIONS = Api(
    37,
    "CreatePartitions",
    (0, 3),
    flexible_from=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
