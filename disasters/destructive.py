"""The disasters that destroyed acknowledged records once, by row of their table, with their variants.

All brokers are stopped cleanly unless the sentence says otherwise. The victim stops last and starts first, so
that it is elected if the other brokers do not detect its damage.
"""

from __future__ import annotations

import os
from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.damage import cut_tail, flip_bit, remove_segment, segments, swap
from disasters.layout import OFFSETS
from disasters.remedies import recover_quorum, restore_metadata
from disasters.scene import VICTIM, Scene
from disasters.system import Conditions

__all__ = ["DESTRUCTIVE"]

DESTRUCTIVE: Final = Catalogue()
_DAY_MS: Final = 86_400_000
#: enough for several rounds of retention, which looks every second
_ROUNDS_S: Final = 6.0
#: with the victim these are a majority, and hold no replica that may lead instead
_WITH: Final = 3


def _written(scene: Scene, retention_ms: int | None = None) -> None:
    scene.create(configs={"retention.ms": str(retention_ms)} if retention_ms else {})
    scene.write()
    scene.commit()


def _stopped(scene: Scene, retention_ms: int | None = None) -> None:
    _written(scene, retention_ms)
    scene.stop_all()


@DESTRUCTIVE("topic-removed", "topic's folder removed on the broker that stopped last", row=1)
def topic_removed(scene: Scene) -> None:
    _stopped(scene)
    scene.disk().remove_topic(scene.topic)
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE("topic-removed-plain", "topic's folder removed on one broker, all started at once", row=1)
def topic_removed_plain(scene: Scene) -> None:
    _stopped(scene)
    scene.disk().remove_topic(scene.topic)
    scene.start_all()


@DESTRUCTIVE("offsets-removed", "__consumer_offsets removed on the broker that stopped last", row=1)
def offsets_removed(scene: Scene) -> None:
    _stopped(scene)
    scene.disk().remove_topic(OFFSETS)
    scene.start_first(VICTIM, _WITH)


def _roll_back(scene: Scene, topic: str) -> None:
    """Rolls the victim's replicas of a topic back to a clean copy that has half of the records."""
    _stopped(scene)
    older = scene.copy()
    scene.start_all()
    scene.write()
    scene.commit()
    scene.stop_all()
    scene.disk().restore_topic(older, topic)
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE("topic-rolled-back", "partition folders rolled back on the broker that stopped last", row=2)
def topic_rolled_back(scene: Scene) -> None:
    _roll_back(scene, scene.topic)


@DESTRUCTIVE("offsets-rolled-back", "__consumer_offsets rolled back on the broker that stopped last", row=2)
def offsets_rolled_back(scene: Scene) -> None:
    _roll_back(scene, OFFSETS)


@DESTRUCTIVE("segment-top", "newest segment of each partition removed on the broker that stopped last", row=2)
def segment_top(scene: Scene) -> None:
    _stopped(scene)
    for partition in scene.disk().partitions(scene.topic):
        remove_segment(segments(partition)[-1])
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE(
    "second-directory-rolled-back",
    "second of two data directories rolled back to an older clean copy",
    row=3,
    shape=Shape(directories=2),
)
def second_directory_rolled_back(scene: Scene) -> None:
    _stopped(scene)
    older = scene.copy()
    scene.start_all()
    scene.write()
    scene.commit()
    scene.stop_all()
    scene.disk().restore(older, number=1)
    scene.start_first(VICTIM, _WITH)


def _killed(scene: Scene) -> None:
    """Kills all brokers in turn, the victim last, which is then the last known leader."""
    _written(scene)
    scene.kill_in_turn()


@DESTRUCTIVE("killed-tail-lost", "all killed in turn, the last two lose 4 KB of each tail", row=4)
def killed_tail_lost(scene: Scene) -> None:
    _killed(scene)
    for node in (VICTIM, 2):
        for partition in scene.disk(node).partitions(scene.topic):
            cut_tail(partition, 4096)
    scene.start_first(2, 3)


@DESTRUCTIVE("killed-segment-lost", "all killed in turn, the last one loses its newest segments", row=4)
def killed_segment_lost(scene: Scene) -> None:
    _killed(scene)
    for partition in scene.disk().partitions(scene.topic):
        remove_segment(segments(partition)[-1])
    scene.start_first(2, 3)


@DESTRUCTIVE("killed-topic-lost", "all killed in turn, the last one loses the topic's folder", row=4)
def killed_topic_lost(scene: Scene) -> None:
    _killed(scene)
    scene.disk().remove_topic(scene.topic)
    scene.start_first(2, 3)


def _remove_middle(scene: Scene, node: int) -> None:
    for partition in scene.disk(node).partitions(scene.topic):
        found = segments(partition)
        assert len(found) > 2, f"{partition} has no middle segment"
        remove_segment(found[len(found) // 2])


@DESTRUCTIVE("segment-middle-leader", "middle segment removed on the broker that stopped last", row=5)
def segment_middle_leader(scene: Scene) -> None:
    _stopped(scene)
    _remove_middle(scene, VICTIM)
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE("segment-middle-follower", "middle segment removed on a follower, which leads later", row=5)
def segment_middle_follower(scene: Scene) -> None:
    _written(scene)
    scene.stop(VICTIM)
    scene.write(90)
    _remove_middle(scene, VICTIM)
    scene.start(VICTIM)


@DESTRUCTIVE("segment-first", "first segment removed on the broker that stopped last", row=6)
def segment_first(scene: Scene) -> None:
    _stopped(scene)
    for partition in scene.disk().partitions(scene.topic):
        remove_segment(segments(partition)[0])
    scene.start_first(VICTIM, _WITH)


def _flip_in_metadata(scene: Scene, node: int) -> None:
    """Flips one bit of the topic's name in the metadata log."""
    needle = scene.topic.encode()
    for segment in segments(scene.disk(node).metadata_log()):
        system = scene.cluster.system
        if (at := system.read(segment).find(needle)) >= 0:
            flip_bit(segment, system.position(segment, at))
            return
    raise AssertionError(f"the metadata log of broker {node} does not name {scene.topic}")


@DESTRUCTIVE(
    "metadata-flip-single",
    "one bit of the metadata log flipped, cluster of one",
    row=7,
    remedy=restore_metadata,
    shape=Shape(brokers=1),
)
def metadata_flip_single(scene: Scene) -> None:
    _stopped(scene)
    scene.copy(VICTIM, "backup")
    _flip_in_metadata(scene, VICTIM)
    scene.start()


@DESTRUCTIVE("metadata-flip-one", "one bit of the metadata log flipped on one voter of three", row=7)
def metadata_flip_one(scene: Scene) -> None:
    _stopped(scene)
    _flip_in_metadata(scene, VICTIM)
    scene.start_all()


@DESTRUCTIVE(
    "metadata-flip-two",
    "one bit of the metadata log flipped on two voters of three, started before the third",
    row=7,
    remedy=lambda scene: recover_quorum(scene, 3),
)
def metadata_flip_two(scene: Scene) -> None:
    _stopped(scene)
    for node in (1, 2):
        _flip_in_metadata(scene, node)
    scene.start_first(1, 2)


@DESTRUCTIVE("voter-wiped-beside-stale", "a wiped voter started together with a stale one", row=8)
def voter_wiped_beside_stale(scene: Scene) -> None:
    _written(scene)
    scene.stop(3)
    newer = scene.create(f"{scene.topic}-newer", replicas=(1, 2))
    scene.write(topic=newer)
    scene.stop_all()
    scene.cluster.wipe(2)
    scene.start_first(2, 3)


@DESTRUCTIVE(
    "voters-rolled-back",
    "two of three brokers rolled back, and started before the third",
    row=8,
    remedy=lambda scene: recover_quorum(scene, VICTIM),
)
def voters_rolled_back(scene: Scene) -> None:
    _stopped(scene)
    older = {node: scene.copy(node) for node in (2, 3)}
    scene.start_all()
    newer = scene.create(f"{scene.topic}-newer")
    scene.write()
    scene.write(topic=newer)
    scene.stop_all()
    for node, copy in older.items():
        scene.disk(node).restore(copy)
    scene.start_first(2, 3)


def _set_clock(scene: Scene, days: float) -> None:
    scene.cluster.conditions[VICTIM] = Conditions(clock_ms=int(days * _DAY_MS))


def _start_with_clock(scene: Scene, days: float) -> None:
    _set_clock(scene, days)
    scene.start_first(VICTIM, _WITH)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()


@DESTRUCTIVE("clock-two-days-ahead", "a leader's clock two days ahead, retention of one day", row=9)
def clock_two_days_ahead(scene: Scene) -> None:
    _stopped(scene, retention_ms=_DAY_MS)
    _start_with_clock(scene, 2)
    scene.watch(_ROUNDS_S)


@DESTRUCTIVE("clock-eight-days-ahead", "a coordinator's clock eight days ahead", row=9)
def clock_eight_days_ahead(scene: Scene) -> None:
    _stopped(scene)
    _start_with_clock(scene, 8)
    scene.watch(_ROUNDS_S)


@DESTRUCTIVE("clock-two-days-behind", "a leader's clock two days behind", row=9)
def clock_two_days_behind(scene: Scene) -> None:
    _stopped(scene)
    _start_with_clock(scene, -2)


@DESTRUCTIVE(
    "partitions-swapped", "folders of partitions 0 and 1 swapped on the broker that stopped last", row=10
)
def partitions_swapped(scene: Scene) -> None:
    _stopped(scene)
    swap(scene.disk().partition(scene.topic, 0), scene.disk().partition(scene.topic, 1))
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE("partitions-swapped-follower", "folders of partitions 0 and 1 swapped on a follower", row=10)
def partitions_swapped_follower(scene: Scene) -> None:
    _written(scene)
    scene.stop(VICTIM)
    scene.write(90)
    swap(scene.disk().partition(scene.topic, 0), scene.disk().partition(scene.topic, 1))
    scene.start(VICTIM)


@DESTRUCTIVE(
    "topics-swapped", "partition folders of two topics swapped on the broker that stopped last", row=10
)
def topics_swapped(scene: Scene) -> None:
    _written(scene)
    other = scene.create(f"{scene.topic}-other")
    scene.write(450, other)
    scene.stop_all()
    swap(scene.disk().partition(scene.topic, 0), scene.disk().partition(other, 0))
    scene.start_first(VICTIM, _WITH)


@DESTRUCTIVE("foreign-file", ".DS_Store beside the topics", row=11)
def foreign_file(scene: Scene) -> None:
    _stopped(scene)
    for data in scene.disk().directories:
        (scene.disk().layout.topic_root(data) / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    scene.start_all()


@DESTRUCTIVE("foreign-segment", "a file 99.log in a partition", row=11)
def foreign_segment(scene: Scene) -> None:
    _stopped(scene)
    (scene.disk().partition(scene.topic, 0) / "99.log").write_bytes(b"not a segment\n")
    scene.start_all()


@DESTRUCTIVE("dangling-partition", "a dangling symlink as a partition that no topic has", row=11)
def dangling_partition(scene: Scene) -> None:
    _stopped(scene)
    os.symlink("/nowhere/to/be/found", scene.disk().partition(scene.topic, 9))
    scene.start_all()


def _unlink_partition(scene: Scene) -> None:
    if scene.cluster.runs(VICTIM):
        scene.stop(VICTIM)
    place = scene.disk().partition(scene.topic, 0)
    if place.is_symlink():
        place.unlink()
    scene.start(VICTIM)


@DESTRUCTIVE(
    "partition-unmounted",
    "a partition's folder is a symlink to a volume that is not mounted",
    row=11,
    remedy=_unlink_partition,
)
def partition_unmounted(scene: Scene) -> None:
    _stopped(scene)
    place = scene.disk().partition(scene.topic, 0)
    place.rename(scene.cluster.home(VICTIM) / "unmounted")
    place.symlink_to(scene.cluster.home(VICTIM) / "not-mounted")
    scene.start_first(VICTIM, _WITH)


def _few_descriptors(scene: Scene, limit: int) -> None:
    """Restarts the victim with fewer descriptors than its partitions have segment files."""
    scene.create(partitions=limit)
    scene.write(10 * limit)
    scene.commit()
    scene.stop_all()
    scene.cluster.conditions[VICTIM] = Conditions(descriptors_max=limit)
    scene.start_first(VICTIM, _WITH)


def _more_descriptors(scene: Scene) -> None:
    scene.cluster.conditions[VICTIM] = Conditions()
    if scene.cluster.runs(VICTIM):
        scene.stop(VICTIM)
    scene.start(VICTIM)


@DESTRUCTIVE(
    "descriptors-64",
    "64 file descriptors, 64 partitions",
    row=12,
    remedy=_more_descriptors,
)
def descriptors_64(scene: Scene) -> None:
    _few_descriptors(scene, 64)


@DESTRUCTIVE(
    "descriptors-128",
    "128 file descriptors, 128 partitions",
    row=12,
    remedy=_more_descriptors,
)
def descriptors_128(scene: Scene) -> None:
    _few_descriptors(scene, 128)
