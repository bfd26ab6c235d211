"""The third stage of a broker: this process as a node of its cluster, and its way to the controller."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.app.listening import Listening
from penstock.broker.app.storage import Storage
from penstock.broker.app.upward_port import UpwardPort
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.node.new_topics import TopicCreation
from penstock.broker.node.producer_ids import ProducerIds
from penstock.broker.request.forwarding import Forwarding
from penstock.broker.request.revocations import Revocations
from penstock.broker.request.topic_creator import TopicCreator
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.ids import parse_topic_id
from penstock.ports import World
from penstock.storage.clock_file import ClockFile

__all__ = ["Cluster", "compose_cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster as this node sees and changes it."""

    image: ClusterImage
    node: ClusterNode
    producer_ids: ProducerIds
    forwarding: Forwarding
    #: decides about new topics, on the active controller
    topic_creation: TopicCreation
    #: creates topics, from any broker
    topics: TopicCreator
    revocations: Revocations


def compose_cluster(
    config: BrokerConfig,
    world: World,
    image: ClusterImage,
    listening: Listening,
    storage: Storage,
    upward: UpwardPort,
) -> Cluster:
    home, internal = storage.home, listening.internal_listener
    node = ClusterNode(
        config,
        world,
        image,
        storage.metadata_log,
        cluster_id=home.cluster_id,
        directory_id=parse_topic_id(home.directory_id),
        clock_file=ClockFile(world.files, home.path, config.node_id, home.directory_id),
        is_new=storage.is_new,
        internal=internal,
        security=None if internal is None else listening.securities.client(internal),
        on_applied=upward.metadata_applied,
        on_clock_trust=storage.partitions.trust_clock,
        on_leader_change=upward.heartbeat_due,
    )
    forwarding = Forwarding(node.controller_client, node.loader, storage.metrics)
    creation = TopicCreation(config, image, node.controller, world.clock, world.rng)
    return Cluster(
        image=image,
        node=node,
        producer_ids=ProducerIds(config.node_id, lambda: node.broker_epoch, node.controller_client),
        forwarding=forwarding,
        topic_creation=creation,
        topics=TopicCreator(forwarding, creation),
        revocations=Revocations(image, listening.servers, node.peers.end_if),
    )
