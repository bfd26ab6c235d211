"""Starts and stops a broker, and applies metadata changes to it. `parts` builds the parts of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.broker.app.busy_watch import busy_watch_of
from penstock.broker.app.dispatchers import client_dispatcher, internal_dispatcher, monitor_of
from penstock.broker.app.parts import BrokerParts
from penstock.broker.app.registration import standalone_registration
from penstock.broker.app.routes import Routes
from penstock.broker.app.start_report import log_start
from penstock.broker.app.tracing import Tracing
from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.logs import get_logger
from penstock.broker.node.cluster_node import ClusterNode, new_cluster_id
from penstock.broker.node.controller import Controller
from penstock.broker.node.metadata_home import check_metadata_home
from penstock.broker.replica.partitions import Partitions
from penstock.broker.request.internal_listener import (
    InternalListener,
    failed_logins_of,
    limits_of,
    listener_at,
    windows_of,
)
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.broker.request.metered_dispatch import MeteredDispatcher
from penstock.metadata.image import BROKER, CLIENT_METRICS, ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.ids import parse_topic_id
from penstock.net.server import Server
from penstock.ports import World
from penstock.quotas.connections import address_rates
from penstock.security.principal import canonical_address
from penstock.storage.directory import DirectoryRefused
from penstock.storage.manifest import Registration
from penstock.wire.metadata_records import BrokerRegistrationChangeRecord, ConfigRecord
from penstock.wire.schema import Struct
from penstock.wire.security_records import ClientQuotaRecord

__all__ = ["Broker", "World"]

log = get_logger("broker")
#: how long a stopping broker waits for the election of other leaders for its partitions
_HANDOVER_S: Final = 5.0
#: how long a stopping leader of the quorum waits for the other voters' responses to its resignation
_RESIGNATION_S: Final = 0.5


class Broker:
    """One broker: `start` returns when clients can connect, `stop` when all records are on disk."""

    @classmethod
    async def open(cls, config: BrokerConfig, world: World, is_process: bool = False) -> Broker:
        """Bind the listeners and open the data directories; releases all of them if one fails.

        `is_process` is true if the broker is a process of its own: it then has a monitoring port by default,
        and logs a hint if its event loop is busy.
        """
        server = Server(
            limits_of(config),
            log.warning,
            has_room=DESCRIPTORS.has_room,
            windows=windows_of(config),
            failed_logins=failed_logins_of(config),
        )
        listeners = [listener_at(endpoint) for endpoint in config.endpoints]
        endpoint = config.internal_endpoint
        internal = None if endpoint is None else InternalListener(endpoint, config)
        partitions = Partitions(
            config, world, lambda: check_metadata_home(config, world.files, world.clock, world.rng)
        )
        securities = ListenerSecurities(config, world)
        try:
            for listener in listeners:
                securities.secure(listener)
            if internal is not None:
                internal.secure(securities)
            # Binding fails most often. It comes first, so that the directories stay unchanged then.
            await server.bind(listeners, config.penstock_bootstrap_port)
            if internal is not None:
                await internal.bind()
            node = await _open_node(config, world, partitions, internal, securities)
            parts = BrokerParts(config, world, server, listeners, internal, partitions, node, securities)
            return cls(parts, is_process)
        except (Exception, asyncio.CancelledError):
            await server.stop()
            if internal is not None:
                await internal.stop()
            partitions.abandon()
            world.workers.close()
            raise
        except BaseException:
            # The process ends here, or a test lets the power go: only the addresses are given up.
            server.release()
            if internal is not None:
                internal.release()
            raise

    def __init__(self, parts: BrokerParts, is_process: bool) -> None:
        self.parts = parts
        self.config = parts.config
        self.node_id = parts.node_id
        self.clock = parts.clock
        self.rng = parts.rng
        self.workers = parts.workers
        self.metrics = parts.metrics
        self.image = parts.image
        self.files = parts.files
        self.server = parts.server
        self.listeners = parts.listeners
        self.internal = parts.internal
        self.partitions = parts.partitions
        self.node = parts.node
        self.forwarding = parts.forwarding
        self.groups = parts.groups
        self.transactions = parts.transactions
        self.replicas = parts.replicas
        self.repairs = parts.repairs
        self.scrubber = parts.scrubber
        self.full_directories = parts.full_directories
        self.lifecycle = parts.lifecycle
        self.rejoining = parts.rejoining
        self.maintenance = parts.maintenance
        self.create_topic = parts.topics.create
        routes = Routes(parts)
        self.monitor = monitor_of(parts, is_process)
        self.busy = busy_watch_of(parts.config) if is_process else None
        self.tracing = Tracing(parts)
        self.dispatcher = client_dispatcher(parts, routes, self.tracing)
        self.metered = MeteredDispatcher(
            self.dispatcher, routes.metered, parts.metrics, parts.quotas, parts.monotonic_ms
        )
        self.internal_dispatcher = (
            None if self.internal is None else internal_dispatcher(parts, routes, self.tracing)
        )
        dispatchers = (self.dispatcher, self.metered, self.internal_dispatcher)
        self.tracing.attach([each for each in dispatchers if each is not None])

    # -- start and stop

    async def start(self) -> None:
        began = self.clock.monotonic()
        try:
            await self._start()
        except (Exception, asyncio.CancelledError):
            # Release all resources: another attempt, even in this process, can acquire them again.
            await self.abort()
            raise
        log_start(
            self.config,
            self.partitions,
            self.node.log.log,
            address=self.address,
            seconds=self._seconds_since(began),
        )

    async def _start(self) -> None:
        self.partitions.trust_clock(False)
        if self.monitor is not None:
            await self.monitor.start()
        if self.busy is not None:
            self.busy.start()
        await self.parts.securities.start()
        self.tracing.start()
        self.node.start()
        if self.internal is None or self.internal_dispatcher is None or self.lifecycle is None:
            await self.controller.change(self._register_alone)
        else:
            await self.internal.serve(self.internal_dispatcher)
            await self.lifecycle.register_controller()
        if self.config.is_broker:
            await self._start_broker()

    async def _start_broker(self) -> None:
        """Register, open all replicas that the image assigns to this broker, and wait to be unfenced."""
        if self.lifecycle is not None:
            self.node.on_leader_change = self.lifecycle.wake
            await self.lifecycle.register()
        await self.node.loader.between_changes(self._open_replicas)
        if self.lifecycle is not None and self.rejoining is not None:
            self.lifecycle.start()
            await self.lifecycle.wait_until_unfenced()
            self.rejoining.start()
        await self.parts.securities.use_salt_key()
        await self.server.serve(self.dispatcher)
        if self.monitor is not None:
            self.monitor.facts.serving = True
        if self.parts.audit_topic is not None:
            self.parts.audit_topic.start()
        self.maintenance.start()
        self.scrubber.start()

    async def _open_replicas(self) -> None:
        """Open the replicas that the image assigns to this broker, and apply metadata changes from now on."""
        self._apply_broker_configs()
        self._apply_quotas()
        self._apply_subscriptions()
        self.groups.start()
        self.transactions.start()
        self.parts.shares.start()
        await self.partitions.load(self.image)
        self.node.loader.on_applied = self._applied

    async def stop(self) -> None:
        """Hand over leadership, stop serving, sync all logs, and write the clean-shutdown marker."""
        began = self.clock.monotonic()
        if self.monitor is not None:
            self.monitor.facts.stopping = True
        if self.lifecycle is not None and self.config.controlled_shutdown_enable:
            await self.lifecycle.shut_down(_HANDOVER_S)
        await self.server.stop()
        await self._stop_serving()
        if self.lifecycle is not None:
            await self.node.quorum.resign(_RESIGNATION_S)
        await self._leave()
        await self.partitions.close(self._registration())
        self.workers.close()
        log.info("stopped", node_id=self.node_id, seconds=self._seconds_since(began))

    async def abort(self) -> None:
        """Release all resources at once, as if the process had crashed here."""
        await self.server.stop()
        await self._stop_serving()
        await self._leave()
        self.partitions.abandon()
        self.workers.close()

    async def _stop_serving(self) -> None:
        if self.parts.audit_topic is not None:
            await self.parts.audit_topic.stop()
        await self.scrubber.stop()
        await self.replicas.stop()
        self.groups.stop()
        self.transactions.stop()
        self.parts.shares.stop()
        self.parts.verifier.stop()
        await self.dispatcher.stop()
        await self.maintenance.stop()

    async def _leave(self) -> None:
        """Leave the cluster: stop heartbeats, the internal listener and the node."""
        await self.parts.securities.stop()
        background_work = (
            self.tracing,
            self.monitor,
            self.busy,
            self.rejoining,
            self.lifecycle,
            self.internal,
            self.internal_dispatcher,
        )
        for background in background_work:
            if background is not None:
                await background.stop()
        await self.node.stop()

    # -- the cluster

    @property
    def controller(self) -> Controller:
        return self.node.controller

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration in the cluster image."""
        return self.node.broker_epoch

    def _registration(self) -> Registration:
        if self.lifecycle is not None:
            return self.lifecycle.registration
        registered = self.image.brokers[self.node_id]
        return Registration(registered.epoch, registered.incarnation)

    @property
    def address(self) -> str:
        """The address of the first listener; a node without the broker role has only the internal one."""
        listener = (*self.listeners, *([self.internal.listener] if self.internal else ()))[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    def _register_alone(self) -> tuple[Sequence[Struct], None]:
        records = standalone_registration(
            self.image,
            self.config,
            self.rng,
            self.controller.next_offset,
            self.listeners,
            [parse_topic_id(directory.directory_id) for directory in self.partitions.directories],
        )
        return records, None

    async def _applied(self, records: Sequence[Struct]) -> None:
        """Apply changes of the image to this broker."""
        for record in records:
            if isinstance(record, BrokerRegistrationChangeRecord) and self.lifecycle is not None:
                # A controlled shutdown waits until all brokers have applied it. A fenced broker may be alive.
                self.lifecycle.wake()
            elif isinstance(record, ConfigRecord) and record.resource_type == BROKER:
                self._apply_broker_configs()
            elif isinstance(record, ConfigRecord) and record.resource_type == CLIENT_METRICS:
                self._apply_subscriptions()
            elif isinstance(record, ClientQuotaRecord):
                self._apply_quotas()
        await self.parts.securities.use_salt_key()
        removed = await self.replicas.apply(records)
        self.groups.metadata_changed(records, removed)
        self.parts.shares.metadata_changed(records, removed)
        if removed:
            self.transactions.topics_removed()

    def _seconds_since(self, began: float) -> float:
        return round(self.clock.monotonic() - began, 3)

    def _apply_quotas(self) -> None:
        self.metered.enforce(self.image.quotas, self.image.quota_generation)
        rates = address_rates(self.image.quotas).items()
        self.server.rates.set_address_rates(
            {None if address is None else canonical_address(address): rate for address, rate in rates}
        )

    def _apply_subscriptions(self) -> None:
        configs = self.image.configs.items()
        self.parts.client_telemetry.update(each for (kind, _), each in configs if kind == CLIENT_METRICS)

    def _apply_broker_configs(self) -> None:
        self.config.set_dynamic(
            dynamic=self.image.configs.get((BROKER, str(self.node_id)), {}),
            dynamic_default=self.image.configs.get((BROKER, ""), {}),
        )
        self.server.limits = limits_of(self.config)
        self.tracing.reconfigure()
        if self.parts.securities.depends_on(self.config):
            self.parts.securities.reload()


async def _open_node(
    config: BrokerConfig,
    world: World,
    partitions: Partitions,
    internal: InternalListener | None,
    securities: ListenerSecurities,
) -> ClusterNode:
    """Open the data directories and the metadata log; DirectoryRefused if they belong to another cluster."""
    metadata_log = partitions.open(new_cluster_id(config))
    # Records that a killed process has written but not synced count as acknowledged from here on.
    plan = metadata_log.flush_plan()
    await world.workers.in_thread(plan.sync)
    metadata_log.flushed(plan)
    home = next(d for d in partitions.directories if metadata_log.path.startswith(f"{d.path}/"))
    if config.penstock_cluster_id not in (None, home.cluster_id):
        raise DirectoryRefused(
            f"{home.path} belongs to the cluster {home.cluster_id}, but penstock.cluster.id is "
            f"{config.penstock_cluster_id}: use another path, or leave it out"
        )
    return ClusterNode(
        config,
        world,
        ClusterImage(),
        metadata_log,
        cluster_id=home.cluster_id,
        directory_id=parse_topic_id(home.directory_id),
        internal=None if internal is None else internal.listener,
        security=None if internal is None else securities.client(internal.listener),
    )
