"""Logs of the coordinators and of the quorum that are lost in part, under transactions and a share group.

`__transaction_state` and `__share_group_state` are removed, rolled back or cut on two of three brokers, the
one that stopped last among them. The transactional producer and the members of the share group live through
it: the next transactions have to end, and every message of the share group has to be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException

from chaos.clients import TOPIC, create_topic
from chaos.queue_kills import QueueVerdict, ShareLoad
from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.damage import cut_tail, segments
from disasters.scene import VICTIM, Scene
from disasters.transactions import Transactions

__all__ = ["STATES"]

STATES: Final = Catalogue()
_STATE_TOPICS: Final = ("__transaction_state", "__share_group_state")
_STRUCK: Final = (VICTIM, 3)
_SHAPE: Final = Shape(
    settings={
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "3",
    }
)
_TRANSACTIONS: Final = 10
_RECORDS: Final = 30
_START_S: Final = 60.0
_LOAD_S: Final = 3.0
_CUT_BYTES: Final = 200


@contextmanager
def _load(scene: Scene) -> Iterator[Transactions]:
    """Transactions and a share group, before and after the damage that is done in the block."""
    scene.create()
    create_topic(scene.cluster.bootstrap, len(scene.cluster.nodes), _START_S)
    load = ShareLoad(scene.cluster.bootstrap)
    load.start()
    transactions = Transactions(scene.client, scene.topic)
    _run(transactions)
    scene.watch(_LOAD_S)
    yield transactions
    try:
        _run(transactions)
    except KafkaException as error:
        scene.complaints.append(f"the next transactions failed: {error}")
    verdict = QueueVerdict()
    load.end(verdict)
    load.judge(verdict)
    scene.client.delete_topic(TOPIC)
    if not verdict.is_good:
        scene.complaints += verdict.lines()


def _run(transactions: Transactions) -> None:
    for number in range(_TRANSACTIONS):
        if number % 3:
            transactions.commit(_RECORDS)
        else:
            transactions.abort(_RECORDS)


def _strike(scene: Scene, damage: Callable[[int, str], object]) -> None:
    """Stops all brokers, damages both topics on two of them, and starts these two first."""
    scene.stop_all()
    for node in _STRUCK:
        for topic in _STATE_TOPICS:
            damage(node, topic)
    scene.start_first(*_STRUCK)
    scene.wait_whole(scene.cluster.system.whole_s)


@STATES(
    "state-logs-removed",
    "__transaction_state and __share_group_state removed on two of three brokers",
    shape=_SHAPE,
)
def state_logs_removed(scene: Scene) -> None:
    with _load(scene):
        _strike(scene, lambda node, topic: scene.disk(node).remove_topic(topic))


@STATES(
    "state-logs-rolled-back",
    "__transaction_state and __share_group_state rolled back on two of three brokers",
    shape=_SHAPE,
)
def state_logs_rolled_back(scene: Scene) -> None:
    with _load(scene) as transactions:
        scene.stop_all()
        older = {node: scene.copy(node) for node in _STRUCK}
        scene.start_all()
        _run(transactions)
        _strike(scene, lambda node, topic: scene.disk(node).restore_topic(older[node], topic))


@STATES(
    "state-logs-cut",
    "ends of __transaction_state and __share_group_state cut off on two of three brokers",
    shape=_SHAPE,
)
def state_logs_cut(scene: Scene) -> None:
    def cut(node: int, topic: str) -> None:
        for partition in scene.disk(node).partitions(topic):
            cut_tail(partition, _CUT_BYTES)

    with _load(scene):
        _strike(scene, cut)


@STATES("metadata-half-lost", "second half of the metadata log of one voter of three gone")
def metadata_half_lost(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()
    scene.stop_all()
    log = scene.disk(2).metadata_log()
    cut_tail(log, segments(log)[-1].stat().st_size // 2)
    scene.start_all()
