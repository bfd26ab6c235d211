"""The fifth stage of a broker: the coordinators of groups, transactions and share groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.broker.app.cluster import Cluster
from penstock.broker.app.healing import Healing
from penstock.broker.app.listening import Listening
from penstock.broker.app.share_parts import ShareParts
from penstock.broker.app.storage import Storage
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.regexes import Regexes
from penstock.broker.coordinators.group_coordinator import GroupCoordinator
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.coordinators.transaction_additions import PartitionAdditions
from penstock.broker.coordinators.transaction_coordinator import TransactionCoordinator
from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.produce.verification import Lane, TransactionVerifier
from penstock.broker.replica.txn_markers import MarkerWriter
from penstock.broker.request.audit_topic import AuditTopic, audit_topic_of
from penstock.broker.request.topic_creator import AutoCreation
from penstock.broker.shares.delay_topics import takes_delayed_messages
from penstock.broker.shares.group_settings import SharesConfig
from penstock.model.config import BrokerConfig
from penstock.model.ids import AUDIT_TOPIC, OFFSETS_TOPIC
from penstock.net.client import Peer
from penstock.net.deferred import Deferred
from penstock.ports import World
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from penstock.wire.apis.produce import PRODUCE, ProduceRequest, ProduceResponse
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["Coordinators", "compose_coordinators"]

#: how long a request to another broker may take
_PATIENCE_S: Final = 30.0
#: a connection to a node's internal listener, by node id and purpose
PeerOf: TypeAlias = Callable[[int, str], Peer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """The coordinators of this broker, and the parts that other parts reach them through."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    shares: ShareParts
    #: evaluates the regular expressions of clients
    regexes: Regexes
    #: appends batches of brokers to the partitions that this broker leads
    broker_appends: BrokerAppends
    #: writes transaction markers
    markers: MarkerWriter
    #: adds partitions to transactions that this broker coordinates
    additions: PartitionAdditions
    #: verifies with the coordinator that a transaction has a partition
    verifier: TransactionVerifier
    auto_creation: AutoCreation
    #: None if audit events do not go to the topic
    audit_topic: AuditTopic | None


def compose_coordinators(
    config: BrokerConfig,
    world: World,
    listening: Listening,
    storage: Storage,
    cluster: Cluster,
    healing: Healing,
) -> Coordinators:
    """Longer than other functions because it composes: one statement per part, in the order of dependency."""
    image, node, partitions = cluster.image, cluster.node, storage.partitions
    peer, create_topic = node.peers.get, cluster.topics.create
    settings, is_restricted = SharesConfig(config, image), listening.access is not None
    repair = healing.scrubber.scrub_and_repair

    def may_append(topic: str) -> bool:
        """Returns true for topics that other brokers write audit events, dead letters or messages to."""
        return (
            topic == AUDIT_TOPIC
            or settings.topic(topic).takes_dead_letters
            or takes_delayed_messages(image, topic, is_restricted=is_restricted)
        )

    broker_appends = BrokerAppends(image, partitions.find, listening.access, may_append, world.workers)
    writer = TopicWriter(config.node_id, image, broker_appends.append, _to_leader(peer))
    shares = ShareParts(
        config,
        settings,
        world,
        node.awake_clock,
        image,
        partitions,
        storage.metrics,
        repair,
        create_topic,
        peer,
        writer,
        cluster.producer_ids.take,
        is_restricted,
    )
    regexes = Regexes(world.workers)
    groups = GroupCoordinator(
        config,
        image,
        partitions,
        node.awake_clock,
        world.rng,
        Loader(world.workers, storage.metrics, repair),
        create_topic,
        node.clock_watch.is_believed,
        shares.persister,
        regexes,
    )
    markers = MarkerWriter(partitions, world.clock, config.request_timeout_ms / 1000, {OFFSETS_TOPIC: groups})
    transactions = TransactionCoordinator(
        config,
        image,
        partitions,
        node.awake_clock,
        Loader(
            world.workers,
            storage.metrics,
            repair,
            config.transaction_state_log_load_buffer_size,
        ),
        create_topic,
        node.clock_watch.is_believed,
        cluster.producer_ids.take,
        _marker_sender(config.node_id, markers, peer),
    )
    additions = PartitionAdditions(transactions.runtime, image)
    internal_topics = (groups.runtime.topic, transactions.runtime.topic, shares.coordinator.runtime.topic)
    return Coordinators(
        groups=groups,
        transactions=transactions,
        shares=shares,
        regexes=regexes,
        broker_appends=broker_appends,
        markers=markers,
        additions=additions,
        verifier=TransactionVerifier(
            transactions.coordinator_of, _addition_sender(config.node_id, additions, peer)
        ),
        auto_creation=AutoCreation(cluster.topics, internal_topics),
        audit_topic=_new_audit_topic(config, world, listening, cluster, writer),
    )


def _new_audit_topic(
    config: BrokerConfig, world: World, listening: Listening, cluster: Cluster, writer: TopicWriter
) -> AuditTopic | None:
    if listening.audit_queue is None:
        return None
    topic = InternalTopic(AUDIT_TOPIC, cluster.image, lambda: audit_topic_of(config), cluster.topics.create)
    return AuditTopic(
        listening.audit_queue,
        topic,
        cluster.image,
        config.node_id,
        world.clock,
        writer,
        chain=listening.audit_parts.topic_chain(),
        keep_head=listening.audit_parts.keep_topic_head(),
        checkpoint_s=config.penstock_audit_checkpoint_ms / 1000,
    )


def _to_leader(peer: PeerOf) -> Callable[[int, ProduceRequest], Awaitable[ProduceResponse]]:
    """Sends batches to the broker that leads their partition."""

    async def send(node_id: int, request: ProduceRequest) -> ProduceResponse:
        return await peer(node_id, "appends").send(PRODUCE, request, _PATIENCE_S)

    return send


def _marker_sender(
    node_id: int, markers: MarkerWriter, peer: PeerOf
) -> Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]:
    """Sends transaction markers to the broker that leads their partitions, which may be this one."""

    async def send(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker_id == node_id:
            response = markers.write(request)
            return await awaited(response) if isinstance(response, Deferred) else response
        return await peer(broker_id, "markers").send(WRITE_TXN_MARKERS, request, _PATIENCE_S)

    return send


def _addition_sender(
    node_id: int, additions: PartitionAdditions, peer: PeerOf
) -> Callable[[Lane, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]:
    """Sends partitions of transactions to their coordinator, which may be this broker."""

    async def send(lane: Lane, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if lane.coordinator == node_id:
            response = additions.add_all(request)
            found = await awaited(response) if isinstance(response, Deferred) else response
            assert isinstance(found, AddPartitionsToTxnResponse)
            return found
        # A connection for each lane: responses on one connection come in the order of the requests.
        purpose = "slow-transactions" if lane.is_slow else "transactions"
        return await peer(lane.coordinator, purpose).send(ADD_PARTITIONS_TO_TXN, request, _PATIENCE_S)

    return send
