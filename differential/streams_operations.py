"""Random operations of streams groups: members that join, keep their tasks, and leave.

A group has two members where its tasks can be divided between them in one way only, else one: which of
several equal members gets a task is not defined, and decides on the epochs of all. A group keeps its first
valid topology, as the brokers do. No member has an endpoint: Kafka 4.3.1 answers it with UNKNOWN_SERVER_ERROR
while topics of the topology are missing or have the wrong number of partitions.
"""

from __future__ import annotations

from differential.model import MISSING, Group, Model
from differential.operations import Operation, epoch_label
from penstock.wire.apis.streams_group_describe import STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest
from penstock.wire.apis.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)

__all__ = ["describe_streams", "streams_member"]


def streams_member(model: Model) -> Operation:
    """A heartbeat of a member, which joins and leaves with it, too."""
    group = model.pick(*model.streams_groups)
    if not group.members or (len(group.members) < _most_members(model, group) and model.chance(0.2)):
        return _join(model, group, model.new_member())
    member = model.pick(*sorted(group.members))
    if model.chance(0.1):
        return _join(model, group, member)
    if model.chance(0.15):
        return _leave(group, member)
    epoch = epoch_label(member)
    if model.chance(0.05):
        epoch = model.pick(0, 1, 100, -2, -3)
    is_stranger = model.chance(0.05)
    request = StreamsGroupHeartbeatRequest(
        group_id=group.name,
        member_id="~stranger" if is_stranger else member,
        member_epoch=-1 if is_stranger and model.chance(0.2) else epoch,
        endpoint_information_epoch=model.pick(0, 0, 1, 2),
        shutdown_application=model.chance(0.02),
    )
    if model.chance(0.07):
        _spoil(model, request)
    return Operation(
        "streams",
        STREAMS_GROUP_HEARTBEAT,
        0,
        request,
        member=member,
        acknowledges=epoch == epoch_label(member) and request.active_tasks is None and model.chance(0.8),
    )


def _leave(group: Group, member: str) -> Operation:
    """Leaves in any case: a member that stays, while the model has forgotten it, would get tasks."""
    del group.members[member]
    request = StreamsGroupHeartbeatRequest(group_id=group.name, member_id=member, member_epoch=-1)
    return Operation("streams", STREAMS_GROUP_HEARTBEAT, 0, request, member=member)


def _most_members(model: Model, group: Group) -> int:
    """How many members a group may have: two, if its tasks can be halved while topics stay the same.

    Each has half of the tasks then, and the one that was there keeps its first ones. Of three members, any
    may get the tasks of one that leaves, and they would give up different ones for a fourth.
    """
    source = model.topics.get(group.source)
    if model.topics_change or source is None:
        return 1
    tasks = source.partitions * (1 if _is_stateless(group) else 2)
    return 2 if tasks % 2 == 0 else 1


def _join(model: Model, group: Group, member: str) -> Operation:
    group.members[member] = None
    request = StreamsGroupHeartbeatRequest(
        group_id=group.name,
        member_id=member,
        rebalance_timeout_ms=30_000,
        topology=_topology_of(model, group),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"process-of-{member}",
        client_tags=[KeyValue(key="zone", value="z")] if model.chance(0.2) else [],
        rack_id=model.pick(None, None, "r1"),
    )
    if model.chance(0.1):
        _spoil(model, request)
    return Operation("streams", STREAMS_GROUP_HEARTBEAT, 0, request, member=member)


def _spoil(model: Model, request: StreamsGroupHeartbeatRequest) -> None:
    """Change a field to a value that one of the checks refuses, or does not."""
    change = model.pick(
        ("instance_id", "i"),
        ("rack_id", ""),
        ("rebalance_timeout_ms", -1),
        ("active_tasks", None),
        ("standby_tasks", []),
        (
            "active_tasks",
            [TaskIds(subtopology_id=model.pick("0", "9"), partitions=[model.pick(0, 1, 99, -1)])],
        ),
        ("warmup_tasks", [TaskIds(subtopology_id="0", partitions=[0])]),
        ("task_offsets", [TaskOffset(subtopology_id="0")]),
        ("task_end_offsets", []),
        ("topology", None),
        ("topology", Topology(epoch=model.pick(0, 1))),
        ("group_id", ""),
        ("member_id", " "),
    )
    setattr(request, *change)
    if change[0] == "active_tasks" and change[1]:
        request.standby_tasks = request.warmup_tasks = []


def _topology_of(model: Model, group: Group) -> Topology:
    """That of the group, most of the time."""
    number = model.streams_groups.index(group)
    if model.chance(0.9):
        names = sorted(model.topics) or [MISSING]
        group.source = group.source or names[number % len(names)]
        return _counting(group.source, group)
    topic = model.topic().name
    return model.pick(
        Topology(
            epoch=model.pick(0, 1), subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]
        ),
        Topology(subtopologies=[Subtopology(subtopology_id="0")]),
        Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    source_topics=[each.name for each in model.some_topics()],
                    copartition_groups=[CopartitionGroup(source_topics=[0])],
                )
            ]
        ),
        Topology(
            subtopologies=[
                Subtopology(subtopology_id="0", source_topics=[model.pick("__consumer_offsets", "a b", "")])
            ]
        ),
        Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    repartition_source_topics=[TopicInfo(name="~loop-a")],
                    repartition_sink_topics=["~loop-b"],
                ),
                Subtopology(
                    subtopology_id="1",
                    repartition_source_topics=[TopicInfo(name="~loop-b")],
                    repartition_sink_topics=["~loop-a"],
                ),
            ]
        ),
        Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    source_topics=[topic],
                    state_changelog_topics=[TopicInfo(name="~log", partitions=2)],
                )
            ]
        ),
        Topology(
            subtopologies=[
                Subtopology(subtopology_id="0", source_topics=[topic], source_topic_regex=["a.*"]),
            ]
        ),
    )


def _is_stateless(group: Group) -> bool:
    return group.name.endswith("0")


def _counting(source: str, group: Group) -> Topology:
    """A word count, or for one group a topology without state."""
    if _is_stateless(group):
        return Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[source])])
    repartition, changelog = f"{group.name}-repartition", f"{group.name}-changelog"
    return Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[
                    TopicInfo(
                        name=repartition, topic_configs=[KeyValue(key="cleanup.policy", value="delete")]
                    )
                ],
                state_changelog_topics=[
                    TopicInfo(name=changelog, topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
                ],
            ),
        ]
    )


def describe_streams(model: Model) -> Operation:
    group = model.pick(*model.streams_groups, model.group())
    request = StreamsGroupDescribeRequest(
        group_ids=list(model.pick((group.name,), (group.name, "~none"), (group.name, ""))),
        include_authorized_operations=model.chance(0.3),
    )
    return Operation("streams", STREAMS_GROUP_DESCRIBE, 0, request, is_read=True)
