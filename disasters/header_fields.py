"""Damage to the fields of a batch header that no checksum covers: leader epoch, base offset, magic byte.

The victim is damaged alone; the other replicas are sound. It stops last and starts first, or it is the only
one whose last leader epoch is high, so that it is elected if nothing contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.damage import batches, cut_batches, segments, set_base_offset, set_epoch, set_magic
from disasters.scene import VICTIM, Scene
from disasters.served import complain_about_gaps, complain_about_served

__all__ = ["FIELDS"]

FIELDS: Final = Catalogue()
#: enough batches for several segments of each partition
_RECORDS: Final = 1800
#: batches that the victim loses
_LOST: Final = 20
_SHIFT: Final = 200
#: the scrubber looks at segments that a read has found damaged within a minute
_REPAIR_S: Final = 75.0
_WITH: Final = 3


def _written(scene: Scene) -> None:
    scene.create()
    scene.write(_RECORDS)
    scene.commit()


def _raise_last_epoch(partition: Path) -> None:
    """Sets the lowest bit that is not set in the leader epoch of the last batch."""
    segment = [each for each in segments(partition) if each.stat().st_size][-1]
    position, header = batches(segment)[-1]
    set_epoch(segment, position, header.leader_epoch | (header.leader_epoch + 1))


def _lose_and_raise(scene: Scene) -> None:
    for partition in scene.disk().partitions(scene.topic):
        cut_batches(partition, _LOST)
        _raise_last_epoch(partition)


@FIELDS(
    "epoch-raised",
    "all killed; one loses 20 batches, and the leader epoch of its last batch is one bit higher",
    row=13,
)
def epoch_raised(scene: Scene) -> None:
    _written(scene)
    scene.kill(*scene.cluster.nodes)
    _lose_and_raise(scene)
    scene.start_all()


@FIELDS(
    "epoch-raised-to-led",
    "the same after leaders have changed without a write, so that the higher epoch has had a leader",
    row=13,
)
def epoch_raised_to_led(scene: Scene) -> None:
    _written(scene)
    scene.roll(VICTIM)
    scene.lead()
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.roll(VICTIM)
    scene.kill(*scene.cluster.nodes)
    _lose_and_raise(scene)
    scene.start_all()


def _middle(partition: Path) -> tuple[Path, int, int]:
    """Returns a batch in the middle of the oldest segment: file, position, leader epoch."""
    segment = segments(partition)[0]
    found = batches(segment)
    position, header = found[len(found) // 2]
    return segment, position, header.leader_epoch


@FIELDS(
    "epoch-raised-middle",
    "all killed; the leader epoch of a batch in the middle of a log is higher",
    row=13,
)
def epoch_raised_middle(scene: Scene) -> None:
    _written(scene)
    scene.kill(*scene.cluster.nodes)
    for partition in scene.disk().partitions(scene.topic):
        segment, position, epoch = _middle(partition)
        set_epoch(segment, position, epoch | (epoch + 1))
    scene.start_all()


@FIELDS("epoch-raised-newest", "all killed; leader epoch raised in the middle of the newest segment", row=13)
def epoch_raised_newest(scene: Scene) -> None:
    _written(scene)
    scene.kill(*scene.cluster.nodes)
    for partition in scene.disk().partitions(scene.topic):
        segment = [each for each in segments(partition) if len(batches(each)) > 2][-1]
        position, header = batches(segment)[-2]
        set_epoch(segment, position, header.leader_epoch | (header.leader_epoch + 1))
    scene.start_all()


@FIELDS(
    "epoch-checkpoint-raised",
    "all killed; one loses 20 batches, and its leader-epoch-checkpoint has a higher epoch",
    row=13,
)
def epoch_checkpoint_raised(scene: Scene) -> None:
    _written(scene)
    scene.kill(*scene.cluster.nodes)
    for partition in scene.disk().partitions(scene.topic):
        cut_batches(partition, _LOST)
        end = [batches(each)[-1] for each in segments(partition) if each.stat().st_size][-1][1]
        # Kafka's format, without a checksum: both kinds of broker read it.
        content = f"0\n2\n0 0\n{end.leader_epoch + 1} {end.base_offset}\n"
        (partition / "leader-epoch-checkpoint").write_text(content)
    scene.start_all()


def _sealed(partition: Path) -> Path:
    return segments(partition)[0]


def _active(partition: Path) -> Path:
    return [each for each in segments(partition) if len(batches(each)) > 2][-1]


def _shift(segment: Path) -> None:
    found = batches(segment)
    position, header = found[len(found) // 2]
    set_base_offset(segment, position, header.base_offset + _SHIFT)


def _flip_magic(segment: Path) -> None:
    found = batches(segment)
    position, header = found[len(found) // 2]
    set_magic(segment, position, header.magic ^ 0x10)


def _damage_next_leader(
    scene: Scene, choose: Callable[[Path], Path], damage: Callable[[Path], None], *, kill: bool = False
) -> None:
    """Damages the broker that leads next, has everything read, and gives the scrubber its minute."""
    _written(scene)
    if kill:
        scene.kill(*scene.cluster.nodes)
    else:
        scene.stop_all()
    for partition in scene.disk().partitions(scene.topic):
        damage(choose(partition))
    scene.start_first(VICTIM, _WITH)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()
    complain_about_gaps(scene, complain_about_served(scene))
    scene.watch(_REPAIR_S)


@FIELDS("offset-raised-sealed", "base offset of a batch raised by 200 in a sealed segment", row=14)
def offset_raised_sealed(scene: Scene) -> None:
    _damage_next_leader(scene, _sealed, _shift)


@FIELDS("offset-raised-active", "base offset of a batch raised by 200 in the newest segment", row=14)
def offset_raised_active(scene: Scene) -> None:
    _damage_next_leader(scene, _active, _shift)


@FIELDS("offset-raised-killed", "all killed; base offset raised by 200 in a sealed segment", row=14)
def offset_raised_killed(scene: Scene) -> None:
    _damage_next_leader(scene, _sealed, _shift, kill=True)


@FIELDS("magic-flipped-sealed", "magic byte of a batch changed in a sealed segment", row=14)
def magic_flipped_sealed(scene: Scene) -> None:
    _damage_next_leader(scene, _sealed, _flip_magic)


@FIELDS("magic-flipped-active", "magic byte of a batch changed in the newest segment", row=14)
def magic_flipped_active(scene: Scene) -> None:
    _damage_next_leader(scene, _active, _flip_magic)
