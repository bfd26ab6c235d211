"""The partitions that members with an endpoint read, for interactive queries of an application."""

from __future__ import annotations

from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.member import StreamsMember
from penstock.groups.streams.tasks import Tasks
from penstock.groups.streams.topology import ConfiguredTopology
from penstock.metadata.image import ClusterImage
from penstock.wire.apis.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition

__all__ = ["partitions_by_endpoint"]


def partitions_by_endpoint(group: StreamsGroup, image: ClusterImage) -> list[EndpointToPartitions]:
    """One entry for each member with an endpoint. They are kept until the member or the topology changes."""
    if group.configured is None:
        return []
    found = []
    for member in group.members.values():
        if member.endpoint is None:
            continue
        entry = group.endpoints.get(member.id)
        if entry is None:
            entry = group.endpoints[member.id] = _entry(member, member.endpoint, group.configured, image)
        found.append(entry)
    return found


def _entry(
    member: StreamsMember, endpoint: tuple[str, int], topology: ConfiguredTopology, image: ClusterImage
) -> EndpointToPartitions:
    active = {subtopology: set(epochs) for subtopology, epochs in member.assigned.active.items()}
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]),
        active_partitions=_partitions(active, topology, image),
        standby_partitions=_partitions(member.assigned.standby, topology, image),
    )


def _partitions(tasks: Tasks, topology: ConfiguredTopology, image: ClusterImage) -> list[TopicPartition]:
    """The partitions of the inputs of tasks. A narrow input of a subtopology has none for some tasks."""
    found = []
    for name, indexes in sorted(tasks.items()):
        subtopology = topology.subtopologies.get(name)
        for topic in () if subtopology is None else subtopology.inputs():
            known = image.topics.get(topic)
            count = 0 if known is None else len(known.partitions)
            found.append(TopicPartition(topic=topic, partitions=sorted(i for i in indexes if i < count)))
    return found
