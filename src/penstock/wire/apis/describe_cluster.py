"""DescribeCluster, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_string,
    string,
)


class DescribeClusterRequest(Struct):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()
    is_fenced: bool = boolean("2+")
    #: the machine that it runs on, as replicas are spread by it
    machine: str | None = nullable_string(tag=OWN_TAGS)
    #: changes with each registration, so with each start of the broker; -1 from brokers before 0.2.0
    epoch: int = int64(default=-1, tag=OWN_TAGS + 1)


class DescribeClusterResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
    #: what becomes of the replicas of brokers that are gone, a line each; for people
    healing_notes: str = string(tag=OWN_TAGS)


DESCRIBE_CLUSTER = Api(
    60,
    "DescribeCluster",
    (0, 2),
    flexible_from=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
