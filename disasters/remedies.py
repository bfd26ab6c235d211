"""Documented actions after the metadata was damaged or lost, as the runbook (docs/cluster.md) has them."""

from __future__ import annotations

from disasters.layout import METADATA
from disasters.scene import VICTIM, Scene

__all__ = ["recover_quorum", "restore_metadata"]


def restore_metadata(scene: Scene) -> None:
    """Restores the victim's metadata log from a backup, as the error message of the broker advises."""
    scene.stop(*scene.cluster.running)
    scene.disk().restore_topic(scene.kept(VICTIM, "backup"), METADATA)
    scene.start()


def recover_quorum(scene: Scene, survivor: int) -> None:
    """Recovers the quorum from one node's metadata; the other nodes rejoin, as in the runbook."""
    if scene.cluster.system.name != "penstock":
        return
    scene.stop(*scene.cluster.running)
    for node in scene.cluster.nodes:
        command = "recover" if node == survivor else "rejoin"
        directories = map(str, scene.disk(node).directories)
        scene.penstock("quorum", command, *directories, "--yes")
    scene.start(survivor)
    scene.cluster.wait_ready(scene.cluster.system.whole_s)
    scene.start()
