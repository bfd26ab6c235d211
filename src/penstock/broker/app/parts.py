"""The parts of a broker. This module builds each part with its dependencies.

The parts are built once the listeners are bound and the data directories are open. `Broker` starts and stops
them. `Routes` builds the handlers from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.app.maintenance import Maintenance
from penstock.broker.app.share_parts import ShareParts
from penstock.broker.base.access import access_of
from penstock.broker.base.audit import Audit
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.metering import MutationQuotas
from penstock.broker.base.metrics import Metrics
from penstock.broker.coordinators.group_coordinator import GroupCoordinator
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.coordinators.transaction_additions import PartitionAdditions
from penstock.broker.coordinators.transaction_coordinator import TransactionCoordinator
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.full_directories import FullDirectories
from penstock.broker.healing.scrubber import Scrubber
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.node.new_topics import TopicCreation
from penstock.broker.node.producer_ids import ProducerIds
from penstock.broker.node.rejoining import Rejoining
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.produce.verification import Lane, TransactionVerifier
from penstock.broker.replica.fetcher import ReplicaFetcher
from penstock.broker.replica.links import ClusterLinks
from penstock.broker.replica.partitions import Partitions
from penstock.broker.replica.replicas import Replicas
from penstock.broker.replica.txn_markers import MarkerWriter
from penstock.broker.request.audit_topic import AuditTopic, audit_topic_of
from penstock.broker.request.forwarding import Forwarding
from penstock.broker.request.internal_listener import InternalListener, windows_of
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.broker.request.metadata_users import MetadataUsers
from penstock.broker.request.topic_creator import AutoCreation, TopicCreator
from penstock.model.config import BrokerConfig
from penstock.model.ids import (
    AUDIT_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    parse_topic_id,
)
from penstock.net.client import Peer
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.net.server import Server
from penstock.ports import World
from penstock.quotas.clients import ClientQuotas
from penstock.quotas.rates import Windows
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["BrokerParts"]

#: how long an idle fetch session keeps its slot
_SESSION_EVICTION_S: Final = 120.0
#: how long a request to the active controller may take
_PATIENCE_S: Final = 30.0
_NO_EPOCH: Final = -1


def audit_queue_of(config: BrokerConfig) -> AuditQueue | None:
    """The queue to the audit topic; None if audit events do not go there."""
    if config.penstock_audit_destination not in ("topic", "both") or not config.is_broker:
        return None
    return AuditQueue(config.penstock_audit_queue_events_max)


class BrokerParts:
    """All parts of a broker but its handlers."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        server: Server,
        listeners: list[Listener],
        internal: InternalListener | None,
        partitions: Partitions,
        node: ClusterNode,
        securities: ListenerSecurities,
    ) -> None:
        """`internal` is the listener for other nodes, None if this broker is a cluster of one node.

        Longer than other functions because it composes: one statement per part, in the order of dependency.
        """
        self.config = config
        self.node_id = config.node_id
        self.clock = world.clock
        self.rng = world.rng
        self.workers = world.workers
        self.metrics = Metrics(partitions.traffic)
        self.client_telemetry = ClientTelemetry(world.rng.token)
        self.image = node.image
        self.audit_queue = audit_queue_of(config)
        self.audit = self._new_audit(None if internal is None else internal.listener)
        securities.on_failure = self.audit.authentication_failed
        #: None without an authorizer
        self.access = access_of(config, node.image, self.audit)
        self.quotas = ClientQuotas(
            windows_of(config),
            Windows(config.controller_quota_window_num, 1000 * config.controller_quota_window_size_seconds),
        )
        self.mutations = MutationQuotas(
            self.quotas,
            lambda: (node.image.quotas, node.image.quota_generation),
            self.monotonic_ms,
            None if internal is None else internal.listener,
        )
        self.files = world.files
        self.server = server
        self.listeners = listeners
        self.internal = internal
        self.partitions = partitions
        self.node = node
        self.securities = securities
        securities.users = MetadataUsers(self.image)
        self.producer_ids = ProducerIds(node)
        self.topic_creation = TopicCreation(config, node.image, node.controller, world.clock, world.rng)
        self.forwarding = Forwarding(node, self.metrics)
        self.topics = TopicCreator(self.forwarding, self.topic_creation)
        self.broker_appends = BrokerAppends(
            self.image, partitions.find, self.access, self._may_append_for_brokers, world.workers
        )
        self.topic_writer = TopicWriter(
            self.node_id,
            self.image,
            self.broker_appends.append,
            lambda node_id, request: self.peer(node_id, "appends").send(PRODUCE, request, _PATIENCE_S),
        )
        self.shares = ShareParts(
            config,
            world,
            self.image,
            partitions,
            self.metrics,
            lambda partition: self.scrubber.scrub_and_repair(partition),
            self.topics.create,
            node.peers.get,
            self.topic_writer,
            self.producer_ids.take,
            self.access is not None,
        )
        self.groups = GroupCoordinator(
            config,
            self.image,
            partitions,
            world.clock,
            world.rng,
            Loader(world.workers, self.metrics, lambda partition: self.scrubber.scrub_and_repair(partition)),
            self.topics.create,
            lambda: node.clock_watch.now_ms() is not None,
            self.shares.persister,
        )
        self.transactions = self._new_transactions(world)
        self.audit_topic = self._new_audit_topic()
        internal_topics = (
            self.groups.runtime.topic,
            self.transactions.runtime.topic,
            self.shares.coordinator.runtime.topic,
        )
        self.auto_creation = AutoCreation(self.topics, internal_topics)
        links = ClusterLinks(
            broker_epoch=lambda: node.broker_epoch,
            to_controller=self.to_controller,
            peer=node.peers.get,
            between_changes=node.loader.between_changes,
            unclean_allowed=lambda topic: node.controller_loop.policy.unclean(self.image, topic),
            trusted_ms=node.clock_watch.now_ms,
            clock_compared=lambda: node.clock_watch.is_compared,
        )
        self.replicas = Replicas(
            config,
            world,
            self.image,
            partitions,
            self.metrics,
            cluster=links,
            coordinators={
                OFFSETS_TOPIC: self.groups.runtime,
                TRANSACTIONS_TOPIC: self.transactions.runtime,
                SHARE_STATE_TOPIC: self.shares.coordinator.runtime,
            },
            repair_soon=lambda partition: self.scrubber.repair_soon(partition),
            new_fetcher=lambda leader, purpose: ReplicaFetcher(
                leader,
                purpose,
                config,
                world.clock,
                world.rng,
                self.metrics,
                cluster=links,
                throttles=self.replicas.throttles,
                quarantine=self.replicas.quarantine,
            ),
        )
        self.markers = MarkerWriter(
            partitions, world.clock, config.request_timeout_ms / 1000, {OFFSETS_TOPIC: self.groups}
        )
        self.additions = PartitionAdditions(self.transactions.runtime, self.image)
        self.verifier = TransactionVerifier(self.transactions.coordinator_of, self._send_additions)
        self.repairs = self._repair_environment()
        self.scrubber = Scrubber(self.repairs, partitions, self.replicas.review)
        self.full_directories = FullDirectories(
            partitions, world.workers, self.metrics, self.replicas.review, self._report_soon
        )
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            _SESSION_EVICTION_S,
            world.clock.monotonic,
            lambda: int.from_bytes(world.rng.token(4), "big") & 0x7FFFFFFF,
        )
        self.lifecycle = None if internal is None else self._new_lifecycle(internal.listener)
        self.rejoining = None if internal is None else Rejoining(node)
        self.maintenance = Maintenance(
            config, partitions, self.full_directories, node, world, self.scrubber.scrub_and_repair
        )
        partitions.metadata_doubt = lambda: node.image_check.diverged or node.loader.doubt
        node.clock_watch.on_change = partitions.trust_clock

    def _new_audit(self, internal: Listener | None) -> Audit:
        config = self.config
        is_off = config.penstock_audit_destination == "off"
        return Audit(
            0 if is_off else config.penstock_audit_events_per_second_max,
            self.clock.monotonic,
            to_log=config.penstock_audit_destination in ("log", "both"),
            queue=self.audit_queue,
            blocks=config.penstock_audit_overflow == "block",
            aggregation_s=config.penstock_audit_aggregation_ms / 1000,
            call_later=asyncio.get_running_loop().call_later,
            internal=None if internal is None else internal.name,
            wall_ms=self.clock.now_ms,
        )

    def _new_audit_topic(self) -> AuditTopic | None:
        if self.audit_queue is None:
            return None
        topic = InternalTopic(
            AUDIT_TOPIC, self.image, lambda: audit_topic_of(self.config), self.topics.create
        )
        return AuditTopic(
            self.audit_queue,
            topic,
            self.image,
            self.node_id,
            self.clock,
            self.topic_writer,
        )

    def _may_append_for_brokers(self, topic: str) -> bool:
        """Returns true for topics that other brokers write audit events, dead letters or messages to."""
        return topic == AUDIT_TOPIC or self.shares.takes_batches(topic)

    def _new_transactions(self, world: World) -> TransactionCoordinator:
        loader = Loader(
            world.workers,
            self.metrics,
            lambda partition: self.scrubber.scrub_and_repair(partition),
            cast("dict[str, Any]", self.config)["transaction.state.log.load.buffer.size"],
        )
        return TransactionCoordinator(
            self.config,
            self.image,
            self.partitions,
            world.clock,
            loader,
            self.topics.create,
            lambda: self.node.clock_watch.now_ms() is not None,
            self.producer_ids.take,
            self._send_markers,
        )

    async def _send_markers(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker_id == self.node_id:
            response = self.markers.write(request)
            return await awaited(response) if isinstance(response, Deferred) else response
        peer = self.node.peers.get(broker_id, "markers")
        return await peer.send(WRITE_TXN_MARKERS, request, _PATIENCE_S)

    async def _send_additions(
        self, lane: Lane, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        if lane.coordinator == self.node_id:
            response = self.additions.add_all(request)
            found = await awaited(response) if isinstance(response, Deferred) else response
            assert isinstance(found, AddPartitionsToTxnResponse)
            return found
        # A connection for each lane: responses on one connection come in the order of the requests.
        peer = self.node.peers.get(lane.coordinator, "slow-transactions" if lane.is_slow else "transactions")
        return await peer.send(ADD_PARTITIONS_TO_TXN, request, _PATIENCE_S)

    def _repair_environment(self) -> RepairEnvironment:
        return RepairEnvironment(
            self.node_id,
            self.config,
            self.image,
            self.files,
            self.workers,
            self.clock,
            self.metrics,
            self.node.peers.get,
        )

    def _new_lifecycle(self, internal: Listener) -> Lifecycle:
        directories = self.partitions.directories
        return Lifecycle(
            self.config,
            self.node,
            # The internal listener comes first: its host identifies the broker's machine.
            [internal, *self.listeners],
            [parse_topic_id(directory.directory_id) for directory in directories],
            self.rng,
            previous=self.partitions.previous_registration,
            offline=lambda: [parse_topic_id(d.directory_id) for d in self.full_directories.failed()],
            without_room=self.full_directories.without_room,
            failed=self.full_directories.failed_replicas,
            unclean=self.partitions.unclean,
        )

    def _report_soon(self) -> None:
        """Send the next heartbeat at once."""
        if self.lifecycle is not None:
            self.lifecycle.wake()

    def monotonic_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration in the cluster image."""
        return self.node.broker_epoch

    def registered_epoch(self) -> int:
        """The broker epoch of this process's registration; -1 if it has none."""
        return _NO_EPOCH if self.lifecycle is None else self.lifecycle.epoch

    def peer(self, node_id: int, purpose: str) -> Peer:
        """A connection to another node's internal listener; PeerGone if its address is unknown."""
        return self.node.peers.get(node_id, purpose)

    async def to_controller(
        self, api: Api[RequestT, ResponseT], request: RequestT, on_unanswered: Callable[[], None]
    ) -> ResponseT:
        """The active controller's response; ControllerUnavailable if there is none in time."""
        return await self.node.controller_client.send(api, request, _PATIENCE_S, on_unanswered=on_unanswered)
