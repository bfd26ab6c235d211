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


def recover_quorum(scene: Scene, survivor: int, *merged: int) -> None:
    """Recovers the quorum on one node, with the metadata of `merged`; the others rejoin (the runbook)."""
    if scene.cluster.system.name != "penstock":
        return
    scene.stop(*scene.cluster.running)
    others = [node for node in scene.cluster.nodes if node != survivor]
    options = []
    for node in others:
        if node in merged:
            options += [option for path in scene.disk(node).directories for option in ("--with", str(path))]
        else:
            options += ["--without", str(node)]
    scene.penstock("quorum", "recover", *map(str, scene.disk(survivor).directories), "--yes", *options)
    for node in others:
        scene.penstock("quorum", "rejoin", *map(str, scene.disk(node).directories), "--yes")
    scene.start(survivor)
    scene.cluster.wait_ready(scene.cluster.system.whole_s)
    scene.start()
