"""Random operations on topics and configs."""

from __future__ import annotations

from differential.model import MISSING, Model
from differential.operations import Operation
from penstock.wire.apis.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
)
from penstock.wire.apis.describe_topic_partitions import TopicRequest as DescribedTopic
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from penstock.wire.apis.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic

__all__ = [
    "alter_configs",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_configs",
    "describe_topics",
    "incremental_alter_configs",
    "metadata",
]

TOPIC_RESOURCE = 2
#: values that are right, wrong and on the edge; none of them lets records go by themselves
CONFIGS: dict[str, tuple[str | None, ...]] = {
    "cleanup.policy": (
        "compact",
        "delete",
        "compact,delete",
        "",
        "delete,delete",
        "DELETE",
        "none",
    ),
    "compression.type": (
        "producer",
        "uncompressed",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        "brotli",
    ),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "max.message.bytes": ("1048588", "200", "0", "-1", "x", "2147483648"),
    "min.insync.replicas": ("1", "2", "0"),
    "segment.bytes": ("1048576", "1073741824", "10", "-1"),
    "retention.ms": ("-1", "-2", "999999999999", "9999999999999999999999"),
    "min.cleanable.dirty.ratio": ("0.5", "0", "1", "1.5", "NaN", "-0.1", "1e-3"),
    "index.interval.bytes": ("4096", "0", " 4096 "),
    "flush.messages": ("1", "0", "9223372036854775807"),
    "message.timestamp.after.max.ms": ("3600000", "0", "-1"),
    "unclean.leader.election.enable": ("true", "FALSE", "yes", ""),
    "no.such.config": ("1",),
}
NAMES = ("~a", "~b", "~c", "~d", "~e")
BAD_NAMES = ("", ".", "..", "a b", "ä", "x" * 250, "__consumer_offsets", "~a")


def create_topics(model: Model) -> Operation:
    version = model.version(CREATE_TOPICS)
    names = {
        model.pick(*NAMES) if model.chance(0.9) else model.pick(*BAD_NAMES)
        for _ in range(model.pick(1, 1, 2))
    }
    topics = [_new_topic(model, name) for name in sorted(names)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=20_000, validate_only=model.chance(0.1))
    creates: dict[str, bytes] = {}
    if not request.validate_only:
        for topic in topics:
            if topic.name in NAMES and topic.name not in model.topics:
                made = model.new_topic(topic.name, max(1, topic.num_partitions))
                model.topics[topic.name] = made
                creates[topic.name] = made.id
    return Operation("topics", CREATE_TOPICS, version, request, creates=creates)


def _new_topic(model: Model, name: str) -> CreatableTopic:
    topic = CreatableTopic(
        name=name,
        num_partitions=model.pick(1, 2, 3, -1),
        replication_factor=model.pick(1, -1),
    )
    if model.chance(0.08):
        topic.num_partitions, topic.replication_factor = model.pick((0, 1), (-2, 1), (1, 0), (1, 3), (1, -2))
    if model.chance(0.1):
        topic.num_partitions, topic.replication_factor = -1, -1
        wrong = model.chance(0.4)
        topic.assignments = [
            CreatableReplicaAssignment(
                partition_index=index,
                broker_ids=model.pick([9], [], [1, 1]) if wrong else [1],
            )
            for index in model.pick((0,), (0, 1), (1,), (0, 0))
        ]
    if model.chance(0.3):
        topic.configs = [CreatableTopicConfig(name=n, value=v) for n, v in _configs(model)]
    return topic


def delete_topics(model: Model) -> Operation:
    version = model.version(DELETE_TOPICS)
    topics = model.some_topics()[:2]
    if model.chance(0.1):
        topics.append(topics[0])
    by_id = version >= 6 and model.chance(0.5)
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(topic_id=topic.id, name=None) if by_id else DeleteTopicState(name=topic.name)
            for topic in topics
        ],
        topic_names=[topic.name for topic in topics],
        timeout_ms=20_000,
    )
    if len({topic.name for topic in topics}) == len(topics):
        for topic in topics:
            model.topics.pop(topic.name, None)
    return Operation("topics", DELETE_TOPICS, version, request)


def create_partitions(model: Model) -> Operation:
    topic = model.topic()
    count = topic.partitions + model.pick(1, 1, 2, 0, -1)
    if count > topic.partitions and topic.name != MISSING:
        topic.partitions = count
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)],
        timeout_ms=20_000,
    )
    return Operation("topics", CREATE_PARTITIONS, model.version(CREATE_PARTITIONS), request)


def metadata(model: Model) -> Operation:
    version = model.version(METADATA)
    topics = model.some_topics()
    by_id = version >= 12 and model.chance(0.4)
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(name=None, topic_id=topic.id)
            if by_id
            else MetadataRequestTopic(name=topic.name)
            for topic in topics
        ],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=model.chance(0.2),
        include_topic_authorized_operations=model.chance(0.2),
    )
    return Operation("topics", METADATA, version, request, is_read=True)


def describe_topics(model: Model) -> Operation:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribedTopic(name=topic.name) for topic in model.some_topics()],
        response_partition_limit=model.pick(2000, 2, 1, 0),
    )
    version = model.version(DESCRIBE_TOPIC_PARTITIONS)
    return Operation("topics", DESCRIBE_TOPIC_PARTITIONS, version, request, is_read=True)


def describe_configs(model: Model) -> Operation:
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            configuration_keys=model.pick(None, list(CONFIGS), ["cleanup.policy"]),
        )
        for topic in model.some_topics()
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=model.chance(0.5))
    return Operation(
        "configs",
        DESCRIBE_CONFIGS,
        model.version(DESCRIBE_CONFIGS),
        request,
        is_read=True,
    )


def incremental_alter_configs(model: Model) -> Operation:
    resources = [
        IncrementalResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            configs=[
                IncrementalConfig(
                    name=name,
                    config_operation=model.pick(0, 0, 0, 1, 2, 3),
                    value=value,
                )
                for name, value in _configs(model)
            ],
        )
        for topic in model.some_topics()[:2]
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=model.chance(0.15))
    version = model.version(INCREMENTAL_ALTER_CONFIGS)
    return Operation("configs", INCREMENTAL_ALTER_CONFIGS, version, request)


def alter_configs(model: Model) -> Operation:
    resources = [
        AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            configs=[AlterableConfig(name=name, value=value) for name, value in _configs(model)],
        )
        for topic in model.some_topics()[:1]
    ]
    request = AlterConfigsRequest(resources=resources, validate_only=model.chance(0.15))
    return Operation("configs", ALTER_CONFIGS, model.version(ALTER_CONFIGS), request)


def _configs(model: Model) -> list[tuple[str, str | None]]:
    names = {model.pick(*CONFIGS) for _ in range(model.pick(1, 1, 2))}
    return [(name, model.pick(*CONFIGS[name])) for name in sorted(names)]
