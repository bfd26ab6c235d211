"""Creates topics on behalf of this broker: declared topics, and topics that clients' requests name.

Any broker may need a topic. The active controller creates it.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.node.new_topics import TopicCreation
from penstock.broker.request.forwarding import Forwarding
from penstock.metadata.topics import NewTopic
from penstock.model.errors import TopicAlreadyExists, UnknownTopicOrPartition
from penstock.model.ids import INTERNAL_TOPICS

__all__ = ["AutoCreation", "TopicCreator"]

log = get_logger("broker")


class TopicCreator:
    """Creates a topic on the active controller, on this node or another one."""

    def __init__(self, forwarding: Forwarding, creation: TopicCreation) -> None:
        self._forwarding = forwarding
        self._creation = creation

    async def create(self, topic: NewTopic) -> None:
        """Return when the topic exists; ApiError if the controller rejects it."""
        await self._forwarding.create_topic(topic, lambda: self._creation.decide(topic))


class AutoCreation:
    """Creates topics that a client's Metadata request names (`auto.create.topics.enable`)."""

    def __init__(self, creator: TopicCreator, internal: Iterable[InternalTopic]) -> None:
        self._creator = creator
        self._internal = {topic.name: topic for topic in internal}

    async def create(self, name: str) -> None:
        """Create a topic unless another request has created it meanwhile.

        The coordinator of an internal topic creates it, with the required partitions and configs.
        """
        if name in self._internal:
            await self._internal[name].ensure()
            return
        if name in INTERNAL_TOPICS:
            raise UnknownTopicOrPartition(
                f"The topic '{name}' is internal, and this broker has no coordinator that creates it"
            )
        try:
            await self._creator.create(NewTopic(name))
        except TopicAlreadyExists:
            log.debug("topic_exists", topic=name)
