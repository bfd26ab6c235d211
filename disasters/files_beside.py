"""Files beside the log that are lost, zeroed, older or of another partition, on the broker that leads next.

Transaction indexes and producer snapshots decide which records a `read_committed` consumer gets. A segment
of another partition has right checksums and right offsets. The other replicas are sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.damage import segments, swap
from disasters.scene import VICTIM, Scene
from disasters.served import complain_about_gaps, complain_about_served
from disasters.transactions import Transactions

__all__ = ["BESIDE"]

BESIDE: Final = Catalogue()
_TRANSACTIONAL: Final = Shape(settings={"transaction.state.log.num.partitions": "3"})
_TRANSACTIONS: Final = 40
#: of these transactions one is aborted
_ABORTED_EVERY: Final = 5
#: of each transaction; 20 in each partition
_RECORDS: Final = 60
#: enough batches for several segments of each partition
_PLAIN_RECORDS: Final = 1800
#: the scrubber looks at segments that a read has found damaged within a minute
_REPAIR_S: Final = 75.0
_WITH: Final = 3


def _with_transactions(scene: Scene) -> Transactions:
    """Writes transactions, of which some are aborted, over several segments."""
    scene.create()
    transactions = Transactions(scene.client, scene.topic)
    for number in range(_TRANSACTIONS):
        if number % _ABORTED_EVERY:
            transactions.commit(_RECORDS)
        else:
            transactions.abort(_RECORDS)
    return transactions


def _sealed_indexes(scene: Scene) -> list[Path]:
    """The transaction indexes of the victim's sealed segments; at least one has to have content."""
    found = [
        index
        for partition in scene.disk().partitions(scene.topic)
        for segment in segments(partition)[:-1]
        if (index := segment.with_suffix(".txnindex")).exists() and index.stat().st_size
    ]
    assert found, "no sealed segment has a transaction index"
    return found


def _lead_and_read(scene: Scene) -> None:
    """Has the victim lead, and a consumer read everything from it."""
    scene.start_first(VICTIM, _WITH)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()
    read = complain_about_served(scene)
    if missing := len(scene.client.ledger.acknowledged.keys() - read.keys()):
        scene.complaints.append(f"{missing} committed records were not served")


@BESIDE(
    "txnindex-removed",
    "all killed; transaction indexes of sealed segments removed on the broker that leads next",
    row=15,
    shape=_TRANSACTIONAL,
)
def txnindex_removed(scene: Scene) -> None:
    _with_transactions(scene)
    scene.kill(*scene.cluster.nodes)
    for index in _sealed_indexes(scene):
        index.unlink()
    _lead_and_read(scene)


@BESIDE(
    "txnindex-removed-stopped",
    "the same after a clean stop",
    row=15,
    shape=_TRANSACTIONAL,
)
def txnindex_removed_stopped(scene: Scene) -> None:
    _with_transactions(scene)
    scene.stop_all()
    for index in _sealed_indexes(scene):
        index.unlink()
    _lead_and_read(scene)


@BESIDE(
    "txnindex-zeroed",
    "transaction indexes of sealed segments overwritten with zeros on the broker that stopped last",
    row=15,
    shape=_TRANSACTIONAL,
)
def txnindex_zeroed(scene: Scene) -> None:
    _with_transactions(scene)
    scene.stop_all()
    for index in _sealed_indexes(scene):
        index.write_bytes(bytes(index.stat().st_size))
    _lead_and_read(scene)


def _newest_snapshot(partition: Path) -> Path:
    return max(partition.glob("*.snapshot"))


@BESIDE(
    "producer-snapshots-older",
    "producer snapshots replaced by older ones while a transaction is open, which is aborted later",
    row=16,
    shape=_TRANSACTIONAL,
)
def producer_snapshots_older(scene: Scene) -> None:
    transactions = _with_transactions(scene)
    scene.stop_all()
    partitions = scene.disk().partitions(scene.topic)
    older = [_newest_snapshot(partition).read_bytes() for partition in partitions]
    scene.start_all()
    scene.wait_whole(scene.cluster.system.whole_s)
    transactions.open(_RECORDS)
    scene.stop_all()
    for partition, content in zip(partitions, older, strict=True):
        _newest_snapshot(partition).write_bytes(content)
    _lead_and_read(scene)
    transactions.abort_open()


@BESIDE(
    "producer-snapshots-exchanged",
    "producer snapshots exchanged between partitions, and an idempotent producer that goes on",
    row=16,
)
def producer_snapshots_exchanged(scene: Scene) -> None:
    scene.create()
    scene.write()
    scene.commit()
    scene.stop_all()
    _exchange_snapshots(scene)
    scene.start_first(VICTIM, _WITH)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()
    # The producer goes on with the sequence that the brokers have to know.
    scene.write(_PLAIN_RECORDS)
    complain_about_gaps(scene, complain_about_served(scene))


@BESIDE(
    "producer-snapshots-exchanged-open",
    "the same while a transaction is open, which is aborted later",
    row=16,
    shape=_TRANSACTIONAL,
)
def producer_snapshots_exchanged_open(scene: Scene) -> None:
    transactions = _with_transactions(scene)
    transactions.open(_RECORDS)
    scene.stop_all()
    _exchange_snapshots(scene)
    _lead_and_read(scene)
    transactions.abort_open()
    transactions.commit(_RECORDS)


def _exchange_snapshots(scene: Scene) -> None:
    """Gives each partition the newest snapshot of the next one."""
    newest = [_newest_snapshot(partition) for partition in scene.disk().partitions(scene.topic)]
    contents = [file.read_bytes() for file in newest]
    for file, content in zip(newest, [*contents[1:], contents[0]], strict=True):
        file.write_bytes(content)


def _pairs(partitions: Sequence[Path]) -> list[tuple[Path, Path]]:
    """The sealed segments of the first two partitions that have the same name and size."""
    one, other = ({segment.name: segment for segment in segments(p)[:-1]} for p in partitions[:2])
    found = [
        (one[name], other[name])
        for name in one.keys() & other.keys()
        if one[name].stat().st_size == other[name].stat().st_size
    ]
    assert found, "no two segments have the same name and size"
    return found


def _exchange_segments(scene: Scene, *suffixes: str) -> None:
    scene.create()
    scene.write(_PLAIN_RECORDS)
    scene.commit()
    scene.stop_all()
    for one, other in _pairs(scene.disk().partitions(scene.topic)):
        for suffix in suffixes:
            swap(one.with_suffix(suffix), other.with_suffix(suffix))
    scene.start_first(VICTIM, _WITH)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()
    complain_about_gaps(scene, complain_about_served(scene))
    scene.watch(_REPAIR_S)


@BESIDE(
    "segments-exchanged",
    "sealed segments of equal name and size exchanged between two partitions of the broker that stopped last",
    row=17,
)
def segments_exchanged(scene: Scene) -> None:
    _exchange_segments(scene, ".log")


@BESIDE("segments-exchanged-whole", "the same with the indexes of these segments", row=17)
def segments_exchanged_whole(scene: Scene) -> None:
    _exchange_segments(scene, ".log", ".index", ".timeindex")


@BESIDE(
    "segments-exchanged-sealed",
    "the same with all files of these segments, also the seals",
    row=17,
    systems=("penstock",),
)
def segments_exchanged_sealed(scene: Scene) -> None:
    _exchange_segments(scene, ".log", ".index", ".timeindex", ".seal")
