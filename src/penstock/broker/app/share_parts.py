"""The parts of a broker that serve share groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from penstock.broker.base.metrics import Metrics
from penstock.broker.coordinators.end_offsets import EndOffsets
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.coordinators.share_coordinator import ShareCoordinator
from penstock.broker.coordinators.share_persister import SharePersister
from penstock.broker.coordinators.share_state_service import ShareStateService
from penstock.broker.healing.repair import Outcome
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.shares.consumed_records import ConsumedRecords
from penstock.broker.shares.dead_letters import DeadLetters
from penstock.broker.shares.delay_topics import DelayTopics
from penstock.broker.shares.group_settings import SharesConfig
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.net.client import Peer
from penstock.ports import Clock, World
from penstock.wire.schema import Struct

__all__ = ["ShareParts"]

_FEATURE: Final = "share.version"


class ShareParts:
    """Share coordinator, persister and share partitions of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: SharesConfig,
        world: World,
        awake_clock: Clock,
        image: ClusterImage,
        partitions: Partitions,
        metrics: Metrics,
        repair: Callable[[Partition], Awaitable[Outcome | None]],
        create_topic: Callable[[NewTopic], Awaitable[None]],
        peer: Callable[[int, str], Peer],
        writer: TopicWriter,
        new_producer_id: Callable[[], int | None],
        is_restricted: bool,
    ) -> None:
        """`settings` are those of groups and topics, `awake_clock` is that of acquisition locks.

        With `is_restricted` clients have different rights. Longer than other functions because it composes.
        """
        read_bytes = config.share_coordinator_load_buffer_size
        loader = Loader(world.workers, metrics, repair, read_bytes)
        self._image = image
        self.coordinator = ShareCoordinator(config, image, partitions, world.clock, loader, create_topic)
        self.service = ShareStateService(self.coordinator.runtime)
        topic = self.coordinator.runtime.topic
        self.persister = SharePersister(config.node_id, topic, self.service, peer)
        self.config = settings
        self.dead_letters = DeadLetters(
            self.config, image, world.clock, world.workers, writer, create_topic, self.persister.spawn
        )
        self.partitions = SharePartitions(
            self.config, awake_clock, world.workers, self.persister, self.dead_letters
        )
        interval_s = config.penstock_delete_after_consumption_interval_ms / 1000
        delay_ms = config.penstock_delete_finished_delay_ms
        self.consumed = ConsumedRecords(
            self.config, image, partitions, self.persister, world.clock, interval_s, delay_ms
        )
        self.delays = DelayTopics(
            image,
            partitions,
            world.clock,
            world.workers,
            writer,
            new_producer_id,
            lambda: config.message_max_bytes,
            is_restricted,
            delay_ms,
        )
        self.end_offsets = EndOffsets(config.node_id, image, partitions, peer)

    def start(self) -> None:
        self.persister.spawn(self.consumed.run())
        self.persister.spawn(self.delays.run())

    def is_enabled(self) -> bool:
        """Returns true if the cluster has enabled share groups."""
        return self._image.features.get(_FEATURE, 0) >= 1

    def metadata_changed(self, records: Sequence[Struct], removed: Sequence[tuple[str, bytes]]) -> None:
        """Apply changed configs and deleted topics; `removed` has the (name, id) of the latter."""
        self.partitions.metadata_changed(records, removed)
        self.delays.metadata_changed(records)
        if removed:
            topic_ids: Collection[bytes] = {topic_id for _, topic_id in removed}
            self.coordinator.topics_removed(topic_ids)

    def stop(self) -> None:
        self.partitions.stop()
        self.persister.stop()
        self.coordinator.stop()
