"""CreateTopics, DeleteTopics, CreatePartitions: changes that go through the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from penstock.broker.base.context import Context
from penstock.broker.base.mutation_quotas import MutationQuotas
from penstock.broker.node.controller import Controller
from penstock.broker.node.new_topics import TopicCreation
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic, check_new_partitions, delete_topic, grow_topic
from penstock.model.config import BrokerConfig, describe_topic
from penstock.model.errors import ApiError, ErrorCode, InvalidPartitions, TopicAlreadyExists
from penstock.model.ids import (
    NO_TOPIC_ID,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicId,
)
from penstock.model.steps import Steps
from penstock.ports import Clock
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

__all__ = ["TopicHandlers"]

_BY_STATE = 6
#: the first version of CreateTopics that shows configs
_DESCRIBES_CONFIGS = 5
#: the first version of DeleteTopics that knows TOPIC_DELETION_DISABLED
_KNOWS_DISABLED = 3
#: the first versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)
_CREATE_STRICT_FROM, _DELETE_STRICT_FROM, _GROW_STRICT_FROM = 6, 5, 3
#: the config with the number of partitions of each coordinator's topic
_COORDINATOR_PARTITIONS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.num.partitions",
}
_TWICE = "The topic is named more than once"


class TopicHandlers:
    """CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(
        self,
        config: BrokerConfig,
        topic_creation: TopicCreation,
        image: ClusterImage,
        clock: Clock,
        controller: Controller,
        mutations: MutationQuotas,
    ) -> None:
        self._mutations = mutations
        self._config = config
        self._topic_creation = topic_creation
        self._image = image
        self._clock = clock
        self._controller = controller

    async def create_topics(self, context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
        response = CreateTopicsResponse()
        quota = self._mutations.of(context, _CREATE_STRICT_FROM)
        counts = Counter(topic.name for topic in request.topics)
        for name in [name for name, count in counts.items() if count > 1]:
            response.topics.append(
                CreatableTopicResult(
                    name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
                )
            )
        topics = [topic for topic in request.topics if counts[topic.name] == 1]
        results: list[CreatableTopicResult | None] = []
        wanted: list[NewTopic] = []
        new = _new_partitions(request, self._config.num_partitions)
        for topic in topics:
            try:
                check_new_partitions(new)
                wanted.append(self._wanted(topic))
                results.append(None)
            except ApiError as e:
                results.append(_not_created(topic.name, e))
        made = iter(await self._topic_creation.decide_all(wanted, request.validate_only, quota.charge))
        described = _Described(self._config, context.version)
        for topic, result in zip(topics, results, strict=True):
            if result is None:
                records = next(made)
                configs = [] if isinstance(records, ApiError) else described.of(topic)
                result = _created(topic, records, request.validate_only, configs)
            response.topics.append(result)
        response.throttle_time_ms = quota.throttle_ms
        return response

    def _wanted(self, topic: CreatableTopic) -> NewTopic:
        if topic.name in self._image.topics:
            # Before the other checks, as in Kafka.
            raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
        wanted = NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {a.partition_index: a.broker_ids for a in topic.assignments},
            {c.name: c.value for c in topic.configs if c.value is not None},
        )
        if any(c.value is None for c in topic.configs):
            raise ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs")
        if len(wanted.assignments) != len(topic.assignments):
            wanted = wanted._replace(is_ambiguous=True)
        _check_coordinator_topic(self._config, wanted)
        return wanted

    async def delete_topics(self, context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        states: Sequence[DeleteTopicState] = request.topics
        if context.version < _BY_STATE:
            states = [DeleteTopicState(name=name) for name in request.topic_names]
        if not self._config.delete_topic_enable:
            disabled = ErrorCode.TOPIC_DELETION_DISABLED
            if context.version < _KNOWS_DISABLED:
                disabled = ErrorCode.INVALID_REQUEST
            return DeleteTopicsResponse(
                responses=[_not_deleted(state, disabled, "delete.topic.enable is false") for state in states]
            )
        quota = self._mutations.of(context, _DELETE_STRICT_FROM)
        try:
            results = await self._controller.change(
                lambda: _decide_deletions(self._image, states, quota.charge)
            )
        except ApiError as e:
            results = [_not_deleted(state, e.code, str(e)) for state in states]
        return DeleteTopicsResponse(responses=results, throttle_time_ms=quota.throttle_ms)

    async def create_partitions(
        self, context: Context, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        response = CreatePartitionsResponse()
        quota = self._mutations.of(context, _GROW_STRICT_FROM)
        counts = Counter(topic.name for topic in request.topics)
        for name, count in counts.items():
            if count > 1:
                response.results.append(
                    CreatePartitionsTopicResult(
                        name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
                    )
                )
        topics = self._image.topics
        new = sum(
            max(0, t.count - len(topics[t.name].partitions)) for t in request.topics if t.name in topics
        )
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            result = CreatePartitionsTopicResult(name=topic.name)
            response.results.append(result)
            try:
                check_new_partitions(new)
                await self._grow(topic, request.validate_only, quota.charge)
            except ApiError as e:
                result.error_code = e.code
                result.error_message = str(e)
        response.throttle_time_ms = quota.throttle_ms
        return response

    async def _grow(
        self, topic: CreatePartitionsTopic, validate_only: bool, charge: Callable[[int], None]
    ) -> None:
        assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
        image, config = self._image, self._config

        def decide() -> Steps[tuple[Sequence[Struct], None]]:
            excluded = frozenset(map(int, config.penstock_balance_exclude_brokers))
            now_ms = self._clock.now_ms()
            steps = grow_topic(image, topic.name, topic.count, assignments, now_ms, excluded)
            records: Sequence[Struct] = yield from steps
            charge(len(records))
            return ([] if validate_only else records), None

        await self._controller.change(decide)


def _not_created(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def _new_partitions(request: CreateTopicsRequest, default: int) -> int:
    """The number of partitions of all topics of a request."""
    counts = (
        len(t.assignments) or (default if t.num_partitions == -1 else t.num_partitions)
        for t in request.topics
    )
    return sum(count for count in counts if count > 0)


def _check_coordinator_topic(config: BrokerConfig, topic: NewTopic) -> None:
    """Reject a coordinator's topic with another number of partitions than its coordinator expects.

    The number determines the partition of each group and transaction, so it can never change.
    """
    name = _COORDINATOR_PARTITIONS.get(topic.name)
    if name is None:
        return
    count = len(topic.assignments) or (config.num_partitions if topic.partitions == -1 else topic.partitions)
    if count != config[name]:
        raise InvalidPartitions(
            f"{topic.name} must have {config[name]} partitions, as set by {name}, not {count}: the number "
            f"can never change. Let the broker create the topic, or change {name} first."
        )


def _created(
    topic: CreatableTopic,
    records: Sequence[Struct] | ApiError,
    validate_only: bool,
    configs: list[CreatableTopicConfigs],
) -> CreatableTopicResult:
    if isinstance(records, ApiError):
        return _not_created(topic.name, records)
    created = records[0]
    assert isinstance(created, TopicRecord)
    partitions = [r for r in records if isinstance(r, PartitionRecord)]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=NO_TOPIC_ID if validate_only else created.topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )


class _Described:
    """The configs of new topics for responses, cached: topics of a request often have the same configs."""

    def __init__(self, config: BrokerConfig, version: int) -> None:
        self._config = config
        self._needed = version >= _DESCRIBES_CONFIGS
        self._known: dict[tuple[tuple[str, str | None], ...], list[CreatableTopicConfigs]] = {}

    def of(self, topic: CreatableTopic) -> list[CreatableTopicConfigs]:
        key = tuple((config.name, config.value) for config in topic.configs)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._describe(topic) if self._needed else []
        return found

    def _describe(self, topic: CreatableTopic) -> list[CreatableTopicConfigs]:
        set_for_it = {c.name: c.value for c in topic.configs if c.value is not None}
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(self._config, set_for_it)
        ]


def _decide_deletions(
    image: ClusterImage, states: Sequence[DeleteTopicState], charge: Callable[[int], None]
) -> tuple[Sequence[Struct], list[DeletableTopicResult]]:
    """One change for all topics. As in Kafka, a topic that is given twice is not deleted, with one result."""
    counts = Counter((state.name, state.topic_id) for state in states)
    refused: list[DeletableTopicResult] = []
    found: dict[TopicId, DeletableTopicResult] = {}
    for (name, topic_id), count in counts.items():
        state = DeleteTopicState(name=name, topic_id=topic_id)
        if (name is None) == (topic_id == NO_TOPIC_ID):
            message = "Give the topic's name or its id, one of the two"
            refused += [_not_deleted(state, ErrorCode.INVALID_REQUEST, message)] * count
            continue
        if count > 1:
            refused.append(_not_deleted(state, ErrorCode.INVALID_REQUEST, _TWICE))
            continue
        if name is not None:
            topic, missing = image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic, missing = image.topics_by_id.get(TopicId(topic_id)), ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            refused.append(_not_deleted(state, missing, "This topic does not exist"))
        elif topic.id in found:
            found[topic.id].error_code, found[topic.id].error_message = ErrorCode.INVALID_REQUEST, _TWICE
        else:
            found[topic.id] = DeletableTopicResult(name=topic.name, topic_id=topic.id)
    records: list[Struct] = []
    for known, result in found.items():
        if result.error_code:
            continue
        topic = image.topics_by_id[known]
        try:
            charge(len(topic.partitions))
        except ApiError as e:
            result.error_code, result.error_message = e.code, str(e)
            continue
        records += delete_topic(topic)
    return records, [*found.values(), *refused]


def _not_deleted(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
