"""DescribeTopicPartitions: pages of topics with their partitions, sorted by name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.base.steps import sorted_in_steps
from penstock.broker.handlers.reachable import TOPIC_OPERATIONS, described_partitions
from penstock.broker.handlers.topic_answers import bad_cursor, undescribed, why_unknown
from penstock.broker.node.peers import Peers
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.model.config import BrokerConfig
from penstock.model.ids import INTERNAL_TOPICS
from penstock.net.deferred import Deferred
from penstock.wire.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

__all__ = ["TopicPartitionsHandlers"]

#: topics between two yields
_STEP: Final = 64


class TopicPartitionsHandlers:
    """DescribeTopicPartitions."""

    def __init__(self, image: ClusterImage, peers: Peers, config: BrokerConfig) -> None:
        self._image = image
        self._peers = peers
        self._config = config

    def describe_topic_partitions(
        self, context: Context, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse | Deferred[DescribeTopicPartitionsResponse]:
        return context.in_turns(self._described_topics(context, request))

    def _described_topics(
        self, context: Context, request: DescribeTopicPartitionsRequest
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        """Topics sorted by name, from the cursor on, with as many partitions as the limit allows."""
        image = self._image
        wanted = (t.name for t in request.topics) if request.topics else list(image.topics)
        names = yield from sorted_in_steps(wanted)
        first = at = 0
        if request.cursor is not None:
            start, first = request.cursor.topic_name, request.cursor.partition_index
            at = bisect_left(names, start)
            is_listed = at < len(names) and names[at] == start
            if first < 0 or (request.topics and not is_listed):
                return (yield from bad_cursor(request))
            if not is_listed:
                first = 0
        most = self._config.max_request_partition_size_limit
        left = max(1, min(request.response_partition_limit, most))
        response = DescribeTopicPartitionsResponse()
        for number in range(at, len(names)):
            name = names[number]
            if not number % _STEP:
                yield
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topics.get(name)
            if topic is None:
                response.topics.append(undescribed(name, why_unknown(name), TOPIC_OPERATIONS))
                continue
            shown = list(topic.partitions.items())[first : first + left]
            response.topics.append((yield from self._described(context, topic, shown)))
            left -= len(shown)
            if first + len(shown) < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=first + len(shown))
                break
            first = 0
        return response

    def _described(
        self, context: Context, topic: TopicImage, shown: Sequence[tuple[int, PartitionImage]]
    ) -> Generator[None, None, DescribeTopicPartitionsResponseTopic]:
        partitions = yield from described_partitions(
            DescribeTopicPartitionsResponsePartition,
            self._image,
            context.listener.name,
            self._peers.missing(),
            shown,
        )
        for partition, (_, known) in zip(partitions, shown, strict=True):
            partition.eligible_leader_replicas = known.elr
            partition.last_known_elr = known.last_known_leader
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
