"""Checks that consumers get right records while a damaged broker leads, before anything is repaired."""

from __future__ import annotations

from collections.abc import Mapping

from disasters.clients import Place
from disasters.scene import Scene

__all__ = ["complain_about_gaps", "complain_about_served"]


def complain_about_served(scene: Scene) -> Mapping[Place, bytes]:
    """Reads the scene's topic, and complains about records that no consumer may get; returns the records."""
    read = scene.client.read(scene.topic, scene.topics[scene.topic].partitions)
    acknowledged = scene.client.ledger.acknowledged
    if wrong := sum(acknowledged.get(place) != value for place, value in read.items()):
        scene.complaints.append(f"{wrong} records were served that do not belong there")
    return read


def complain_about_gaps(scene: Scene, read: Mapping[Place, bytes]) -> None:
    """Complains about offsets that a consumer did not get, in a topic without transactions."""
    for number in {place.partition for place in read}:
        offsets = sorted(place.offset for place in read if place.partition == number)
        if skipped := offsets[-1] - offsets[0] + 1 - len(offsets):
            scene.complaints.append(f"{skipped} records of partition {number} were skipped")
