"""A topic that was deleted and created again, and an older file with the log starts of its first life.

DeleteRecords has moved the log starts before the topic was deleted. The topic of the same name starts at
offset 0: with a log start of the deleted one, its first records cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.scene import VICTIM, Scene

__all__ = ["RECREATED"]

RECREATED: Final = Catalogue()
_WITH: Final = 3
_CHECKPOINT: Final = "log-start-offset-checkpoint"
#: of 300 records in each partition
_DELETED: Final = 250


def _created_again(scene: Scene) -> Mapping[Path, bytes]:
    """Deletes the topic and creates it again; returns the files with the log starts of the deleted one."""
    scene.create()
    scene.write()
    scene.commit()
    scene.client.delete_records(scene.topic, _DELETED)
    scene.stop_all()
    older = {file: file.read_bytes() for file in scene.disk().files(_CHECKPOINT)}
    scene.start_all()
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.forget(scene.topic)
    scene.client.delete_topic(scene.topic)
    scene.create()
    # Sequences of the deleted topic are not what this is about.
    scene.client.restart_producer()
    written = scene.write()
    assert written, "no record of the new topic was acknowledged"
    scene.commit()
    return older


def _put_back(older: Mapping[Path, bytes]) -> None:
    for file, content in older.items():
        file.write_bytes(content)


@RECREATED(
    "log-starts-of-deleted-topic",
    "topic created again after its records and it were deleted, older log-start-offset-checkpoint put back",
    row=23,
)
def log_starts_of_deleted_topic(scene: Scene) -> None:
    older = _created_again(scene)
    scene.stop_all()
    _put_back(older)
    scene.start_first(VICTIM, _WITH)


@RECREATED("log-starts-of-deleted-killed", "the same after all brokers were killed", row=23)
def log_starts_of_deleted_killed(scene: Scene) -> None:
    older = _created_again(scene)
    scene.kill(*scene.cluster.nodes)
    _put_back(older)
    scene.start_first(VICTIM, _WITH)


@RECREATED(
    "log-starts-of-deleted-single",
    "the same on a single broker that was stopped cleanly",
    row=23,
    shape=Shape(brokers=1),
)
def log_starts_of_deleted_single(scene: Scene) -> None:
    older = _created_again(scene)
    scene.stop_all()
    _put_back(older)
    scene.start_all()
