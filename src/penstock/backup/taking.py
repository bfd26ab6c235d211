"""Takes a cut of a cluster: copies all partitions, and writes the document that a restore starts from.

Order: group offsets first, then the ends of all partitions, then the copy up to these ends, then the
transactions around the ends. So no group offset lies behind the copied data, and no transaction is half there
(`penstock.archive.cuts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from penstock.archive.cuts import (
    Cut,
    CutGroup,
    CutOffset,
    CutPartition,
    CutTopic,
    Decision,
    OpenTransaction,
    PartitionTransactions,
    newest_at,
    resolve,
)
from penstock.archive.documents import Manifest, encode
from penstock.archive.names import ArchivedPartition, cut_name
from penstock.archive.objects import put_certain, read_document
from penstock.archive.sweeping import list_cuts
from penstock.archive.writing import SEGMENT_BYTES
from penstock.backup.copying import PartitionCopy
from penstock.backup.rights import read_acls, read_quotas
from penstock.backup.share_groups import read_share_groups
from penstock.backup.source import EARLIEST, LATEST, Cluster, SourceFailed, SourceTopic
from penstock.backup.source_groups import is_share_group, list_groups, read_configs, read_groups
from penstock.model.ids import TopicPartition, format_topic_id
from penstock.ports import Clock, ObjectStore, Rng

__all__ = ["Backup"]

#: partitions that are copied at a time: each has a segment in memory
_AT_ONCE: Final = 4
#: how often, and how long between, the markers of open transactions are looked for
_LOOKS: Final = 20
_LOOK_PAUSE_S: Final = 0.25
#: how often, and how long between, ends are read that lie below the offset of a group
_END_LOOKS: Final = 4
_END_PAUSE_S: Final = 0.25


class Backup:
    """Cuts of one cluster into one archive."""

    def __init__(
        self,
        cluster: Cluster,
        store: ObjectStore,
        archive: str,
        rng: Rng,
        clock: Clock,
        patterns: Sequence[str] = (),
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._archive = archive
        self._rng = rng
        self._clock = clock
        self._patterns = tuple(patterns)
        self._segment_bytes = segment_bytes
        self._copies: dict[ArchivedPartition, PartitionCopy] = {}
        #: above all producer ids of earlier cuts; None before the first cut of this process
        self._producer_ids_end: int | None = None

    async def take(self) -> tuple[str, Cut]:
        """Take a cut; returns its name and content. SourceFailed if the cluster does not play along."""
        cluster = self._cluster
        if self._producer_ids_end is None:
            await self._read_earlier()
        await cluster.refresh()
        topics = self._chosen()
        copies = self._copies_of(topics)
        listed = await list_groups(cluster)
        shares = {name for name, group in listed.items() if is_share_group(group)}
        groups = await read_groups(cluster, listed.keys() - shares)
        share_groups = await read_share_groups(cluster, shares)
        time_ms = self._clock.now_ms()
        configs = await read_configs(cluster, [topic.name for topic in topics]) if topics else {}
        acls, quotas = await read_acls(cluster), await read_quotas(cluster)
        keys = [copy.key for copy in copies]
        starts = await cluster.end_offsets(keys, EARLIEST)
        ends = await self._ends(keys, (*groups, *share_groups))
        manifests = await _copied(copies, configs, starts, ends)
        views = await self._transactions(copies)
        decisions = resolve(views)
        by_key = {copy.key: copy for copy in copies}
        cut = Cut(
            archive=self._archive,
            time_ms=time_ms,
            cluster_id=cluster.cluster_id,
            topics=tuple(
                _cut_topic(topic, configs[topic.name], by_key, manifests, views, decisions)
                for topic in topics
            ),
            groups=_within(groups, ends),
            share_groups=_within(share_groups, ends),
            next_producer_id=self._next_producer_id(copies),
            acls=acls,
            quotas=quotas,
        )
        name = cut_name(time_ms, self._rng.token(8))
        await put_certain(self._store, name, encode(cut))
        return name, cut

    async def _ends(
        self, keys: Sequence[TopicPartition], groups: Sequence[CutGroup]
    ) -> dict[TopicPartition, int]:
        """The ends of partitions. Those below an offset of a group are read again for a while.

        Why: a leader that was replaced and does not know it yet has an older end than what consumers of the
        next leader have read and committed.
        """
        for _ in range(_END_LOOKS):
            ends = await self._cluster.end_offsets(keys, LATEST)
            if _within(groups, ends) == tuple(groups):
                break
            await asyncio.sleep(_END_PAUSE_S)
            await self._cluster.refresh()
        return ends

    def _next_producer_id(self, copies: Sequence[PartitionCopy]) -> int:
        assert self._producer_ids_end is not None
        seen = max((copy.producer_id_max for copy in copies), default=-1) + 1
        self._producer_ids_end = max(self._producer_ids_end, seen)
        return self._producer_ids_end

    async def _read_earlier(self) -> None:
        """Take over the producer ids of the newest cut: this process has not seen the older batches."""
        newest = newest_at(await list_cuts(self._store), None)
        cut = None if newest is None else (await read_document(self._store, newest, Cut))[0]
        self._producer_ids_end = 0 if cut is None else cut.next_producer_id

    def _chosen(self) -> list[SourceTopic]:
        topics = sorted(self._cluster.topics.values())
        if not self._patterns:
            return topics
        for pattern in self._patterns:
            if not any(fnmatchcase(topic.name, pattern) for topic in topics):
                raise SourceFailed(f"the cluster has no topic {pattern}")
        return [each for each in topics if any(fnmatchcase(each.name, p) for p in self._patterns)]

    def _copies_of(self, topics: Sequence[SourceTopic]) -> list[PartitionCopy]:
        owners = [
            ArchivedPartition(topic.name, topic.topic_id, each.partition)
            for topic in topics
            for each in topic.partitions
        ]
        self._copies = {owner: self._copies.get(owner) or self._copy_of(owner) for owner in owners}
        return list(self._copies.values())

    def _copy_of(self, owner: ArchivedPartition) -> PartitionCopy:
        return PartitionCopy(
            self._cluster,
            self._store,
            self._archive,
            owner,
            self._rng,
            self._clock,
            self._segment_bytes,
        )

    async def _transactions(
        self, copies: Sequence[PartitionCopy]
    ) -> dict[TopicPartition, PartitionTransactions]:
        """The transactions around the ends. Markers of open transactions are waited for, for a while."""
        if not any(copy.has_transactions() for copy in copies):
            return {copy.key: copy.transactions() for copy in copies}
        for _ in range(_LOOKS):
            _, undecided = await self._look(copies)
            if not undecided:
                break
            await asyncio.sleep(_LOOK_PAUSE_S)
        # Once more, up to ends that are read after the markers were seen: a marker comes after all records of
        # its transaction, in whatever partition they are.
        views, undecided = await self._look(copies)
        for key, view in views.items():
            for marker in view.markers:
                if marker.offset >= view.end_offset and marker.committed and marker.producer_id in undecided:
                    raise SourceFailed(
                        f"the transaction of producer {marker.producer_id} is committed in {key}, and has no "
                        f"marker in another partition yet"
                    )
        return views

    async def _look(
        self, copies: Sequence[PartitionCopy]
    ) -> tuple[dict[TopicPartition, PartitionTransactions], set[int]]:
        """The transactions around the ends, and the producers of those that are not decided everywhere."""
        ends = await self._cluster.end_offsets([copy.key for copy in copies])
        views = {copy.key: copy.transactions() for copy in copies}
        undecided: set[int] = set()
        for copy in copies:
            undecided |= await copy.peek(views[copy.key], ends[copy.key])
        return views, undecided


def _within(groups: Sequence[CutGroup], ends: Mapping[TopicPartition, int]) -> tuple[CutGroup, ...]:
    """The groups with no offset behind the end of its partition.

    Clients may commit any offset. In a restored cluster, records that producers write below it would be
    skipped.
    """

    def within(each: CutOffset) -> CutOffset:
        end = ends.get(TopicPartition(each.topic, each.partition), each.offset)
        return each if each.offset <= end else msgspec.structs.replace(each, offset=end)

    return tuple(
        msgspec.structs.replace(group, offsets=tuple(map(within, group.offsets))) for group in groups
    )


async def _copied(
    copies: Sequence[PartitionCopy],
    configs: Mapping[str, Mapping[str, str]],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Manifest]:
    """Copy all partitions up to their ends, some at a time."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def copied(copy: PartitionCopy) -> Manifest:
        async with limit:
            own = configs[copy.key.topic]
            return await copy.copy_to(
                ends[copy.key],
                starts[copy.key],
                compacted="compact" in own.get("cleanup.policy", ""),
                tiered=own.get("remote.storage.enable") == "true",
            )

    manifests = await _all([copied(copy) for copy in copies])
    return dict(zip([copy.key for copy in copies], manifests, strict=True))


async def _all(copies: list[Coroutine[Any, Any, Manifest]]) -> list[Manifest]:
    """Run all, and raise the first error once all have ended: none goes on in the background."""
    results = await asyncio.gather(*copies, return_exceptions=True)
    manifests = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        manifests.append(result)
    return manifests


def _keys(topic: SourceTopic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


def _cut_topic(
    topic: SourceTopic,
    configs: dict[str, str],
    copies: Mapping[TopicPartition, PartitionCopy],
    manifests: Mapping[TopicPartition, Manifest],
    views: Mapping[TopicPartition, PartitionTransactions],
    decisions: Mapping[TopicPartition, Decision],
) -> CutTopic:
    return CutTopic(
        topic=topic.name,
        topic_id=format_topic_id(topic.topic_id),
        replication_factor=topic.replication_factor,
        configs=configs,
        partitions=tuple(
            _cut_partition(copies[key], manifests[key], views[key], decisions[key]) for key in _keys(topic)
        ),
    )


def _cut_partition(
    copy: PartitionCopy, manifest: Manifest, view: PartitionTransactions, decision: Decision
) -> CutPartition:
    return CutPartition(
        partition=copy.key.partition,
        manifest=manifest.number,
        sha256=copy.digest,
        log_start_offset=manifest.log_start_offset,
        end_offset=view.end_offset,
        last_stable_offset=copy.first_open(view.end_offset),
        open=tuple(
            OpenTransaction(
                producer_id=producer_id, producer_epoch=epoch, committed=producer_id in decision.committed
            )
            for producer_id, epoch in sorted(view.open.items())
        ),
        aborted_markers=decision.aborted_markers,
    )
