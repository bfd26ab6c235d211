"""Disasters that have done no harm so far, and must not: clones, swaps, rollbacks, removed checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape, wait_until
from disasters.damage import remove_files, swap
from disasters.remedies import recover_quorum
from disasters.scene import VICTIM, Scene

__all__ = ["FILES"]

FILES: Final = Catalogue()
_TWO: Final = Shape(directories=2)
_WITH: Final = 3
_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


def _written(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()


def _stopped(scene: Scene) -> None:
    _written(scene)
    scene.stop_all()


def _restored(scene: Scene, *nodes: int) -> None:
    """Puts back the directories that a script kept, as the error message of the broker advises."""
    for node in nodes:
        if scene.cluster.runs(node):
            scene.stop(node)
        scene.disk(node).restore(scene.kept(node))
    scene.start()


@FILES(
    "clone-other-broker",
    "broker 2 started on a copy of broker 1's directory",
    remedy=lambda s: _restored(s, 2),
)
def clone_other_broker(scene: Scene) -> None:
    _stopped(scene)
    scene.copy(2)
    scene.disk(2).restore(scene.copy(1))
    scene.start_all()


@FILES("clone-started-twice", "a second process started on a running broker's directory")
def clone_started_twice(scene: Scene) -> None:
    _written(scene)
    twin = scene.cluster.twin(VICTIM)
    twin.launch()
    if not wait_until(lambda: not twin.runs(), 60):
        scene.complaints.append("a second process runs on the same directory")
        twin.kill()


@FILES("copied-after-kill", "a directory replaced by its own copy after all were killed")
def copied_after_kill(scene: Scene) -> None:
    _written(scene)
    scene.kill(*scene.cluster.nodes)
    scene.disk().restore(scene.copy())
    scene.start_all()


@FILES("stray-partition", "a copy of partition 0 as partition 7, which the topic does not have")
def stray_partition(scene: Scene) -> None:
    _stopped(scene)
    source = scene.disk().partition(scene.topic, 0)
    shutil.copytree(source, scene.disk().partition(scene.topic, 7))
    scene.start_first(VICTIM, _WITH)


@FILES("stray-topic", "a copy of the topic's folders under another name")
def stray_topic(scene: Scene) -> None:
    _stopped(scene)
    disk = scene.disk()
    for number in range(len(disk.partitions(scene.topic))):
        source = disk.partition(scene.topic, number)
        shutil.copytree(source, disk.partition(f"{scene.topic}-copy", number))
    scene.start_first(VICTIM, _WITH)


def _without_clone(scene: Scene) -> None:
    if scene.cluster.runs(VICTIM):
        scene.stop(VICTIM)
    clone = Path((scene.cluster.home(VICTIM) / "clone").read_text())
    shutil.rmtree(clone, ignore_errors=True)
    scene.start(VICTIM)


@FILES(
    "partition-in-two-directories",
    "an older copy of a partition in a broker's other data directory",
    shape=_TWO,
    remedy=_without_clone,
)
def partition_in_two_directories(scene: Scene) -> None:
    _stopped(scene)
    disk = scene.disk()
    source = disk.partition(scene.topic, 0)
    home = next(data for data in disk.directories if source.is_relative_to(data))
    other = next(data for data in disk.directories if data != home)
    clone = other / source.relative_to(home)
    shutil.copytree(source, clone)
    (scene.cluster.home(VICTIM) / "clone").write_text(str(clone))
    scene.start_first(VICTIM, _WITH)


@FILES("directories-reordered", "a broker's two data directories listed in the other order", shape=_TWO)
def directories_reordered(scene: Scene) -> None:
    _stopped(scene)
    listed = scene.disk().directories
    scene.cluster.configure(VICTIM, "log.dirs", ",".join(map(str, reversed(listed))))
    scene.start_first(VICTIM, _WITH)


@FILES("brokers-swapped", "directories of brokers 1 and 2 swapped", remedy=lambda s: _restored(s, 1, 2))
def brokers_swapped(scene: Scene) -> None:
    _stopped(scene)
    scene.copy(1)
    scene.copy(2)
    for one, other in zip(scene.disk(1).directories, scene.disk(2).directories, strict=True):
        swap(one, other)
    scene.start_all()


@FILES(
    "second-directories-swapped",
    "second data directories of brokers 1 and 2 swapped",
    shape=_TWO,
    remedy=lambda s: _restored(s, 1, 2),
)
def second_directories_swapped(scene: Scene) -> None:
    _stopped(scene)
    scene.copy(1)
    scene.copy(2)
    swap(scene.disk(1).directories[1], scene.disk(2).directories[1])
    scene.start_all()


@FILES("directories-exchanged", "contents of a broker's two data directories exchanged", shape=_TWO)
def directories_exchanged(scene: Scene) -> None:
    _stopped(scene)
    swap(*scene.disk().directories)
    scene.start_first(VICTIM, _WITH)


def _rolled_back(scene: Scene, node: int, *, kill: bool = False) -> None:
    """Rolls a broker's whole directory back to a clean copy that has half of the records."""
    _stopped(scene)
    older = scene.copy(node)
    scene.start_all()
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.write()
    scene.commit()
    if kill:
        scene.kill_in_turn()
    else:
        scene.stop_all()
    scene.disk(node).restore(older)


@FILES("follower-rolled-back", "whole directory of a follower rolled back to an older clean copy")
def follower_rolled_back(scene: Scene) -> None:
    _rolled_back(scene, 2)
    scene.start_all()


@FILES(
    "leader-rolled-back",
    "whole directory of the broker that stopped last rolled back",
    remedy=lambda s: recover_quorum(s, 2),
)
def leader_rolled_back(scene: Scene) -> None:
    _rolled_back(scene, VICTIM)
    scene.start_first(VICTIM, _WITH)


@FILES(
    "rolled-back-after-kill",
    "all killed in turn, the last one's whole directory rolled back",
    remedy=lambda s: recover_quorum(s, 2),
)
def rolled_back_after_kill(scene: Scene) -> None:
    _rolled_back(scene, VICTIM, kill=True)
    scene.start_all()


@FILES(
    "rolled-back-live-copy",
    "whole directory rolled back to a copy that was taken while the broker ran",
    remedy=lambda s: recover_quorum(s, 2),
)
def rolled_back_live_copy(scene: Scene) -> None:
    _written(scene)
    older = scene.copy()
    scene.write()
    scene.commit()
    scene.stop_all()
    scene.disk().restore(older)
    scene.start_first(VICTIM, _WITH)


@FILES("follower-wiped", "whole directory of a follower removed")
def follower_wiped(scene: Scene) -> None:
    _written(scene)
    scene.stop(2)
    scene.write(90)
    scene.cluster.wipe(2)
    scene.start(2)


@FILES("second-directory-missing", "second data directory not mounted, mounted a restart later", shape=_TWO)
def second_directory_missing(scene: Scene) -> None:
    _stopped(scene)
    second = scene.disk().directories[1]
    aside = second.with_name("unmounted")
    second.rename(aside)
    second.mkdir()
    scene.start_first(VICTIM, _WITH)
    scene.settle()
    if scene.cluster.runs(VICTIM):
        scene.stop(VICTIM)
    shutil.rmtree(second)
    aside.rename(second)
    scene.start(VICTIM)


@FILES("recovery-points-removed", "recovery-point-offset-checkpoint removed")
def recovery_points_removed(scene: Scene) -> None:
    _stopped(scene)
    remove_files(list(scene.disk().directories), _CHECKPOINTS[0])
    scene.start_first(VICTIM, _WITH)


@FILES("high-watermarks-removed", "replication-offset-checkpoint removed on all brokers")
def high_watermarks_removed(scene: Scene) -> None:
    _stopped(scene)
    for node in scene.cluster.nodes:
        remove_files(list(scene.disk(node).directories), _CHECKPOINTS[2])
    scene.start_first(VICTIM, _WITH)


@FILES("log-starts-removed", "log-start-offset-checkpoint removed after DeleteRecords")
def log_starts_removed(scene: Scene) -> None:
    _written(scene)
    scene.client.delete_records(scene.topic, 150)
    scene.stop_all()
    remove_files(list(scene.disk().directories), _CHECKPOINTS[1])
    scene.start_first(VICTIM, _WITH)


@FILES("epochs-removed", "leader-epoch-checkpoint of every partition removed")
def epochs_removed(scene: Scene) -> None:
    _stopped(scene)
    remove_files(scene.disk().partitions(scene.topic), "leader-epoch-checkpoint")
    scene.start_first(VICTIM, _WITH)


@FILES("indexes-removed", "all indexes of the topic removed")
def indexes_removed(scene: Scene) -> None:
    _stopped(scene)
    remove_files(scene.disk().partitions(scene.topic), "*.index", "*.timeindex")
    scene.start_first(VICTIM, _WITH)


@FILES("indexes-garbled", "all indexes of the topic overwritten with garbage")
def indexes_garbled(scene: Scene) -> None:
    _stopped(scene)
    for partition in scene.disk().partitions(scene.topic):
        for index in (*partition.glob("*.index"), *partition.glob("*.timeindex")):
            index.write_bytes(b"\xa5" * index.stat().st_size)
    scene.start_first(VICTIM, _WITH)


@FILES("producer-snapshots-removed", "all snapshots of idempotent producers removed")
def producer_snapshots_removed(scene: Scene) -> None:
    _stopped(scene)
    remove_files(scene.disk().partitions(scene.topic), "*.snapshot")
    scene.start_first(VICTIM, _WITH)


@FILES("clean-mark-removed", "the mark of a clean shutdown removed")
def clean_mark_removed(scene: Scene) -> None:
    _stopped(scene)
    remove_files(list(scene.disk().directories), scene.disk().layout.clean_shutdown)
    scene.start_first(VICTIM, _WITH)


@FILES("clean-mark-stale", "all killed; the last one has the mark of an earlier clean shutdown put back")
def clean_mark_stale(scene: Scene) -> None:
    _written(scene)
    # Alone: the last broker of a Kafka cluster has no controller left that lets it stop cleanly.
    scene.stop(VICTIM)
    mark = scene.disk().directories[0] / scene.disk().layout.clean_shutdown
    older = mark.read_bytes()
    scene.start_all()
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.write()
    scene.kill_in_turn()
    mark.write_bytes(older)
    scene.start_all()


@FILES("checkpoints-emptied", "all offset checkpoints of all brokers emptied")
def checkpoints_emptied(scene: Scene) -> None:
    _stopped(scene)
    for node in scene.cluster.nodes:
        for name in _CHECKPOINTS:
            for file in scene.disk(node).files(name):
                file.write_bytes(b"")
    scene.start_first(VICTIM, _WITH)


@FILES(
    "identity-removed", "the file that names a directory's owner removed", remedy=lambda s: _restored(s, 1)
)
def identity_removed(scene: Scene) -> None:
    _stopped(scene)
    scene.copy(1)
    remove_files(list(scene.disk().directories), scene.disk().layout.identity)
    scene.start_all()
