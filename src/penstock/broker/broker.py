"""The broker: composition of image, logs, server and chores, from a config and the doors to the world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.broker.controller import Controller
from penstock.broker.coordinator import GroupCoordinator
from penstock.broker.dispatch import Dispatcher
from penstock.broker.features import INITIAL_FEATURES
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.handlers import HANDLERS
from penstock.broker.logs import get_logger
from penstock.broker.maintenance import Maintenance
from penstock.broker.metrics import Metrics
from penstock.broker.partitions import Partitions
from penstock.broker.producer_ids import ProducerIds
from penstock.metadata.image import BROKER, TOPIC, ClusterImage
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.model.config import BrokerConfig, resolve_topic_configs
from penstock.model.errors import TopicAlreadyExists
from penstock.model.ids import METADATA_TOPIC, RESERVED_TOPIC_IDS, TopicId
from penstock.net.connection import Connection
from penstock.net.server import Limits, Listener, Server
from penstock.ports import Clock, Files, Rng, Workers
from penstock.storage.log import Log
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from penstock.wire.schema import Struct

__all__ = ["Broker", "World"]

log = get_logger("broker")
#: how long a fetch session keeps its slot against others
_SESSION_EVICTION_S: Final = 120.0


class World(NamedTuple):
    """The doors to the world that a broker is given."""

    clock: Clock
    rng: Rng
    files: Files
    workers: Workers


class Broker:
    """One broker: `start` returns when clients can connect, `stop` when everything is on the disk."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        self.config = config
        self.node_id = config.node_id
        self.clock = world.clock
        self.rng = world.rng
        self.workers = world.workers
        self.metrics = Metrics()
        self.image = ClusterImage()
        self.apis = tuple(HANDLERS)
        self.files = world.files
        self.partitions = Partitions(config, world.files, world.clock, world.workers, world.rng)
        self.groups = GroupCoordinator(self)
        self.dispatcher = Dispatcher(self, HANDLERS)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            _SESSION_EVICTION_S,
            world.clock.monotonic,
            lambda: int.from_bytes(world.rng.token(4), "big") & 0x7FFFFFFF,
        )
        self.server = Server(self.dispatcher, _limits(config), log.warning)
        self.listeners = [
            Listener(e.name, e.host, e.port, e.advertised_host, e.advertised_port, e.protocol)
            for e in config.endpoints
        ]
        self.controller: Controller
        self.producer_ids: ProducerIds
        self.maintenance: Maintenance
        self.cluster_id = ""

    async def start(self) -> None:
        began = self.clock.monotonic()
        try:
            self._log_start(await self._start(), began)
        except BaseException:
            # Nothing stays behind: whoever tries again, even in this process, finds everything free.
            await self.server.stop()
            self.groups.stop()
            self.partitions.abandon()
            self.workers.close()
            raise

    async def _start(self) -> Log:
        """Returns the metadata log."""
        # First of all, because it fails most often: then the data directories stay as they were left.
        await self.server.bind(self.listeners)
        metadata_log = self.partitions.open(self.node_id)
        self.cluster_id = self.partitions.directories[0].cluster_id
        self.controller = Controller(self.image, metadata_log, self.clock, self.workers)
        self.controller.replay()
        self._apply_broker_configs()
        await self.partitions.load(self.image)
        self.groups.start()
        self.controller.on_applied = self._applied
        self.producer_ids = ProducerIds(self.controller, self.node_id)
        await self.controller.change(self._register)
        self.maintenance = Maintenance(
            self.config, self.partitions, self.controller, self.clock, self.files, self.workers
        )
        await self.server.serve()
        self.maintenance.start()
        return metadata_log

    async def stop(self) -> None:
        """Stop serving, put everything on the disk, and leave the mark of a clean shutdown."""
        began = self.clock.monotonic()
        await self.server.stop()
        self.groups.stop()
        await self.dispatcher.stop()
        await self.maintenance.stop()
        await self.partitions.close()
        self.workers.close()
        log.info("stopped", node_id=self.node_id, seconds=self._seconds_since(began))

    @property
    def address(self) -> str:
        """Where clients of the first listener connect."""
        listener = self.listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    def nodes(self, listener: str) -> Iterator[tuple[int, str, int, str | None, bool]]:
        """(id, host, port, rack, fenced) of the brokers that can be reached through `listener`."""
        for broker in self.image.brokers.values():
            if listener in broker.endpoints:
                host, port = broker.endpoints[listener]
                yield broker.id, host, port, broker.rack, broker.fenced

    async def create_topic(self, topic: NewTopic, validate_only: bool = False) -> Sequence[Struct]:
        """The records that made the topic, or would make it."""

        def decide() -> tuple[Sequence[Struct], Sequence[Struct]]:
            defaults = Defaults(self.config.num_partitions, self.config.default_replication_factor)
            records = create_topic(self.image, topic, defaults, self._new_topic_id)
            resolve_topic_configs(topic.configs, self.config)
            return ([] if validate_only else records), records

        return await self.controller.change(decide)

    async def auto_create(self, name: str) -> None:
        """Make a topic that somebody mentioned; another mention may have been faster."""
        try:
            await self.create_topic(NewTopic(name))
        except TopicAlreadyExists:
            log.debug("topic_exists", topic=name)

    def connection_lost(self, connection: Connection) -> None:
        """Nothing of ours hangs on a connection yet; what waits for one was cancelled with it."""

    def _new_topic_id(self) -> TopicId:
        topic_id = TopicId(self.rng.token(16))
        while topic_id in RESERVED_TOPIC_IDS or topic_id in self.image.topics_by_id:
            topic_id = TopicId(self.rng.token(16))
        return topic_id

    def _register(self) -> tuple[Sequence[Struct], None]:
        records: list[Struct] = []
        if not self.image.features:
            records += [
                FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_FEATURES.items()
            ]
        records.append(
            RegisterBrokerRecord(
                broker_id=self.node_id,
                incarnation_id=self.rng.token(16),
                broker_epoch=self.image.offset + 1 + len(records),
                end_points=[
                    BrokerEndpoint(name=e.name, host=e.advertised_host, port=e.advertised_port)
                    for e in self.listeners
                ],
                rack=self.config.broker_rack,
                fenced=False,
            )
        )
        return records, None

    async def _applied(self, records: Sequence[Struct]) -> None:
        """Bring what this broker does in line with the image."""
        added: dict[TopicId, list[int]] = {}
        removed: list[tuple[str, bytes]] = []
        reconfigured: set[str] = set()
        for record in records:
            if isinstance(record, PartitionRecord):
                added.setdefault(TopicId(record.topic_id), []).append(record.partition_id)
            elif isinstance(record, RemoveTopicRecord):
                name = await self.partitions.remove(TopicId(record.topic_id))
                removed.append((name, record.topic_id))
            elif isinstance(record, ConfigRecord):
                if record.resource_type == TOPIC:
                    reconfigured.add(record.resource_name)
                elif record.resource_type == BROKER:
                    self._apply_broker_configs()
                    reconfigured.update(self.image.topics)
        for topic_id, indexes in added.items():
            topic = self.image.topics_by_id[topic_id]
            await self.partitions.add(topic, indexes, self.image.topic_configs(topic.name))
        for name in reconfigured:
            self.partitions.reconfigure(name, self.image.topic_configs(name))
        self.groups.metadata_changed(records, removed)

    def _log_start(self, metadata_log: Log, began: float) -> None:
        """Say that clients can connect, and what recovery had to do."""
        recoveries = {partition.name: partition.log.recovery for partition in self.partitions}
        partitions = len(recoveries)
        recoveries[METADATA_TOPIC] = metadata_log.recovery
        for name, found in recoveries.items():
            if found.bytes_cut or found.segments_dropped or found.corruption:
                log.info(
                    "recovered",
                    partition=name,
                    bytes_cut=found.bytes_cut,
                    segments_dropped=found.segments_dropped,
                    damaged_ranges=len(found.corruption),
                )
        walked = sum(found.bytes_walked for found in recoveries.values())
        log.info(
            "started",
            address=self.address,
            node_id=self.node_id,
            partitions=partitions,
            # After an unclean stop there is always something to walk: the metadata log is never empty.
            clean=walked == 0,
            bytes_walked=walked,
            bytes_cut=sum(found.bytes_cut for found in recoveries.values()),
            seconds=self._seconds_since(began),
        )

    def _seconds_since(self, began: float) -> float:
        return round(self.clock.monotonic() - began, 3)

    def _apply_broker_configs(self) -> None:
        self.config.set_dynamic(
            dynamic=self.image.configs.get((BROKER, str(self.node_id)), {}),
            dynamic_default=self.image.configs.get((BROKER, ""), {}),
        )
        self.server.limits = _limits(self.config)


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        max_request_bytes=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_by_ip=config.max_connections_by_ip,
        max_connections_per_s=config.max_connection_creation_rate,
        max_idle_s=config.connections_max_idle_ms / 1000,
        memory_bytes=config.request_memory_bytes,
        backlog=config.socket_listen_backlog_size,
    )
