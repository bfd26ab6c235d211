"""Disasters that have done no harm so far, and must not: topics, reassignments, full disks, restarts."""

from __future__ import annotations

from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.scene import VICTIM, Scene

__all__ = ["OPERATIONS"]

OPERATIONS: Final = Catalogue()
#: slow enough that a kill comes before the end
_THROTTLE: Final = ("--throttle", "20KB")
_SMALL_DISKS: Final = Shape(small_disks=True)


def _written(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()


def _recreate(scene: Scene, partitions: int) -> None:
    """Deletes a second topic and creates it again while broker 2 is down."""
    _written(scene)
    name = f"{scene.topic}-again"
    scene.create(name)
    scene.write(300, name)
    scene.stop(2)
    scene.forget(name)
    scene.client.delete_topic(name)
    scene.create(name, partitions, in_sync=2)
    scene.write(150, name)
    scene.start(2)


@OPERATIONS("topic-recreated", "a topic deleted and re-created while a broker was down")
def topic_recreated(scene: Scene) -> None:
    _recreate(scene, 3)


@OPERATIONS("topic-recreated-smaller", "a topic re-created with fewer partitions while a broker was down")
def topic_recreated_smaller(scene: Scene) -> None:
    _recreate(scene, 2)


@OPERATIONS("topic-deleted", "a topic deleted while a broker was down, which is killed when it is back")
def topic_deleted(scene: Scene) -> None:
    _written(scene)
    name = scene.create(f"{scene.topic}-gone")
    scene.write(300, name)
    scene.stop(2)
    scene.forget(name)
    scene.client.delete_topic(name)
    scene.start(2)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.kill(2)


def _moving(scene: Scene) -> None:
    """Begins to move a topic from brokers 1 and 2 to brokers 3 and 2, slowly."""
    scene.create(replicas=(1, 2))
    scene.write()
    scene.commit()
    scene.reassign("execute", (3, 2), *_THROTTLE)


def _moved(scene: Scene) -> None:
    """Waits for the end of a move, whose throttle is lifted."""
    scene.start_all()
    scene.reassign("execute", (3, 2), "--wait", "--timeout", "60")
    scene.reassign("verify", (3, 2))


@OPERATIONS("reassignment-target-killed", "a reassignment whose target is killed and started again")
def reassignment_target_killed(scene: Scene) -> None:
    _moving(scene)
    scene.kill(3)
    scene.write(90)
    scene.start(3)
    _moved(scene)


@OPERATIONS("reassignment-leader-killed", "a reassignment whose leader is killed and started again")
def reassignment_leader_killed(scene: Scene) -> None:
    _moving(scene)
    scene.kill(VICTIM)
    scene.start(VICTIM)
    scene.write(90)
    _moved(scene)


@OPERATIONS("reassignment-all-killed", "a reassignment through a kill of all brokers")
def reassignment_all_killed(scene: Scene) -> None:
    _moving(scene)
    scene.kill(*scene.cluster.nodes)
    _moved(scene)


@OPERATIONS("reassignment-cancelled", "a reassignment that is cancelled while its target is down")
def reassignment_cancelled(scene: Scene) -> None:
    _moving(scene)
    scene.kill(3)
    # The throttle of a broker that is down cannot be lifted: the command fails, though the move is cancelled.
    scene.reassign("cancel", (3, 2), tolerant=True)
    scene.write(90)
    scene.start_all()
    scene.reassign("cancel", (3, 2))


def _filled(scene: Scene, *nodes: int) -> None:
    _written(scene)
    for node in nodes:
        scene.cluster.fill_disk(node)
    scene.write(300)
    scene.watch(2)
    for node in nodes:
        scene.cluster.free_disk(node)


@OPERATIONS("disk-full-follower", "a follower's disk full for a while", shape=_SMALL_DISKS)
def disk_full_follower(scene: Scene) -> None:
    _filled(scene, 2)


@OPERATIONS("disk-full-leader", "the leader's disk full for a while", shape=_SMALL_DISKS)
def disk_full_leader(scene: Scene) -> None:
    _filled(scene, VICTIM)


@OPERATIONS("disk-full-two", "two brokers' disks full for a while", shape=_SMALL_DISKS)
def disk_full_two(scene: Scene) -> None:
    _filled(scene, VICTIM, 2)


@OPERATIONS("rolling-restart", "brokers restarted one after the other under writes")
def rolling_restart(scene: Scene) -> None:
    _written(scene)
    with scene.writing():
        for node in scene.cluster.nodes:
            scene.roll(node)


@OPERATIONS("rolling-kill", "brokers killed and started one after the other under writes")
def rolling_kill(scene: Scene) -> None:
    _written(scene)
    with scene.writing():
        for node in scene.cluster.nodes:
            scene.kill(node)
            scene.start(node)
            scene.wait_whole(scene.cluster.system.whole_s)


@OPERATIONS("all-killed", "all brokers killed at the same moment under writes")
def all_killed(scene: Scene) -> None:
    _written(scene)
    with scene.writing():
        scene.watch(0.5)
        scene.kill(*scene.cluster.nodes)
        scene.start_all()


@OPERATIONS(
    "metadata-diverged", "a bit flipped in one broker's memory of the metadata", systems=("penstock",)
)
def metadata_diverged(scene: Scene) -> None:
    """The runbook's action is a restart, after which the controller says that the metadata agrees."""
    scene.cluster.spoil_memory(2)
    _written(scene)
    scene.expect_logged("metadata_diverged", 2)
    scene.expect_logged("broker_metadata_diverged")
    scene.cluster.mend_memory(2)
    scene.roll(2)
    scene.expect_logged("broker_metadata_agrees")


@OPERATIONS(
    "replica-set-aside",
    "an operator has given up a disk and elected an older replica; the disk is back",
    systems=("penstock",),
)
def replica_set_aside(scene: Scene) -> None:
    """Records that only the lost disk has are unavailable; when the disk is back, none of them is deleted."""
    scene.create(replicas=(VICTIM, 2), configs={"min.insync.replicas": "1"})
    scene.write(300)
    on_both = set(scene.client.ledger.acknowledged)
    scene.kill(2)
    scene.wait_out_of_sync(2)
    scene.write(90)
    scene.kill(VICTIM)
    scene.start(2)
    scene.cluster.wait_ready(scene.cluster.system.whole_s)
    config = ("--topic", scene.topic, "--bootstrap", scene.cluster.address(2))
    scene.penstock("config", "set", *config, "unclean.recovery.strategy=aggressive")
    scene.settle()
    scene.penstock("config", "unset", *config, "unclean.recovery.strategy")
    ledger = scene.client.ledger.acknowledged
    given_up = {place: value for place, value in ledger.items() if place not in on_both}
    scene.give_up(given_up)
    # Its next sequence number would follow records that are no longer there.
    scene.client.restart_producer()
    scene.start(VICTIM)
    scene.expect_logged("replica_set_aside", VICTIM)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.expect_in_quarantine(given_up, VICTIM)
