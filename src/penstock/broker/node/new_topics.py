"""The controller's part of making topics: one change of the metadata for all topics of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.metadata.topics import Defaults, NewTopic, NewTopics, create_topic
from penstock.model.config import resolve_topic_configs
from penstock.model.errors import ApiError
from penstock.model.ids import RESERVED_TOPIC_IDS, TopicId
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["decide_topic", "decide_topics"]


async def decide_topic(broker: Broker, topic: NewTopic) -> Sequence[Struct]:
    """The records that made the topic; ApiError if there is a reason against it."""
    (made,) = await decide_topics(broker, [topic])
    if isinstance(made, ApiError):
        raise made
    return made


async def decide_topics(
    broker: Broker, topics: Sequence[NewTopic], validate_only: bool = False
) -> list[Sequence[Struct] | ApiError]:
    """For each topic the records that made it, or would make it, or why there are none."""

    def decide() -> tuple[Sequence[Struct], list[Sequence[Struct] | ApiError]]:
        config = broker.config
        defaults = Defaults(config.num_partitions, config.default_replication_factor)
        together, now_ms = NewTopics(broker.image), broker.clock.now_ms()
        records: list[Struct] = []
        results: list[Sequence[Struct] | ApiError] = []
        for topic in topics:
            try:
                made = create_topic(
                    broker.image,
                    topic,
                    defaults,
                    lambda: _new_topic_id(broker),
                    together,
                    now_ms,
                    lambda configs: resolve_topic_configs(configs, config),
                )
            except ApiError as e:
                results.append(e)
                continue
            together.add(topic.name)
            records += made
            results.append(made)
        return ([] if validate_only else records), results

    if not topics:
        return []
    try:
        return await broker.controller.change(decide)
    except ApiError as e:
        return [e] * len(topics)


def _new_topic_id(broker: Broker) -> TopicId:
    topic_id = TopicId(broker.rng.token(16))
    while topic_id in RESERVED_TOPIC_IDS or topic_id in broker.image.topics_by_id:
        topic_id = TopicId(broker.rng.token(16))
    return topic_id
