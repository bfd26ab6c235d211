"""The sixth stage of a broker: the roles of its replicas, its registration, and its background work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.broker.app.cluster import Cluster
from penstock.broker.app.coordinators import Coordinators
from penstock.broker.app.healing import Healing
from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.app.links import new_links
from penstock.broker.app.listening import Listening
from penstock.broker.app.maintenance import Maintenance
from penstock.broker.app.storage import Storage
from penstock.broker.links.runtime import Links
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.node.rejoining import Rejoining
from penstock.broker.replica.archived_restart import ArchivedRestarts
from penstock.broker.replica.cordoned_directories import cordoned
from penstock.broker.replica.fetcher import ReplicaFetcher
from penstock.broker.replica.follower_quarantine import FollowerQuarantine
from penstock.broker.replica.links import ClusterLinks
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.replicas import Replicas
from penstock.broker.replica.throttles import Throttles
from penstock.model.config import BrokerConfig
from penstock.model.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, parse_topic_id
from penstock.ports import World
from penstock.wire.api import Api, RequestT, ResponseT

if TYPE_CHECKING:
    from penstock.broker.app.tiered_storage import TieredStorage

__all__ = ["Replication", "compose_replication"]

#: how long a request to the active controller may take
_PATIENCE_S: Final = 30.0
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The replicas of this broker and their life in the cluster."""

    replicas: Replicas
    maintenance: Maintenance
    #: None without an archive
    tiered: TieredStorage | None
    links: Links
    #: None if this broker is a cluster of one node
    lifecycle: Lifecycle | None
    rejoining: Rejoining | None

    def registered_epoch(self) -> int:
        """The broker epoch of this process's registration; -1 if it has none."""
        return _NO_EPOCH if self.lifecycle is None else self.lifecycle.epoch

    def hosted(self, partition: Partition) -> None:
        """A partition was opened, and has no role yet."""
        if self.tiered is not None:
            self.tiered.attach(partition)
        self.replicas.hosted(partition)

    def heartbeat_due(self) -> None:
        """Send the next heartbeat at once, if this broker sends any."""
        if self.lifecycle is not None:
            self.lifecycle.wake()


def compose_replication(
    config: BrokerConfig,
    world: World,
    listening: Listening,
    storage: Storage,
    cluster: Cluster,
    healing: Healing,
    coordinators: Coordinators,
) -> Replication:
    node, partitions = cluster.node, storage.partitions
    is_clustered = listening.internal is not None
    tiered = _new_tiered(config, world, storage, cluster)
    return Replication(
        replicas=_new_replicas(config, world, storage, cluster, healing, coordinators, tiered),
        maintenance=Maintenance(
            config,
            partitions,
            healing.full_directories,
            node.controller,
            node.clock_watch,
            world,
            healing.scrubber.scrub_and_repair,
        ),
        tiered=tiered,
        links=new_links(config, world, storage, cluster, coordinators),
        lifecycle=_new_lifecycle(config, world, listening, storage, cluster, healing)
        if is_clustered
        else None,
        rejoining=Rejoining(
            node.cluster_id, node.quorum, node.controller_client, node.addresses, node.recovery_at_start
        )
        if is_clustered
        else None,
    )


def _new_replicas(
    config: BrokerConfig,
    world: World,
    storage: Storage,
    cluster: Cluster,
    healing: Healing,
    coordinators: Coordinators,
    tiered: TieredStorage | None,
) -> Replicas:
    links = _links(cluster.node, tiered)

    def new_fetcher(
        leader: int, purpose: str, throttles: Throttles, quarantine: FollowerQuarantine
    ) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader,
            purpose,
            config,
            world.clock,
            world.rng,
            storage.metrics,
            cluster=links,
            throttles=throttles,
            quarantine=quarantine,
            restarts=ArchivedRestarts(config.node_id, world.clock, world.workers, links.archived_state),
        )

    return Replicas(
        config,
        world,
        cluster.image,
        storage.partitions,
        storage.metrics,
        cluster=links,
        coordinators={
            OFFSETS_TOPIC: coordinators.groups.runtime,
            TRANSACTIONS_TOPIC: coordinators.transactions.runtime,
            SHARE_STATE_TOPIC: coordinators.shares.coordinator.runtime,
        },
        repair_soon=healing.scrubber.repair_soon,
        new_fetcher=new_fetcher,
    )


def _new_tiered(
    config: BrokerConfig, world: World, storage: Storage, cluster: Cluster
) -> TieredStorage | None:
    """Brokers without tiered storage do not import its packages."""
    if not config.remote_log_storage_system_enable:
        return None
    from penstock.broker.app.tiered_storage import TieredStorage

    watch = cluster.node.clock_watch
    return TieredStorage(config, storage.partitions, cluster.image, world, storage.metrics, watch)


def _links(node: ClusterNode, tiered: TieredStorage | None) -> ClusterLinks:
    async def to_controller(
        api: Api[RequestT, ResponseT], request: RequestT, on_unanswered: Callable[[], None]
    ) -> ResponseT:
        return await node.controller_client.send(api, request, _PATIENCE_S, on_unanswered=on_unanswered)

    return ClusterLinks(
        broker_epoch=lambda: node.broker_epoch,
        to_controller=to_controller,
        peer=node.peers.get,
        between_changes=node.loader.between_changes,
        unclean_allowed=lambda topic: node.controller_loop.policy.unclean(node.image, topic),
        trusted_ms=node.clock_watch.now_ms,
        clock_compared=lambda: node.clock_watch.is_compared,
        awake_clock=node.awake_clock,
        archived_state=None if tiered is None else tiered.states,
    )


def _new_lifecycle(
    config: BrokerConfig,
    world: World,
    listening: Listening,
    storage: Storage,
    cluster: Cluster,
    healing: Healing,
) -> Lifecycle:
    assert listening.internal is not None
    full = healing.full_directories
    return Lifecycle(
        config,
        cluster.node,
        # The internal listener comes first: its host identifies the broker's machine.
        [listening.internal.listener, *listening.listeners],
        [parse_topic_id(directory.directory_id) for directory in storage.partitions.directories],
        world.rng,
        previous=storage.partitions.previous_registration,
        offline=lambda: [parse_topic_id(directory.directory_id) for directory in full.failed()],
        cordoned=lambda: [
            parse_topic_id(directory.directory_id)
            for directory in cordoned(config, storage.partitions.directories)
        ],
        without_room=full.without_room,
        failed=full.failed_replicas,
        unclean=storage.partitions.unclean,
    )
