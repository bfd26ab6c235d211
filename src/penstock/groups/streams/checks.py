"""Checks of StreamsGroupHeartbeat that need no group, in Kafka's order, and of the tasks that it reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.groups.streams.topology import TASKS_MAX, ConfiguredTopology, check_size, topology_topics
from penstock.metadata.topics import check_topic_name
from penstock.model.config.mirrored_topics import LINK_CONFIG
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest, InvalidTopic
from penstock.model.ids import INTERNAL_TOPICS
from penstock.wire.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds, Topology

__all__ = ["JOINING", "check_streams_request", "check_tasks", "check_topic_names"]

JOINING: Final = 0
_STATIC_LEAVING: Final = -2
#: the tags of a member, and the characters of its texts: they are one record
_TAGS_MAX: Final = 1000
_TEXT_MAX: Final = 100_000


def check_topic_names(topology: Topology | None) -> None:
    """Refuse a topology with Kafka's internal topics, or with names that no topic can have."""
    if topology is None:
        return
    check_size(topology)
    names = dict.fromkeys(topology_topics(topology))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def check_streams_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise the ApiError of a request that is invalid for any group."""
    _check_supported(request)
    _check_texts(request)
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == JOINING:
        _check_joining(request)
    elif request.member_epoch == _STATIC_LEAVING:
        raise InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < _STATIC_LEAVING:
        raise InvalidRequest(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        )
    given = [each is not None for each in tasks]
    if any(given) and not all(given):
        raise InvalidRequest("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING and request.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")
    if sum(len(each or ()) for each in tasks) > TASKS_MAX or (
        sum(len(ids.partitions) for each in tasks for ids in each or ()) > TASKS_MAX
    ):
        raise InvalidRequest(f"A member can't have more than {TASKS_MAX} tasks.")
    if request.client_tags is not None and len(request.client_tags) > _TAGS_MAX:
        raise InvalidRequest(f"ClientTags can't have more than {_TAGS_MAX} entries.")
    host = "" if request.user_endpoint is None else request.user_endpoint.host
    texts = [request.member_id, request.rack_id or "", request.process_id or "", host]
    texts += [text for tag in request.client_tags or () for text in (tag.key, tag.value)]
    if sum(map(len, texts)) > _TEXT_MAX:
        raise InvalidRequest(f"A member can't have more than {_TEXT_MAX} characters.")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what Kafka 4.3 reserves for later versions."""
    if request.instance_id is not None:
        raise InvalidRequest("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidRequest("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidRequest("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidRequest("WarmupTasks are not supported yet.")
    if request.topology is not None:
        check_size(request.topology)
        if any(each.source_topic_regex for each in request.topology.subtopologies):
            raise InvalidRequest("Regular expressions for source topics are not supported yet.")


def _check_texts(request: StreamsGroupHeartbeatRequest) -> None:
    texts = {"MemberId": request.member_id, "GroupId": request.group_id, "RackId": request.rack_id}
    for field, text in texts.items():
        if text is not None and not text.strip():
            raise InvalidRequest(f"{field} can't be empty.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    tasks = {
        "ActiveTasks": request.active_tasks,
        "StandbyTasks": request.standby_tasks,
        "WarmupTasks": request.warmup_tasks,
    }
    for field, ids in tasks.items():
        if ids is None or ids:
            raise InvalidRequest(f"{field} must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequest("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            # Brokers create the topic, with more rights than the member has.
            if any(config.key == LINK_CONFIG for config in topic.topic_configs):
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Internal topic {topic.name} cannot have the config {LINK_CONFIG}: no link mirrors it.",
                )
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def check_tasks(configured: ConfiguredTopology, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST if the member reports a task that the topology does not have."""
    if not configured.is_ready:
        return
    lists: tuple[Iterable[TaskIds], ...] = (
        request.active_tasks or (),
        request.standby_tasks or (),
        request.warmup_tasks or (),
    )
    for ids in (each for tasks in lists for each in tasks):
        subtopology = configured.subtopologies.get(ids.subtopology_id)
        if subtopology is None:
            raise InvalidRequest(f"Subtopology {ids.subtopology_id} does not exist in the topology.")
        for index in ids.partitions:
            if not 0 <= index < subtopology.tasks:
                raise InvalidRequest(
                    f"Task {index} for subtopology {ids.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.tasks}"
                )
