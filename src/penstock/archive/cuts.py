"""Cuts: moments that can be restored, and the transactions around them.

A cut names a manifest of each partition by number and SHA-256, and the end of the partition at that moment.
Group offsets are read before the ends, so that no offset lies behind the restored data.

Partitions end at slightly different times, so a transaction may be decided in one partition and open in
another. `resolve` decides each of them the same way in all partitions: it commits a transaction whose records
are all below the ends, and otherwise aborts it, also where its commit marker is below the end already
(`aborted_markers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.archive.documents import Document
from penstock.model.ids import TopicPartition

__all__ = [
    "Cut",
    "CutAcl",
    "CutEntity",
    "CutGroup",
    "CutOffset",
    "CutPartition",
    "CutQuota",
    "CutTopic",
    "Decision",
    "Marker",
    "PartitionTransactions",
    "newest_at",
    "resolve",
]


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction without a marker below the end: a restore writes one, commit or abort."""

    producer_id: int
    producer_epoch: int
    committed: bool = False


class CutPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: number and SHA-256 of the manifest of the writer "backup"
    manifest: int
    sha256: str
    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    open: tuple[OpenTransaction, ...] = ()
    #: offsets of commit markers that a restore turns into abort markers
    aborted_markers: tuple[int, ...] = ()


class CutTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: str
    replication_factor: int
    #: configs that differ from the defaults of the cluster
    configs: dict[str, str] = {}
    partitions: tuple[CutPartition, ...]


class CutOffset(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    metadata: str = ""


class CutGroup(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    offsets: tuple[CutOffset, ...]


class CutAcl(msgspec.Struct, frozen=True, kw_only=True):
    """An ACL; types and operations have the numbers of Kafka's protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CutEntity(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a quota is for; the name None is the default of its type."""

    type: str
    name: str | None


class CutQuota(msgspec.Struct, frozen=True, kw_only=True):
    entity: tuple[CutEntity, ...]
    values: dict[str, float]


class Cut(Document, frozen=True, kw_only=True):
    """Topics and groups of a cluster at one moment."""

    KIND = "cut"

    kind: str = "cut"
    archive: str
    time_ms: int
    cluster_id: str
    topics: tuple[CutTopic, ...]
    groups: tuple[CutGroup, ...] = ()
    #: the start offsets of share groups
    share_groups: tuple[CutGroup, ...] = ()
    #: above the ids of all producers in the batches
    next_producer_id: int = 0
    #: None if the source has none to give: without an authorizer, or without the right to see them
    acls: tuple[CutAcl, ...] | None = None
    quotas: tuple[CutQuota, ...] | None = None


def newest_at(times_ms: Mapping[str, int], moment_ms: int | None) -> str | None:
    """The name of the newest cut at or before a moment, or of the newest one; None if there is none."""
    found = [(time, name) for name, time in times_ms.items() if moment_ms is None or time <= moment_ms]
    return max(found, default=(0, None))[1]


class Marker(NamedTuple):
    """The end of a transaction in a partition."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    timestamp: int


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions around the end of one partition."""

    end_offset: int
    #: producer id -> producer epoch, of transactions that are open at the end
    open: dict[int, int] = field(default_factory=dict)
    #: the latest markers below the end, and all markers that were found behind it
    markers: list[Marker] = field(default_factory=list)
    #: producer id -> the first offset behind the end of a transactional batch
    later: dict[int, int] = field(default_factory=dict)


class Decision(NamedTuple):
    """What a restore does with the transactions around the end of a partition."""

    #: producers whose open transaction is committed; all others are aborted
    committed: frozenset[int]
    #: offsets of commit markers below the end that become abort markers
    aborted_markers: tuple[int, ...]


def resolve(partitions: Mapping[TopicPartition, PartitionTransactions]) -> dict[TopicPartition, Decision]:
    """Decide all transactions around the ends, each the same way in all partitions."""
    committed: dict[TopicPartition, set[int]] = {key: set() for key in partitions}
    flipped: dict[TopicPartition, list[int]] = {key: [] for key in partitions}
    around = {pid for each in partitions.values() for pid in (*each.open, *each.later)}
    around |= {
        m.producer_id for each in partitions.values() for m in each.markers if m.offset >= each.end_offset
    }
    for producer_id in around:
        for transaction in _transactions(partitions, producer_id):
            if not next(iter(transaction.values())).committed:
                continue
            if _is_whole(partitions, transaction):
                for key, marker in transaction.items():
                    if marker.offset >= partitions[key].end_offset:
                        committed[key].add(producer_id)
            else:
                for key, marker in transaction.items():
                    if marker.offset < partitions[key].end_offset:
                        flipped[key].append(marker.offset)
    return {
        key: Decision(frozenset(committed[key] & each.open.keys()), tuple(sorted(flipped[key])))
        for key, each in partitions.items()
    }


def _transactions(
    partitions: Mapping[TopicPartition, PartitionTransactions], producer_id: int
) -> list[dict[TopicPartition, Marker]]:
    """The markers of each transaction of a producer.

    The transactions of a producer follow each other: the next one starts when the last has its marker in all
    its partitions. With `transaction.version` 2 each has an epoch of its own (KIP-890). Otherwise the time of
    the markers tells them apart, and a second marker in the same partition.
    """
    markers = sorted(
        (marker.producer_epoch, marker.timestamp, marker.offset, key, marker)
        for key, each in partitions.items()
        for marker in each.markers
        if marker.producer_id == producer_id
    )
    found: list[dict[TopicPartition, Marker]] = []
    epoch = None
    for *_, key, marker in markers:
        if (
            not found
            or marker.producer_epoch != epoch
            or key in found[-1]
            or next(iter(found[-1].values())).committed != marker.committed
        ):
            found.append({})
        found[-1][key] = marker
        epoch = marker.producer_epoch
    return found


def _is_whole(
    partitions: Mapping[TopicPartition, PartitionTransactions], transaction: Mapping[TopicPartition, Marker]
) -> bool:
    """Returns true if no record of a transaction lies behind the end of its partition."""
    for key, marker in transaction.items():
        first = partitions[key].later.get(marker.producer_id)
        if first is not None and first < marker.offset:
            return False
    return True
