"""CreateTopics, DeleteTopics, CreatePartitions: changes that go through the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.broker.context import Context
from penstock.metadata.topics import NewTopic, check_new_partitions, delete_topic, grow_topic
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.wire.metadata_records import PartitionRecord, TopicRecord
from penstock.wire.schema import Struct

__all__ = ["create_partitions", "create_topics", "delete_topics"]

_BY_STATE = 6
#: the first version of DeleteTopics that knows TOPIC_DELETION_DISABLED
_KNOWS_DISABLED = 3


async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    response = CreateTopicsResponse()
    asked = Counter(topic.name for topic in request.topics)
    for name in [name for name, count in asked.items() if count > 1]:
        response.topics.append(
            CreatableTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
    new = _new_partitions(request, context.broker.config.num_partitions)
    for topic in request.topics:
        if asked[topic.name] > 1:
            continue
        try:
            check_new_partitions(new)
            response.topics.append(await _create(context, topic, request.validate_only))
        except ApiError as e:
            response.topics.append(
                CreatableTopicResult(name=topic.name, error_code=e.code, error_message=str(e))
            )
    return response


def _new_partitions(request: CreateTopicsRequest, default: int) -> int:
    """How many partitions all topics of a request would have."""
    counts = (
        len(t.assignments) or (default if t.num_partitions == -1 else t.num_partitions)
        for t in request.topics
    )
    return sum(count for count in counts if count > 0)


async def _create(context: Context, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    wanted = NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {a.partition_index: a.broker_ids for a in topic.assignments},
        {c.name: c.value for c in topic.configs if c.value is not None},
    )
    if len(wanted.assignments) != len(topic.assignments):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once")
    if any(c.value is None for c in topic.configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs")
    records = await context.broker.decide_topic(wanted, validate_only)
    created = records[0]
    assert isinstance(created, TopicRecord)
    partitions = [r for r in records if isinstance(r, PartitionRecord)]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=NO_TOPIC_ID if validate_only else created.topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in context.broker.config.describe_topic(wanted.configs)
        ],
    )


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    broker = context.broker
    states: Sequence[DeleteTopicState] = request.topics
    if context.version < _BY_STATE:
        states = [DeleteTopicState(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    asked = Counter((state.name, state.topic_id) for state in states)
    disabled = ErrorCode.TOPIC_DELETION_DISABLED
    if context.version < _KNOWS_DISABLED:
        disabled = ErrorCode.INVALID_REQUEST
    for state in states:
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        response.responses.append(result)
        try:
            if not broker.config.delete_topic_enable:
                raise ApiError(disabled, "delete.topic.enable is false")
            if asked[state.name, state.topic_id] > 1:
                raise InvalidRequest("The topic is named more than once")
            await _delete(context, state, result)
        except ApiError as e:
            result.error_code = e.code
            result.error_message = str(e)
    return response


async def _delete(context: Context, state: DeleteTopicState, result: DeletableTopicResult) -> None:
    image = context.broker.image

    def decide() -> tuple[Sequence[Struct], None]:
        if (state.name is None) == (state.topic_id == NO_TOPIC_ID):
            raise InvalidRequest("Give the topic's name or its id, one of the two")
        if state.name is not None:
            topic = image.topics.get(state.name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic = image.topics_by_id.get(TopicId(state.topic_id))
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            raise ApiError(missing, "This topic does not exist")
        result.name = topic.name
        result.topic_id = topic.id
        return delete_topic(topic), None

    await context.broker.controller.change(decide)


async def create_partitions(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    response = CreatePartitionsResponse()
    asked = Counter(topic.name for topic in request.topics)
    for name, count in asked.items():
        if count > 1:
            response.results.append(
                CreatePartitionsTopicResult(
                    name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
                )
            )
    topics = context.broker.image.topics
    new = sum(max(0, t.count - len(topics[t.name].partitions)) for t in request.topics if t.name in topics)
    for topic in request.topics:
        if asked[topic.name] > 1:
            continue
        result = CreatePartitionsTopicResult(name=topic.name)
        response.results.append(result)
        try:
            check_new_partitions(new)
            await _grow(context, topic, request.validate_only)
        except ApiError as e:
            result.error_code = e.code
            result.error_message = str(e)
    return response


async def _grow(context: Context, topic: CreatePartitionsTopic, validate_only: bool) -> None:
    assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
    image = context.broker.image

    def decide() -> tuple[Sequence[Struct], None]:
        records = grow_topic(image, topic.name, topic.count, assignments)
        return ([] if validate_only else records), None

    await context.broker.controller.change(decide)
