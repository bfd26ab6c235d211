"""The files of the metadata quorum: votes that are rolled back, lost or exchanged, and damaged logs.

The metadata log and its `quorum-state` are all that is touched: no record of a topic is. All brokers are
stopped cleanly, and all come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.damage import cut_tail, flip_bit, segments, swap
from disasters.remedies import recover_quorum
from disasters.scene import Scene
from penstock.raft.control import whole_batches

__all__ = ["QUORUM"]

QUORUM: Final = Catalogue()
_VOTERS: Final = (1, 2, 3)
#: longer than the 60 s after which a broker of Kafka gives up
_LATE_S: Final = 70.0
#: into a batch: the first bytes after its header
_PAYLOAD: Final = 70
_SNAPSHOTS: Final = Shape(settings={"metadata.log.max.record.bytes.between.snapshots": "3000"})


def _vote(scene: Scene, node: int) -> Path:
    return scene.disk(node).metadata_log() / "quorum-state"


def _with_older_votes(scene: Scene) -> Mapping[int, bytes]:
    """Writes, and stops in a later epoch than that of the quorum states that are returned."""
    scene.create()
    scene.write()
    scene.commit()
    scene.stop_all()
    older = {node: _vote(scene, node).read_bytes() for node in _VOTERS}
    scene.start_all()
    scene.write()
    scene.stop_all()
    return older


def _roll_back(scene: Scene, *nodes: int) -> None:
    older = _with_older_votes(scene)
    for node in nodes:
        _vote(scene, node).write_bytes(older[node])
    scene.start_all()


@QUORUM("votes-rolled-back-one", "quorum-state of one voter of three rolled back")
def votes_rolled_back_one(scene: Scene) -> None:
    _roll_back(scene, 2)


@QUORUM("votes-rolled-back-two", "quorum-state of two voters of three rolled back", row=19)
def votes_rolled_back_two(scene: Scene) -> None:
    _roll_back(scene, 1, 2)


@QUORUM("votes-rolled-back-all", "quorum-state of all voters rolled back", row=19)
def votes_rolled_back_all(scene: Scene) -> None:
    _roll_back(scene, *_VOTERS)


@QUORUM("votes-lost-two", "quorum-state of one voter removed, of another one rolled back", row=19)
def votes_lost_two(scene: Scene) -> None:
    older = _with_older_votes(scene)
    _vote(scene, 1).unlink()
    _vote(scene, 2).write_bytes(older[2])
    scene.start_all()


@QUORUM("votes-exchanged", "quorum-state of two voters exchanged")
def votes_exchanged(scene: Scene) -> None:
    _with_older_votes(scene)
    swap(_vote(scene, 1), _vote(scene, 2))
    scene.start_all()


@QUORUM(
    "metadata-flip-three",
    "one bit of the metadata log flipped on all three voters, each in another record",
    row=20,
    remedy=lambda scene: recover_quorum(scene, *_VOTERS),
)
def metadata_flip_three(scene: Scene) -> None:
    _with_older_votes(scene)
    system = scene.cluster.system
    for node in _VOTERS:
        segment = segments(scene.disk(node).metadata_log())[0]
        starts = [0]
        for _, batch in whole_batches(system.read(segment)):
            starts.append(starts[-1] + len(batch))
        flip_bit(segment, system.position(segment, starts[2 + 3 * node] + _PAYLOAD))
    scene.start_all()


@QUORUM(
    "voters-meet-late",
    "metadata log of one voter cut, another one behind; the complete one starts 70 s later",
    row=21,
)
def voters_meet_late(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()
    scene.stop(2)
    newer = scene.create(f"{scene.topic}-newer", replicas=(1, 3))
    scene.write(topic=newer)
    scene.stop_all(last=3)
    cut_tail(scene.disk(1).metadata_log(), 300)
    scene.start(1, 2)
    scene.watch(_LATE_S)
    scene.start(3)


@QUORUM("metadata-snapshot-flip", "one bit of the metadata snapshot flipped on one voter", shape=_SNAPSHOTS)
def metadata_snapshot_flip(scene: Scene) -> None:
    _with_older_votes(scene)
    (snapshot,) = sorted(scene.disk(2).metadata_log().glob("*.checkpoint"))[-1:]
    flip_bit(snapshot, snapshot.stat().st_size // 2)
    scene.start_all()
