"""Manifests of clean shutdowns that belong to another broker or were changed, and exchanged node ids."""

from __future__ import annotations

from typing import Final

from disasters.catalogue import Catalogue
from disasters.damage import swap
from disasters.scene import VICTIM, Scene
from penstock.storage.manifest import Manifest

__all__ = ["MANIFESTS"]

MANIFESTS: Final = Catalogue()
_WITH: Final = 3


def _stopped(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()
    scene.stop_all()


@MANIFESTS("manifests-exchanged", "marks of a clean shutdown of brokers 1 and 3 exchanged")
def manifests_exchanged(scene: Scene) -> None:
    """The first broker that stops, and the last one: Apache Kafka's second one may not end cleanly."""
    _stopped(scene)
    mark = scene.disk().layout.clean_shutdown
    one, other = (scene.disk(node).directories[0] / mark for node in (VICTIM, _WITH))
    assert one.exists(), f"broker {VICTIM} has not shut down cleanly"
    assert other.exists(), f"broker {_WITH} has not shut down cleanly"
    swap(one, other)
    scene.start_first(VICTIM, _WITH)


@MANIFESTS(
    "manifest-forged",
    "manifest of broker 2 on the broker that stopped last, made to fit its directory, with a sound checksum",
    systems=("penstock",),
)
def manifest_forged(scene: Scene) -> None:
    _stopped(scene)
    mark = scene.disk().layout.clean_shutdown
    own, other = (scene.disk(node).directories[0] / mark for node in (VICTIM, 2))
    stated, forged = (Manifest.decode(scene.cluster.system.read(path)) for path in (own, other))
    own.write_bytes(forged._replace(directory_id=stated.directory_id).encode())
    scene.start_first(VICTIM, _WITH)


def _restore_node_ids(scene: Scene) -> None:
    scene.stop(*scene.cluster.running)
    for node in (VICTIM, 2):
        scene.cluster.configure(node, "node.id", str(node))
    scene.start_all()


@MANIFESTS("node-ids-exchanged", "node ids of brokers 1 and 2 exchanged", remedy=_restore_node_ids)
def node_ids_exchanged(scene: Scene) -> None:
    _stopped(scene)
    scene.cluster.configure(VICTIM, "node.id", "2")
    scene.cluster.configure(2, "node.id", str(VICTIM))
    scene.start_all()
