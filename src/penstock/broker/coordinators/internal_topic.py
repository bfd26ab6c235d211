"""An internal topic of a coordinator: the partition of a key, its leader, and creation on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from penstock.coordination.partitioning import partition_of
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.metadata.topics import NewTopic
from penstock.model.errors import TopicAlreadyExists

__all__ = ["InternalTopic", "StateTopic", "new_state_topic"]


class StateTopic(NamedTuple):
    """The configs of the topic of a coordinator's state."""

    partitions: int
    replicas: int
    min_isr: int
    segment_bytes: int


def new_state_topic(
    name: str, wanted: StateTopic, is_alone: bool, topic_configs: Mapping[str, str]
) -> NewTopic:
    """The topic of a coordinator's state. A broker without an internal listener is alone in its cluster."""
    replicas = 1 if is_alone else wanted.replicas
    return NewTopic(
        name,
        wanted.partitions,
        replicas,
        configs={
            **topic_configs,
            "min.insync.replicas": str(min(wanted.min_isr, replicas)),
            "segment.bytes": str(wanted.segment_bytes),
        },
    )


class InternalTopic:
    """The topic as the cluster image has it."""

    __slots__ = ("_create", "_image", "_specify", "name")

    def __init__(
        self,
        name: str,
        image: ClusterImage,
        specify: Callable[[], NewTopic],
        create: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        """`specify` reads the configs for a new topic. `create` raises the ApiError of the controller."""
        self.name = name
        self._image = image
        self._specify = specify
        self._create = create

    def partition_for(self, key: str) -> int:
        """The partition that holds `key`; -1 if the topic does not exist yet."""
        topic = self._image.topics.get(self.name)
        return -1 if topic is None else partition_of(key, len(topic.partitions))

    def leader_of(self, index: int) -> int:
        """The broker that leads an existing partition."""
        return self._image.topics[self.name].partitions[index].leader

    def partitions(self) -> Mapping[int, PartitionImage]:
        """All partitions; none if the topic does not exist yet."""
        topic = self._image.topics.get(self.name)
        return {} if topic is None else topic.partitions

    async def ensure(self) -> None:
        """Create the topic unless it exists."""
        try:
            await self._create(self._specify())
        except TopicAlreadyExists:
            return
