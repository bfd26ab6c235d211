"""The topology of a streams group: its topics, how many partitions internal topics get, and its tasks.

A subtopology reads source topics and repartition topics, writes to repartition topics, and keeps its state in
changelog topics. It has as many tasks as its widest input has partitions. A repartition topic without a
number of partitions gets that of the widest input of the subtopology that writes to it. Topics that are
joined (a copartition group) must have the same number. Changelog topics get a partition for each task.
"""

from __future__ import annotations

from collections import ChainMap, Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.groups.streams.records import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import streams_group_heartbeat as wire

__all__ = [
    "TASKS_MAX",
    "ConfiguredSubtopology",
    "ConfiguredTopology",
    "InternalTopic",
    "StatusCode",
    "TopicProblem",
    "check_size",
    "configure",
    "required_topics",
    "topology_record",
    "topology_topics",
]

#: limits, so that a heartbeat takes a few milliseconds: names of topics, configs of internal topics, tasks
TOPICS_MAX: Final = 1000
SUBTOPOLOGIES_MAX: Final = 500
CONFIGS_MAX: Final = 5000
TASKS_MAX: Final = 5000
#: of all texts together: a log that refuses the record would fail the requests of all groups of its shard
TEXT_MAX: Final = 200_000
#: names in a message
_SHOWN: Final = 3


class StatusCode(IntEnum):
    """A state of the group that is in the heartbeat responses of its members."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(Exception):
    """The topics of the cluster do not fit the topology. That can be mended without another topology."""

    def __init__(self, status: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class InternalTopic(NamedTuple):
    """A repartition or changelog topic as it has to be."""

    name: str
    partitions: int
    #: 0 or -1 for the default of the cluster
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with the partitions that its topics have, or get."""

    tasks: int
    sources: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)

    def inputs(self) -> Iterator[str]:
        yield from self.sources
        yield from (topic.name for topic in self.repartition_sources)


class ConfiguredTopology(NamedTuple):
    """A topology compared with the topics of the cluster. It is ready if there is no problem."""

    epoch: int
    #: by id, in order; empty if source topics are missing, or topics have the wrong number of partitions
    subtopologies: Mapping[str, ConfiguredSubtopology]
    #: internal topics that have to be created
    missing: tuple[InternalTopic, ...]
    problem: TopicProblem | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


# -- requests and records


def topology_topics(topology: wire.Topology) -> Iterator[str]:
    """The names of all topics of a topology, several times if they occur so."""
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        yield from (topic.name for topic in subtopology.repartition_source_topics)
        yield from (topic.name for topic in subtopology.state_changelog_topics)


def check_size(topology: wire.Topology) -> None:
    """Refuse a topology that is so large that other requests would wait for it."""
    if len(topology.subtopologies) > SUBTOPOLOGIES_MAX:
        raise _invalid(f"A topology can't have more than {SUBTOPOLOGIES_MAX} subtopologies.")
    topics = configs = text = 0
    for each in topology.subtopologies:
        lists: tuple[Sized, ...] = (
            each.source_topics,
            each.repartition_sink_topics,
            each.repartition_source_topics,
            each.state_changelog_topics,
            each.copartition_groups,
        )
        topics += sum(map(len, lists))
        if topics > TOPICS_MAX:
            raise _invalid(f"A topology can't have more than {TOPICS_MAX} topics and copartition groups.")
        for group in each.copartition_groups:
            configs += len(group.source_topics) + len(group.repartition_source_topics)
        internal = (*each.repartition_source_topics, *each.state_changelog_topics)
        configs += sum([len(topic.topic_configs) for topic in internal])
        if configs > CONFIGS_MAX:
            raise _invalid(f"A topology can't have more than {CONFIGS_MAX} configs of internal topics.")
        text += len(each.subtopology_id)
        text += sum(map(len, (*each.source_topics, *each.repartition_sink_topics)))
        for topic in internal:
            text += len(topic.name) + sum([len(c.key) + len(c.value) for c in topic.topic_configs])
        if text > TEXT_MAX:
            raise _invalid(f"A topology can't have more than {TEXT_MAX} characters.")


def topology_record(topology: wire.Topology) -> StreamsGroupTopologyValue:
    """The record of a topology; STREAMS_INVALID_TOPOLOGY if parts of it contradict each other."""
    ids = Counter(subtopology.subtopology_id for subtopology in topology.subtopologies)
    if len(ids) < len(topology.subtopologies):
        raise _invalid(f"Subtopology {ids.most_common(1)[0][0]} is in the topology more than once.")
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=[_topic_info(topic) for topic in each.state_changelog_topics],
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=[_topic_info(topic) for topic in each.repartition_source_topics],
                copartition_groups=[_copartition(each, group) for group in each.copartition_groups],
            )
            for each in topology.subtopologies
        ],
    )


def _topic_info(topic: wire.TopicInfo) -> TopicInfo:
    if topic.partitions < 0 or topic.replication_factor < -1:
        raise _invalid(
            f"Internal topic {topic.name} has {topic.partitions} partitions and "
            f"{topic.replication_factor} replicas."
        )
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
    )


def _copartition(subtopology: wire.Subtopology, group: wire.CopartitionGroup) -> CopartitionGroup:
    lists: tuple[tuple[list[int], Sized], ...] = (
        (group.source_topics, subtopology.source_topics),
        (group.repartition_source_topics, subtopology.repartition_source_topics),
    )
    for indexes, topics in lists:
        if not all(0 <= index < len(topics) for index in indexes):
            raise _invalid(
                f"A copartition group of subtopology {subtopology.subtopology_id} refers to a topic that "
                "the subtopology does not have."
            )
    return CopartitionGroup(
        source_topics=group.source_topics,
        source_topic_regex=group.source_topic_regex,
        repartition_source_topics=group.repartition_source_topics,
    )


def required_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    """The topics whose partitions matter: sources, repartition topics and changelogs."""
    names: set[str] = set()
    for each in topology.subtopologies:
        names.update(each.source_topics)
        names.update(topic.name for topic in each.repartition_source_topics)
        names.update(topic.name for topic in each.state_changelog_topics)
    return names


# -- configuration


def configure(topology: StreamsGroupTopologyValue, existing: Mapping[str, int]) -> ConfiguredTopology:
    """Compare a topology with `existing`, the number of partitions by the name of a topic.

    Raises STREAMS_INVALID_TOPOLOGY if no topics could fit the topology.
    """
    subtopologies = sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    try:
        _check_sources(subtopologies, existing)
        decided = _repartition_counts(subtopologies, existing)
        counts = ChainMap(dict(existing), decided)
        fixed = _fixed(subtopologies)
        for each in subtopologies:
            for group in each.copartition_groups:
                decided |= _copartitioned(each, group, counts, fixed)
        decided |= _changelog_counts(subtopologies, counts)
        configured = {each.subtopology_id: _configured(each, counts, decided) for each in subtopologies}
        missing = _missing(configured.values(), existing)
    except TopicProblem as problem:
        return ConfiguredTopology(topology.epoch, {}, (), problem)
    _check_tasks(configured)
    found = None
    if missing:
        names = summary([topic.name for topic in missing])
        found = TopicProblem(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, configured, missing, found)


def _check_sources(subtopologies: Iterable[Subtopology], existing: Mapping[str, int]) -> None:
    missing = {name for each in subtopologies for name in each.source_topics if name not in existing}
    if missing:
        raise TopicProblem(
            StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {summary(sorted(missing))} are missing."
        )


def _fixed(subtopologies: Iterable[Subtopology]) -> set[str]:
    """The repartition topics for which the application sets a number of partitions."""
    return {t.name for each in subtopologies for t in each.repartition_source_topics if t.partitions}


def _repartition_counts(subtopologies: list[Subtopology], existing: Mapping[str, int]) -> dict[str, int]:
    """The partitions of all repartition topics. A subtopology is resolved once one of its inputs is known."""
    counts = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[Subtopology]] = {}
    for each in subtopologies:
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(each)
    waiting = {each.subtopology_id: each for each in subtopologies if each.repartition_sink_topics}
    due = deque(waiting.values())
    while due:
        each = due.popleft()
        inputs = [counts[t.name] for t in each.repartition_source_topics if t.name in counts]
        inputs += [existing[name] for name in each.source_topics]
        if not inputs or waiting.pop(each.subtopology_id, None) is None:
            continue
        for name in each.repartition_sink_topics:
            if name not in counts:
                counts[name] = max(inputs)
                due.extend(readers.get(name, ()))
    if any(name not in counts for each in waiting.values() for name in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the "
            "topology that cannot be resolved."
        )
    if any(topic.name not in counts for each in subtopologies for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    return counts


def _copartitioned(
    subtopology: Subtopology, group: CopartitionGroup, counts: Mapping[str, int], fixed: Collection[str]
) -> dict[str, int]:
    """The partitions of the repartition topics of a copartition group.

    They get the number of the source topics, else that of the repartition topics with a fixed number, else
    the highest number of the group. Source topics, and topics with a fixed number, must have the same one.
    """
    sources = {subtopology.source_topics[index] for index in group.source_topics}
    repartition = {subtopology.repartition_source_topics[i].name for i in group.repartition_source_topics}
    sources -= repartition
    known = {name: counts[name] for name in sources | repartition}
    leading = sources or repartition.intersection(fixed)
    if len({known[name] for name in leading}) > 1:
        shown = ", ".join(f"{name}={known[name]}" for name in sorted(sources or repartition))
        raise TopicProblem(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    number = max((known[name] for name in leading or repartition), default=0)
    for name in sorted(repartition.intersection(fixed)):
        if known[name] != number:
            raise TopicProblem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{known[name]}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{number}] of the source topic.",
            )
    return dict.fromkeys(repartition, number)


def _inputs(subtopology: Subtopology) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def _changelog_counts(subtopologies: Iterable[Subtopology], counts: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in subtopologies:
        inputs = [counts[name] for name in _inputs(each)]
        if not inputs:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        found |= {topic.name: max(inputs) for topic in each.state_changelog_topics}
    return found


def _configured(
    subtopology: Subtopology, counts: Mapping[str, int], decided: Mapping[str, int]
) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        tasks=max(counts[name] for name in _inputs(subtopology)),
        sources=tuple(sorted(set(subtopology.source_topics))),
        repartition_sinks=tuple(sorted(set(subtopology.repartition_sink_topics))),
        repartition_sources=_internal(subtopology.repartition_source_topics, decided),
        changelogs=_internal(subtopology.state_changelog_topics, decided),
    )


def _internal(topics: Iterable[TopicInfo], decided: Mapping[str, int]) -> tuple[InternalTopic, ...]:
    found = {
        topic.name: InternalTopic(
            topic.name,
            topic.partitions or decided[topic.name],
            topic.replication_factor,
            {each.key: each.value for each in topic.topic_configs},
        )
        for topic in topics
    }
    return tuple(found[name] for name in sorted(found))


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], existing: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    internal = {
        topic.name: topic for each in subtopologies for topic in (*each.repartition_sources, *each.changelogs)
    }
    for name in sorted(internal):
        expected, found = internal[name].partitions, existing.get(name, internal[name].partitions)
        if expected != found:
            raise TopicProblem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected}, "
                f"found {found}",
            )
    return tuple(internal[name] for name in sorted(internal) if name not in existing)


def _check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    tasks = sum(each.tasks for each in subtopologies.values())
    if tasks > TASKS_MAX:
        raise _invalid(f"A topology can't have more than {TASKS_MAX} tasks; this one has {tasks}.")


def summary(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} additional topics" if len(names) > _SHOWN else "")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
