"""StreamsGroupDescribe: a streams group with its topology and members."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.member import StreamsMember
from penstock.groups.streams.records import StreamsGroupTopologyValue, TopicInfo
from penstock.groups.streams.requests import StreamsRequests
from penstock.groups.streams.tasks import NO_TASKS, Tasks, TasksByRole
from penstock.groups.streams.topology import ConfiguredTopology, InternalTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import streams_group_describe as described
from penstock.wire.apis.streams_group_heartbeat import Endpoint, KeyValue, TaskIds
from penstock.wire.apis.streams_group_heartbeat import TopicInfo as DescribedTopic

__all__ = ["StreamsAdministration"]


class StreamsAdministration:
    """The requests of administrators about one shard's streams groups."""

    __slots__ = ("_requests",)

    def __init__(self, requests: StreamsRequests) -> None:
        self._requests = requests

    def describe(self, group_id: str) -> described.DescribedGroup:
        """A streams group; GROUP_ID_NOT_FOUND for any other."""
        if not group_id:
            return described.DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            group = self._requests.find(group_id, "Group")
        except ApiError as e:
            return described.DescribedGroup(group_id=group_id, error_code=e.code, error_message=e.message)
        return described.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=_topology(group),
            members=[
                _member(member, group.target.get(member.id, NO_TASKS)) for member in group.members.values()
            ],
        )


def _topology(group: StreamsGroup) -> described.Topology | None:
    """With the partitions of internal topics as they are, once all topics exist; else as it was sent."""
    if group.configured is not None and group.configured.is_ready:
        return _configured(group.configured)
    return None if group.topology is None else _stored(group.topology)


def _configured(topology: ConfiguredTopology) -> described.Topology:
    return described.Topology(
        epoch=topology.epoch,
        subtopologies=[
            described.Subtopology(
                subtopology_id=name,
                source_topics=list(each.sources),
                repartition_sink_topics=list(each.repartition_sinks),
                state_changelog_topics=[_internal(topic) for topic in each.changelogs],
                repartition_source_topics=[_internal(topic) for topic in each.repartition_sources],
            )
            for name, each in topology.subtopologies.items()
        ],
    )


def _internal(topic: InternalTopic) -> DescribedTopic:
    return DescribedTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs.items()],
    )


def _stored(topology: StreamsGroupTopologyValue) -> described.Topology:
    return described.Topology(
        epoch=topology.epoch,
        subtopologies=[
            described.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_infos(each.state_changelog_topics),
                repartition_source_topics=_infos(each.repartition_source_topics),
            )
            for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        ],
    )


def _infos(topics: Iterable[TopicInfo]) -> list[DescribedTopic]:
    return [
        DescribedTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: TasksByRole) -> described.Member:
    assigned, endpoint = member.assigned, member.endpoint
    active = {subtopology: set(epochs) for subtopology, epochs in assigned.active.items()}
    return described.Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_assignment(TasksByRole(active, assigned.standby, assigned.warmup)),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: TasksByRole) -> described.Assignment:
    return described.Assignment(
        active_tasks=_ids(tasks.active), standby_tasks=_ids(tasks.standby), warmup_tasks=_ids(tasks.warmup)
    )


def _ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=name, partitions=sorted(indexes)) for name, indexes in sorted(tasks.items())
    ]
