"""Metadata, versions 0 to 13."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid("10+")
    name: str | None = nullable_string(nullable="10+", default="")


class MetadataRequest(Struct):
    topics: list[MetadataRequestTopic] | None = nullable_array(
        MetadataRequestTopic, nullable="1+", empty=True
    )
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string("1+")


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), "5+")


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = nullable_string(nullable="12+", default="")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


class MetadataResponse(Struct):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = nullable_string("2+")
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+")


METADATA = Api(3, "Metadata", (0, 13), flexible_from=9, request=MetadataRequest, response=MetadataResponse)
