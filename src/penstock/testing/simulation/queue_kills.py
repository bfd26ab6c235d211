"""Kills of the brokers that queues depend on, one after the other, before the last one is back in sync.

Each kill hits the leader of a partition that a share group reads, a share coordinator, a group coordinator,
or the leader of a delay topic or of its target. The pauses are too short for a cluster to recover: a role
moves to a broker that has just been started again, or has no leader for a moment.

`queue_kills` draws the role of each kill. `share_kills_in_turn` follows one share partition: its leader, the
coordinator of its group and the leader of its state are killed in this order, three times.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.coordinators.share_state_service import coordinator_key
from penstock.coordination.partitioning import partition_of
from penstock.model.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TopicPartition
from penstock.shares.shard import ShareStateKey
from penstock.testing.simulation.cluster import TOPIC, SimCluster
from penstock.testing.simulation.cluster_roles import newest_image, replica_on
from penstock.testing.simulation.delays import TARGET_TOPIC
from penstock.testing.simulation.fault_steps import REPLACED_S, until
from penstock.testing.simulation.log_starts import DELAY_TOPIC
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.shares import SHARE_GROUP

__all__ = ["queue_kills", "share_kills_in_turn"]

_KILLS: Final = 9
#: virtual seconds between two kills, and until a killed broker is started again
_PAUSE_S: Final = (0.3, 3.0)
_DOWN_S: Final = (0.02, 2.0)
#: virtual seconds of load before the first kill and after the last one
_LOAD_S: Final = (0.5, 1.5)
#: most kills wait for a record that is not committed, for up to so many virtual seconds
_AIMED: Final = 0.7
_AIM_S: Final = 1.0
_GLANCE_S: Final = 0.0005
_CHAIN: Final = frozenset({TOPIC, SHARE_STATE_TOPIC, OFFSETS_TOPIC})
_ROLES: Final = (TOPIC, SHARE_STATE_TOPIC, OFFSETS_TOPIC, DELAY_TOPIC, TARGET_TOPIC)


async def queue_kills(cluster: SimCluster) -> None:
    """Nine leaders are killed, each in the role that the seed draws."""
    await asyncio.sleep(cluster.rng.uniform(*_LOAD_S))
    for _ in range(_KILLS):
        role = cluster.rng.choice(_ROLES)
        node = await _victim(cluster, role)
        if node is not None:
            cluster.note("scenario", f"kills a leader of {role}")
            node.kill()
            cluster.loop.world_later(cluster.rng.uniform(*_DOWN_S), node.boot)
        await asyncio.sleep(cluster.rng.uniform(*_PAUSE_S))
    await asyncio.sleep(cluster.rng.uniform(*_LOAD_S))


async def share_kills_in_turn(cluster: SimCluster) -> None:
    """Three times the leader of a share partition, its group coordinator and the leader of its state.

    A kill comes 0.3 to 3 s after the one before, and earlier if that broker comes back into an ISR.
    """
    await asyncio.sleep(cluster.rng.uniform(*_LOAD_S))
    await until(lambda: newest_image(cluster.nodes).topics.keys() >= _CHAIN, REPLACED_S)
    chain = _chain(cluster, cluster.rng.choice(cluster.partitions))
    last: Node | None = None
    for number in range(_KILLS):
        await _pause_until_in_sync(cluster, last)
        target = chain[number % len(chain)]
        last = await _leader_with_load(cluster, target)
        if last is not None:
            cluster.note("scenario", f"kills the leader of {target}")
            last.kill()
            cluster.loop.world_later(cluster.rng.uniform(*_DOWN_S), last.boot)
    await asyncio.sleep(cluster.rng.uniform(*_LOAD_S))


def _chain(cluster: SimCluster, partition: TopicPartition) -> tuple[TopicPartition, ...]:
    """The partitions whose leaders a delivery depends on: records, group, state."""
    topics = newest_image(cluster.nodes).topics
    groups, states = topics[OFFSETS_TOPIC].partitions, topics[SHARE_STATE_TOPIC].partitions
    key = coordinator_key(ShareStateKey(SHARE_GROUP, topics[partition.topic].id, partition.partition))
    return (
        partition,
        TopicPartition(OFFSETS_TOPIC, partition_of(SHARE_GROUP, len(groups))),
        TopicPartition(SHARE_STATE_TOPIC, partition_of(key, len(states))),
    )


async def _pause_until_in_sync(cluster: SimCluster, last: Node | None) -> None:
    """The pause before a kill, which ends when the broker killed last is in sync for some partition."""
    deadline = cluster.loop.time() + cluster.rng.uniform(*_PAUSE_S)
    out = False
    while cluster.loop.time() < deadline:
        in_sync = last is not None and last.is_up and _is_in_sync_somewhere(cluster, last)
        if out and in_sync:
            return
        out = out or not in_sync
        await asyncio.sleep(_GLANCE_S)


def _is_in_sync_somewhere(cluster: SimCluster, node: Node) -> bool:
    topics = newest_image(cluster.nodes).topics.values()
    return any(node.id in partition.isr for topic in topics for partition in topic.partitions.values())


async def _leader_with_load(cluster: SimCluster, target: TopicPartition) -> Node | None:
    """The leader of a partition, mostly at a moment at which it has a record that is not committed."""
    aims = cluster.rng.random() < _AIMED
    deadline = cluster.loop.time() + _AIM_S
    found: Node | None = None
    while cluster.loop.time() < deadline:
        found = dict(_leaders(cluster, target.topic)).get(target)
        replica = None if found is None else replica_on(found, target)
        if replica is not None and (not aims or replica.log.high_watermark < replica.log.end_offset):
            return found
        await asyncio.sleep(_GLANCE_S)
    return found


async def _victim(cluster: SimCluster, topic: str) -> Node | None:
    """A leader of the topic, mostly at a moment at which it has a record that is not committed."""
    if cluster.rng.random() < _AIMED:
        deadline = cluster.loop.time() + _AIM_S
        while cluster.loop.time() < deadline:
            for name, node in _leaders(cluster, topic):
                replica = replica_on(node, name)
                if replica is not None and replica.log.high_watermark < replica.log.end_offset:
                    return node
            await asyncio.sleep(_GLANCE_S)
    found = [node for _, node in _leaders(cluster, topic)]
    return cluster.rng.choice(found) if found else None


def _leaders(cluster: SimCluster, name: str) -> list[tuple[TopicPartition, Node]]:
    """The partitions of a topic and their leaders that run, as the newest image has them."""
    topic = newest_image(cluster.nodes).topics.get(name)
    by_id = {node.id: node for node in cluster.nodes if node.is_up}
    return [
        (TopicPartition(name, partition.index), by_id[partition.leader])
        for partition in (() if topic is None else topic.partitions.values())
        if partition.leader in by_id
    ]
