"""Creates topics on the active controller: one change of the metadata for all topics of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.broker.node.controller import Controller
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import check_topic
from penstock.metadata.topics import Defaults, NewTopic, NewTopics, create_topic
from penstock.model.config import BrokerConfig, check_topic_configs
from penstock.model.errors import ApiError
from penstock.model.ids import RESERVED_TOPIC_IDS, TopicId
from penstock.model.steps import Steps
from penstock.ports import Clock, Rng
from penstock.wire.metadata_records import PartitionRecord
from penstock.wire.schema import Struct

__all__ = ["TopicCreation"]


class TopicCreation:
    """Creates topics as the active controller; raises `NotController` on any other node."""

    def __init__(
        self, config: BrokerConfig, image: ClusterImage, controller: Controller, clock: Clock, rng: Rng
    ) -> None:
        self._config = config
        self._image = image
        self._controller = controller
        self._clock = clock
        self._rng = rng

    async def decide(self, topic: NewTopic) -> Sequence[Struct]:
        """The records that created the topic; ApiError if it is rejected."""
        (made,) = await self.decide_all([topic])
        if isinstance(made, ApiError):
            raise made
        return made

    async def decide_all(
        self,
        topics: Sequence[NewTopic],
        validate_only: bool = False,
        charge: Callable[[int], None] = lambda partitions: None,
    ) -> list[Sequence[Struct] | ApiError]:
        """For each topic the records that created it (or would, if `validate_only`), or the error.

        `charge` is called with the number of partitions of each topic and may raise an ApiError.
        """
        if not topics:
            return []
        try:
            return await self._controller.change(lambda: self._decide(topics, validate_only, charge))
        except ApiError as e:
            return [e] * len(topics)

    def _decide(
        self, topics: Sequence[NewTopic], validate_only: bool, charge: Callable[[int], None]
    ) -> Steps[tuple[Sequence[Struct], list[Sequence[Struct] | ApiError]]]:
        config, image = self._config, self._image
        defaults = Defaults(config.num_partitions, config.default_replication_factor)
        excluded = frozenset(map(int, config.penstock_balance_exclude_brokers))
        together, now_ms = NewTopics(image, excluded), self._clock.now_ms()
        records: list[Struct] = []
        results: list[Sequence[Struct] | ApiError] = []
        for topic in topics:
            try:
                made = yield from create_topic(
                    image,
                    topic,
                    defaults,
                    self._new_topic_id,
                    together,
                    now_ms,
                    self._check_configs,
                )
                charge(sum(isinstance(record, PartitionRecord) for record in made))
            except ApiError as e:
                results.append(e)
                continue
            together.add(topic.name)
            records += made
            results.append(made)
        return ([] if validate_only else records), results

    def _new_topic_id(self) -> TopicId:
        topic_id = TopicId(self._rng.token(16))
        while topic_id in RESERVED_TOPIC_IDS or topic_id in self._image.topics_by_id:
            topic_id = TopicId(self._rng.token(16))
        return topic_id

    def _check_configs(self, configs: Mapping[str, str]) -> None:
        check_topic_configs(configs, self._config)
        check_topic(self._image.features, configs)
