"""A share group and a delay topic through kills in quick succession.

The leader of a share partition, the coordinator of its group and the leader of its state are killed in turn,
0.3 to 3 s apart, before the last broker is back in sync (`chaos.kills_in_turn`). Every message has to be
accepted by a member, and the group has to have no lag. In the same rhythm leaders of a delay topic and of its
target are killed: every delayed message has to be in the target once.
"""

from __future__ import annotations

import random
from typing import Final

from chaos.clients import TOPIC, create_topic
from chaos.delayed_messages import DELAY_TOPIC, TARGET, DelayedMessages
from chaos.kills_in_turn import kill_in_turn
from chaos.queue_kills import DELAY_ROLES, KILLS, QueueVerdict, ShareLoad, judge_delays, kill_leaders
from chaos.share_members import GROUP
from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.scene import Scene

__all__ = ["QUEUES"]

QUEUES: Final = Catalogue()
_ROUNDS: Final = 3
_START_S: Final = 60.0
_LOAD_S: Final = 3.0
_FLUSHED_S: Final = 150.0
_SHARES: Final = Shape(settings={"share.coordinator.state.topic.num.partitions": "3"})


@QUEUES(
    "share-group-kills",
    "27 leaders and coordinators of a share partition killed in turn, 0.3 to 3 s apart, under a share group",
    row=18,
    shape=_SHARES,
)
def share_group_kills(scene: Scene) -> None:
    cluster = scene.cluster
    scene.create()
    scene.write()
    create_topic(cluster.bootstrap, len(cluster.nodes), _START_S)
    load = ShareLoad(cluster.bootstrap)
    load.start()
    scene.watch(_LOAD_S)
    verdict, said = QueueVerdict(), list[str]()
    for seed in range(_ROUNDS):
        verdict.kills += kill_in_turn(cluster, TOPIC, GROUP, random.Random(seed), KILLS, said.append)
        scene.start_all()
    load.end(verdict)
    load.judge(verdict)
    scene.client.delete_topic(TOPIC)
    # A message that was accepted without a response is no harm: the broker died between both.
    if not verdict.is_good:
        scene.complaints += verdict.lines()


@QUEUES(
    "delay-topic-kills",
    "27 leaders of a delay topic and of its target killed, 0.3 to 3 s apart, while messages wait",
    row=22,
    systems=("penstock",),
)
def delay_topic_kills(scene: Scene) -> None:
    cluster = scene.cluster
    scene.create()
    scene.write()
    delayed = DelayedMessages(cluster.bootstrap, _ROUNDS)
    delayed.create_topics(_START_S)
    delayed.start()
    scene.watch(_LOAD_S)
    verdict, said = QueueVerdict(), list[str]()
    for seed in range(_ROUNDS):
        verdict.kills += kill_leaders(cluster, DELAY_ROLES, random.Random(seed), KILLS, said.append)
        scene.start_all()
    verdict.complaints += delayed.stop(_FLUSHED_S)
    judge_delays(delayed, verdict)
    for topic in (DELAY_TOPIC, TARGET):
        scene.client.delete_topic(topic)
    if not verdict.is_good:
        scene.complaints += verdict.lines()
