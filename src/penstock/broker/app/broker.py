"""Opens, starts and stops a broker, which is composed of stages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.broker.app.cluster import compose_cluster
from penstock.broker.app.coordinators import compose_coordinators
from penstock.broker.app.healing import compose_healing
from penstock.broker.app.listening import Listening, compose_listening
from penstock.broker.app.mounting import Mounting
from penstock.broker.app.registration import standalone_registration
from penstock.broker.app.replication import compose_replication
from penstock.broker.app.serving import Serving, compose_serving
from penstock.broker.app.stages import Stages
from penstock.broker.app.start_report import log_start
from penstock.broker.app.storage import open_storage
from penstock.broker.app.upward_port import LaterStages, UpwardPort
from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_home import check_metadata_home
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.ids import parse_topic_id
from penstock.ports import World
from penstock.storage.manifest import Registration
from penstock.wire.schema import Struct

__all__ = ["Broker", "World"]

log = get_logger("broker")
#: how long a stopping broker delivers audit events to each sink
_AUDIT_S: Final = 2.0
#: how long a stopping broker waits for the election of other leaders for its partitions
_HANDOVER_S: Final = 5.0
#: how long a stopping leader of the quorum waits for the other voters' responses to its resignation
_RESIGNATION_S: Final = 0.5


async def _compose(
    listening: Listening,
    partitions: Partitions,
    config: BrokerConfig,
    world: World,
    image: ClusterImage,
    upward: UpwardPort,
    *,
    is_process: bool,
) -> Broker:
    """Take the addresses, open the data directories, and compose the stages in the order of dependency."""
    await listening.bind(config.penstock_bootstrap_port)
    storage = await open_storage(config, world, partitions)
    cluster = compose_cluster(config, world, image, listening, storage, upward)
    healing = compose_healing(config, world, storage, cluster, upward)
    coordinators = compose_coordinators(config, world, listening, storage, cluster, healing)
    replication = compose_replication(config, world, listening, storage, cluster, healing, coordinators)
    stages = Stages(
        config=config,
        world=world,
        listening=listening,
        storage=storage,
        cluster=cluster,
        healing=healing,
        coordinators=coordinators,
        replication=replication,
    )
    serving = compose_serving(stages, is_process=is_process)
    upward.connect(
        LaterStages(
            hosted=replication.hosted,
            metadata_doubt=cluster.node.metadata_doubt,
            review=replication.replicas.review,
            heartbeat_due=replication.heartbeat_due,
            metadata_applied=serving.changes.applied,
            certificates_revoked=cluster.revocations.certificates_revoked,
        )
    )
    return Broker(stages, serving)


@dataclass(frozen=True, eq=False)
class Broker:
    """One broker: `start` returns when clients can connect, `stop` when all records are on disk."""

    stages: Stages
    serving: Serving
    mount: Mounting | None = None

    @classmethod
    async def open(
        cls, config: BrokerConfig, world: World, is_process: bool = False, mount: Mounting | None = None
    ) -> Broker:
        """Bind the listeners and open the data directories; releases all of them if one fails.

        `mount` is attached at the start, before clients are served.

        `is_process` is true if the broker is a process of its own: it then has a monitoring port by default,
        and logs a hint if its event loop is busy.
        """
        image, upward = ClusterImage(), UpwardPort()
        try:
            listening = compose_listening(config, world, image, upward)
        except Exception:
            world.workers.close()
            raise
        partitions = Partitions(
            config, world, lambda: check_metadata_home(config, world.files, world.clock, world.rng), upward
        )
        try:
            broker = await _compose(
                listening, partitions, config, world, image, upward, is_process=is_process
            )
            return broker if mount is None else replace(broker, mount=mount)
        except (Exception, asyncio.CancelledError):
            await listening.stop()
            partitions.abandon()
            world.workers.close()
            raise
        except BaseException:
            # The process ends here, or a test lets the power go: only the addresses are given up.
            listening.release()
            raise

    # -- start and stop

    async def start(self) -> None:
        began = self._clock_s()
        try:
            await self._start()
        except (Exception, asyncio.CancelledError):
            # Release all resources: another attempt, even in this process, can acquire them again.
            await self.abort()
            raise
        stages = self.stages
        log_start(
            stages.config,
            stages.storage.partitions,
            stages.storage.metadata_log,
            address=self.address,
            seconds=self._seconds_since(began),
        )

    async def _start(self) -> None:
        stages, serving = self.stages, self.serving
        listening, node, lifecycle = stages.listening, stages.cluster.node, stages.replication.lifecycle
        listening.audit_parts.start()
        stages.storage.partitions.trust_clock(False)
        if serving.monitor is not None:
            await serving.monitor.start()
        if serving.busy is not None:
            serving.busy.start()
        await listening.securities.start()
        serving.tracing.start()
        node.start()
        if listening.internal is None or serving.internal_dispatcher is None or lifecycle is None:
            await node.controller.change(self._register_alone)
        else:
            await listening.internal.serve(serving.internal_dispatcher)
            await lifecycle.register_controller()
        if stages.config.is_broker:
            await self._start_broker()
        else:
            await node.loader.between_changes(serving.changes.follow_as_controller)

    async def _start_broker(self) -> None:
        """Register, open all replicas that the image assigns to this broker, and wait to be unfenced."""
        stages, replication = self.stages, self.stages.replication
        lifecycle = replication.lifecycle
        if replication.tiered is not None:
            # Before logs are opened: a broker whose archive cannot be used does not start.
            await replication.tiered.open()
        if lifecycle is not None:
            await lifecycle.register()
        await stages.cluster.node.loader.between_changes(self.serving.changes.follow)
        if lifecycle is not None and replication.rejoining is not None:
            lifecycle.start()
            await lifecycle.wait_until_unfenced()
            replication.rejoining.start()
        await stages.listening.securities.use_salt_key()
        if self.mount is not None:
            await self.mount.attach(stages)
        if replication.tiered is not None:
            replication.tiered.start()
        await stages.listening.server.serve(self.serving.dispatcher)
        self.serving.health.phase.serving = True
        if stages.coordinators.audit_topic is not None:
            stages.coordinators.audit_topic.start()
        replication.maintenance.start()
        replication.links.start()
        stages.healing.scrubber.start()

    async def stop(self) -> None:
        """Hand over leadership, stop serving, sync all logs, and write the clean-shutdown marker."""
        began, stages = self._clock_s(), self.stages
        lifecycle, node = stages.replication.lifecycle, stages.cluster.node
        self.serving.health.phase.stopping = True
        if lifecycle is not None and stages.config.controlled_shutdown_enable:
            await lifecycle.shut_down(_HANDOVER_S)
        await stages.listening.server.stop()
        await self._stop_serving()
        if lifecycle is not None:
            await node.quorum.resign(_RESIGNATION_S)
        await node.clock_watch.save()
        await self._leave()
        await stages.storage.partitions.close(self._registration())
        stages.world.workers.close()
        log.info("stopped", node_id=stages.config.node_id, seconds=self._seconds_since(began))

    async def abort(self) -> None:
        """Release all resources at once, as if the process had crashed here."""
        await self.stages.listening.server.stop()
        await self._stop_serving()
        await self._leave()
        self.stages.storage.partitions.abandon()
        self.stages.world.workers.close()

    async def _stop_serving(self) -> None:
        stages, coordinators = self.stages, self.stages.coordinators
        stages.listening.audit.close()
        if coordinators.audit_topic is not None:
            await coordinators.audit_topic.stop()
        await stages.healing.scrubber.stop()
        await stages.replication.links.stop()
        await stages.replication.replicas.stop()
        coordinators.groups.stop()
        coordinators.transactions.stop()
        coordinators.shares.stop()
        coordinators.verifier.stop()
        await self.serving.dispatcher.stop()
        await stages.replication.maintenance.stop()
        if stages.replication.tiered is not None:
            await stages.replication.tiered.stop()
        if self.mount is not None:
            await self.mount.close()

    async def _leave(self) -> None:
        """Leave the cluster: stop heartbeats, the internal listener and the node."""
        stages, serving = self.stages, self.serving
        await stages.listening.securities.stop()
        await stages.listening.audit_parts.stop(_AUDIT_S)
        background_work = (
            serving.tracing,
            serving.monitor,
            serving.busy,
            stages.replication.rejoining,
            stages.replication.lifecycle,
            stages.listening.internal,
            serving.internal_dispatcher,
        )
        for background in background_work:
            if background is not None:
                await background.stop()
        await stages.cluster.node.stop()

    # -- the cluster

    @property
    def address(self) -> str:
        """The address of the first listener; a node without the broker role has only the internal one."""
        listener = self.stages.listening.all_listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    def _registration(self) -> Registration:
        if self.stages.replication.lifecycle is not None:
            return self.stages.replication.lifecycle.registration
        registered = self.stages.cluster.image.brokers[self.stages.config.node_id]
        return Registration(registered.epoch, registered.incarnation)

    def _register_alone(self) -> tuple[Sequence[Struct], None]:
        stages = self.stages
        records = standalone_registration(
            stages.cluster.image,
            stages.config,
            stages.world.rng,
            stages.cluster.node.controller.next_offset,
            stages.listening.listeners,
            [parse_topic_id(directory.directory_id) for directory in stages.storage.partitions.directories],
        )
        return records, None

    def _clock_s(self) -> float:
        return self.stages.world.clock.monotonic()

    def _seconds_since(self, began: float) -> float:
        return round(self._clock_s() - began, 3)
