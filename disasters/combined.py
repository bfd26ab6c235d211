"""Several disasters during one stop, each on a topic of its own, to save time in `make test`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.damage import cut_tail, remove_files, remove_segment, segments, swap
from disasters.scene import VICTIM, Scene

__all__ = ["COMBINED"]

COMBINED: Final = Catalogue()
_RECORDS: Final = 450
_WITH: Final = 3
#: an election takes a tenth of it
_SETTLE_S: Final = 2.0
#: so that few records make several segments
_SEGMENT_BYTES: Final = "8192"


def _write(scene: Scene, kinds: Mapping[str, object]) -> None:
    for kind in kinds:
        name = f"{scene.topic}-{kind}"
        scene.create(name, configs={"internal.segment.bytes": _SEGMENT_BYTES}, wait=False)
    scene.wait_whole(scene.cluster.system.whole_s)
    for topic in scene.topics:
        scene.write(_RECORDS, topic)
    scene.commit(f"{scene.topic}-{next(iter(kinds))}")
    scene.wait_whole(scene.cluster.system.whole_s)


def _damage(scene: Scene, kinds: Mapping[str, Callable[[Path], object]]) -> None:
    """Does the damage that each topic is named after to all its partitions."""
    for kind, damage in kinds.items():
        for partition in scene.disk().partitions(f"{scene.topic}-{kind}"):
            damage(partition)


def _remove_middle(partition: Path) -> None:
    found = segments(partition)
    assert len(found) > 2, f"{partition} has no middle segment"
    remove_segment(found[1])


@COMBINED("files-removed", "indexes, epochs, producer snapshots and checkpoints removed at once")
def files_removed(scene: Scene) -> None:
    _write(scene, {"one": None, "two": None})
    scene.stop_all()
    for topic in scene.topics:
        remove_files(
            scene.disk().partitions(topic),
            "*.index",
            "*.timeindex",
            "*.snapshot",
            "leader-epoch-checkpoint",
        )
    for node in scene.cluster.nodes:
        remove_files(list(scene.disk(node).directories), "*-offset-checkpoint")
    scene.start_first(VICTIM, _WITH, settle_s=_SETTLE_S)


_STOPPED: Final[Mapping[str, Callable[[Path], object]]] = {
    "top": lambda partition: remove_segment(segments(partition)[-1]),
    "middle": _remove_middle,
    "first": lambda partition: remove_segment(segments(partition)[0]),
    "foreign": lambda partition: (partition / "99.log").write_bytes(b"not a segment\n"),
}


@COMBINED("damage-stopped", "rows 1, 2, 5, 6, 10 and 11 at once on the broker that stopped last")
def damage_stopped(scene: Scene) -> None:
    _write(scene, {**_STOPPED, "removed": None, "swapped": None})
    scene.stop_all()
    _damage(scene, _STOPPED)
    disk = scene.disk()
    disk.remove_topic(f"{scene.topic}-removed")
    swapped = f"{scene.topic}-swapped"
    swap(disk.partition(swapped, 0), disk.partition(swapped, 1))
    (disk.layout.topic_root(disk.directories[0]) / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    scene.start_first(VICTIM, _WITH, settle_s=_SETTLE_S)


_KILLED: Final[Mapping[str, Callable[[Path], object]]] = {
    "tail": lambda partition: cut_tail(partition, 4096),
    "top": lambda partition: remove_segment(segments(partition)[-1]),
}


@COMBINED("damage-killed", "row 4's variants at once: all killed in turn, the last one damaged")
def damage_killed(scene: Scene) -> None:
    _write(scene, {**_KILLED, "removed": None})
    scene.kill_in_turn()
    _damage(scene, _KILLED)
    scene.disk().remove_topic(f"{scene.topic}-removed")
    scene.start_first(2, 3, settle_s=_SETTLE_S)
