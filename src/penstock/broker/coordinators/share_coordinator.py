"""The share coordinator of a broker: `__share_group_state` and its shards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.internal_topic import InternalTopic, StateTopic, new_state_topic
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partitions import Partitions
from penstock.coordination.outbox import Effect
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.ids import SHARE_STATE_TOPIC
from penstock.ports import Clock
from penstock.shares.settings import Environment, ShareCoordinatorSettings
from penstock.shares.shard import PruneLog, ShareShard

__all__ = ["ShareCoordinator"]


class ShareCoordinator:
    """Composes the runtime of share shards."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        partitions: Partitions,
        clock: Clock,
        loader: Loader,
        create_topic: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        """`create_topic` raises the ApiError with which the controller refuses to create a topic."""
        self._config = config
        self._env = Environment(ShareCoordinatorSettings.of(config), image)
        settings = HostSettings(
            lambda: ShareShard(self._env),
            clock,
            loader,
            config.share_coordinator_write_timeout_ms / 1000,
            self._run_effect,
        )
        topic = InternalTopic(SHARE_STATE_TOPIC, image, self._new_topic, create_topic)
        self.runtime = CoordinatorRuntime(topic, partitions, config.node_id, settings)

    def stop(self) -> None:
        self.runtime.resign_all()

    def topics_removed(self, topic_ids: Collection[bytes]) -> None:
        """Delete the state of share partitions of deleted topics."""
        self.runtime.resign_deleted()
        self.runtime.notify_all(lambda shard: shard.topics_deleted(topic_ids))

    def _run_effect(self, index: int, effect: Effect) -> None:
        assert isinstance(effect, PruneLog)
        partition = self.runtime.partition(index)
        if partition is None or not partition.leading:
            return
        partition.advance_log_start(min(effect.offset, partition.log.high_watermark))

    def _new_topic(self) -> NewTopic:
        return new_state_topic(
            SHARE_STATE_TOPIC,
            StateTopic(
                self._config.share_coordinator_state_topic_num_partitions,
                self._config.share_coordinator_state_topic_replication_factor,
                self._config.share_coordinator_state_topic_min_isr,
                self._config.share_coordinator_state_topic_segment_bytes,
            ),
            self._config.internal_endpoint is None,
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "compression.type": "producer",
            },
        )
