"""The transaction coordinator of a broker: `__transaction_state`, its shards, and their markers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.internal_topic import InternalTopic, StateTopic, new_state_topic
from penstock.broker.coordinators.marker_sender import MarkerSender, MarkerTransport, Term
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partitions import Partitions
from penstock.coordination.outbox import Effect
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.ids import TRANSACTIONS_TOPIC
from penstock.ports import Clock
from penstock.transactions.ledger import SendMarkers
from penstock.transactions.metadata import TopicPartition
from penstock.transactions.settings import Environment, TransactionSettings
from penstock.transactions.shard import TransactionShard

__all__ = ["TransactionCoordinator"]

_FEATURE = "transaction.version"


class TransactionCoordinator:
    """Composes the runtime of transaction shards. Handlers submit their requests to `runtime`."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        partitions: Partitions,
        clock: Clock,
        loader: Loader,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        is_clock_trusted: Callable[[], bool],
        take_producer_id: Callable[[], int | None],
        send_markers: MarkerTransport,
    ) -> None:
        """`create_topic` raises the ApiError with which the controller refuses to create a topic."""
        self._config = config
        self._image = image
        self._env = Environment(
            TransactionSettings.of(config),
            self._level,
            take_producer_id,
            is_clock_trusted,
            self._record_bytes_max,
        )
        settings = HostSettings(
            lambda: TransactionShard(self._env),
            clock,
            loader,
            config.request_timeout_ms / 1000,
            self._run_effect,
        )
        topic = InternalTopic(TRANSACTIONS_TOPIC, image, self._new_topic, create_topic)
        self.runtime = CoordinatorRuntime(topic, partitions, config.node_id, settings)
        #: transactions that shards here have decided; one that a new shard takes over counts again
        self.committed = 0
        self.aborted = 0
        self.markers = MarkerSender(image, send_markers, self._term, self._markers_written)

    def start(self) -> None:
        """Read the cluster's configs. A shard is loaded when this broker becomes leader of its partition."""
        self._env.settings = TransactionSettings.of(self._config)

    def stop(self) -> None:
        self.markers.stop()
        self.runtime.resign_all()

    def topics_removed(self) -> None:
        self.runtime.resign_deleted()

    def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id, -1 if there is none."""
        index = self.runtime.topic.partition_for(transactional_id)
        return -1 if index < 0 else self.runtime.topic.leader_of(index)

    def _level(self) -> int:
        return self._image.features.get(_FEATURE, 0)

    def _record_bytes_max(self) -> int:
        """All partitions of the topic have the same limit, and only a shard that is hosted here asks."""
        partition = self.runtime.partition(next(self.runtime.indexes()))
        assert partition is not None
        return partition.log.config.max_message_bytes

    def _run_effect(self, index: int, effect: Effect) -> None:
        assert isinstance(effect, SendMarkers)
        self.committed += effect.committed
        self.aborted += not effect.committed
        self.markers.start(index, effect)

    def _term(self, index: int) -> Term | None:
        """The coordinator epoch is the leader epoch of the partition."""
        partition, shard = self.runtime.partition(index), self.runtime.shard(index)
        if partition is None or shard is None or not partition.leading:
            return None
        return Term(shard, partition.leader_epoch)

    def _markers_written(self, index: int, sent: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        def event(shard: TransactionShard) -> None:
            shard.markers_written(sent.transactional_id, sent.producer_id, sent.producer_epoch, partitions)

        self.runtime.notify(index, event)

    def _new_topic(self) -> NewTopic:
        return new_state_topic(
            TRANSACTIONS_TOPIC,
            StateTopic(
                self._config.transaction_state_log_num_partitions,
                self._config.transaction_state_log_replication_factor,
                self._config.transaction_state_log_min_isr,
                self._config.transaction_state_log_segment_bytes,
            ),
            self._config.internal_endpoint is None,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
            },
        )
