"""Topologies and heartbeats for tests of streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.wire.apis.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

__all__ = ["heartbeat", "joining", "subtopology", "task_ids", "tasks_of", "topic", "topology", "word_count"]


def topic(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    return TopicInfo(
        name=name,
        partitions=partitions,
        topic_configs=[KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def subtopology(
    id: str,
    sources: Iterable[str] = (),
    *,
    repartition: Iterable[TopicInfo] = (),
    sinks: Iterable[str] = (),
    changelogs: Iterable[TopicInfo] = (),
    copartition: Iterable[tuple[list[int], list[int]]] = (),
) -> Subtopology:
    """`copartition` has groups of topics with the same number of partitions: sources, repartition topics."""
    return Subtopology(
        subtopology_id=id,
        source_topics=list(sources),
        repartition_source_topics=list(repartition),
        repartition_sink_topics=list(sinks),
        state_changelog_topics=list(changelogs),
        copartition_groups=[
            CopartitionGroup(source_topics=first, repartition_source_topics=second)
            for first, second in copartition
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


def word_count(epoch: int = 0) -> Topology:
    """Lines are split and repartitioned by word; the counts have a changelog."""
    return topology(
        subtopology("0", ["lines"], sinks=["counts-repartition"]),
        subtopology(
            "1",
            repartition=[topic("counts-repartition", cleanup_policy="delete")],
            changelogs=[topic("counts-changelog", cleanup_policy="compact")],
        ),
        epoch=epoch,
    )


def joining(
    member: str, topology: Topology, process: str | None = None, **changes: object
) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        rebalance_timeout_ms=10_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=process or f"process-{member}",
        client_tags=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def heartbeat(
    member: str,
    epoch: int,
    active: Mapping[str, Iterable[int]] | None = None,
    standby: Mapping[str, Iterable[int]] | None = None,
) -> StreamsGroupHeartbeatRequest:
    """A heartbeat of a member; with `active`, it reports its tasks."""
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch)
    if active is not None:
        request.active_tasks = task_ids(active)
        request.standby_tasks = task_ids(standby or {})
        request.warmup_tasks = []
    return request


def task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(indexes)) for name, indexes in tasks.items()]


def tasks_of(ids: Iterable[TaskIds] | None) -> dict[str, set[int]] | None:
    return None if ids is None else {each.subtopology_id: set(each.partitions) for each in ids}
