"""The share partitions of a share group: creation and deletion of their state in the share coordinator.

The group coordinator records which share partitions are being created (`initializing`), exist
(`initialized`), or are being deleted (`deleting`). An effect sends the request to the share coordinator. Its
response comes back as an event. A creation without an answer is repeated after a time: it is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.groups.assignors import Assignment
from penstock.groups.ledger import GroupLedger
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareTopicInfo,
)
from penstock.model.ids import TopicId

__all__ = ["UNINITIALIZED", "InitializeShareState", "ShareStatePartitions"]

#: the time after which the creation of state is tried again
RETRY_MS: Final = 30_000
#: The start offset of a share partition that no leader has read from yet: the leader chooses it.
UNINITIALIZED: Final = -1


class InitializeShareState(NamedTuple):
    """An effect: create the state of share partitions, by topic and partition, with these start offsets."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[bytes, Mapping[int, int]]


class ShareStatePartitions:
    """The share partitions of one shard's share groups."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger

    # -- creation

    def initialize_subscribed(self, group: ShareGroup) -> None:
        """Have the state of new partitions of subscribed topics created."""
        missing = self._missing(group)
        if not missing:
            return
        if group.initializing and self._ledger.now_ms < group.initializing_ms + RETRY_MS:
            missing = {t: indexes - group.initializing.get(t, set()) for t, indexes in missing.items()}
            missing = {t: indexes for t, indexes in missing.items() if indexes}
            if not missing:
                return
        self._begin(group, missing)
        offsets = {t: dict.fromkeys(sorted(indexes), UNINITIALIZED) for t, indexes in missing.items()}
        self._ledger.after_commit(InitializeShareState(group.id, group.epoch, offsets))

    def _missing(self, group: ShareGroup) -> Assignment:
        """The partitions of subscribed topics that are not initialized."""
        topics = self._ledger.env.image.topics
        missing: Assignment = {}
        for name in sorted(group.named):
            topic = topics.get(name)
            if topic is None:
                continue
            known = group.initialized.get(topic.id, set())
            if len(known) < len(topic.partitions):
                missing[topic.id] = set(range(len(topic.partitions))) - known
        return missing

    def begin_reset(self, group: ShareGroup, start_offsets: Mapping[bytes, Mapping[int, int]]) -> int:
        """Begin to set start offsets anew. Returns the state epoch, which is higher than any before."""
        group_id = group.id
        self._ledger.write(
            ShareGroupMetadataKey(group_id=group_id),
            ShareGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=group.metadata_hash),
        )
        written = self._ledger.groups[group_id]
        assert isinstance(written, ShareGroup)
        self._begin(written, {t: set(offsets) for t, offsets in start_offsets.items() if offsets})
        return written.epoch

    def _begin(self, group: ShareGroup, partitions: Assignment) -> None:
        group.initializing_ms = self._ledger.now_ms
        deleting = group.deleting - partitions.keys()
        self._write(group, _union(group.initializing, partitions), group.initialized, deleting)

    def answered(
        self,
        group: ShareGroup,
        wanted: Mapping[bytes, Collection[int]],
        failed: Collection[tuple[bytes, int]],
    ) -> None:
        """The share coordinator has answered a request to create state."""
        created: Assignment = {}
        refused: Assignment = {}
        for topic_id, indexes in wanted.items():
            for index in indexes:
                answer = refused if (topic_id, index) in failed else created
                answer.setdefault(topic_id, set()).add(index)
        if created:
            self.initialized(group, created)
        if refused:
            self.initialization_failed(group, refused)

    def initialized(self, group: ShareGroup, partitions: Assignment) -> None:
        """The share coordinator has created the state of `partitions`."""
        self._write(
            group,
            _difference(group.initializing, partitions),
            _union(group.initialized, partitions),
            group.deleting,
        )

    def initialization_failed(self, group: ShareGroup, partitions: Assignment) -> None:
        """The creation failed: the next heartbeat tries it again."""
        if group.initializing:
            self._write(group, _difference(group.initializing, partitions), group.initialized, group.deleting)

    # -- deletion

    def begin_deletion(self, group: ShareGroup, topic_ids: Collection[bytes]) -> Assignment:
        """Begin to delete the state of topics. Returns their partitions."""
        image = self._ledger.env.image
        partitions: Assignment = {}
        for topic_id in topic_ids:
            found = group.initialized.get(topic_id, set()) | group.initializing.get(topic_id, set())
            if topic_id in group.deleting:
                topic = next((t for t in image.topics.values() if t.id == topic_id), None)
                found |= set(range(0 if topic is None else len(topic.partitions)))
            if found:
                partitions[topic_id] = found
        gone = set(topic_ids)
        self._write(
            group,
            {t: p for t, p in group.initializing.items() if t not in gone},
            {t: p for t, p in group.initialized.items() if t not in gone},
            group.deleting | partitions.keys(),
        )
        return partitions

    def deleted(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> None:
        """The share coordinator has deleted the state of topics."""
        self._write(group, group.initializing, group.initialized, group.deleting.difference(topic_ids))

    def delete_orphaned(self, group: ShareGroup) -> None:
        """Forget topics that were deleted while this shard had no coordinator."""
        known = self._ledger.env.image.topics_by_id
        topic_ids = {*group.initializing, *group.initialized, *group.deleting}
        self.topics_deleted(group, {t for t in topic_ids if TopicId(t) not in known})

    def topics_deleted(self, group: ShareGroup, topic_ids: Collection[bytes]) -> None:
        """Topics do not exist any more. The share coordinator deletes their state by itself."""
        known = {*group.initializing, *group.initialized, *group.deleting}
        if known.isdisjoint(topic_ids):
            return
        gone = set(topic_ids)
        self._write(
            group,
            {t: p for t, p in group.initializing.items() if t not in gone},
            {t: p for t, p in group.initialized.items() if t not in gone},
            group.deleting - gone,
        )

    def _write(
        self,
        group: ShareGroup,
        initializing: Assignment,
        initialized: Assignment,
        deleting: Collection[bytes],
    ) -> None:
        names: dict[bytes, str] = {topic.id: topic.name for topic in self._ledger.env.image.topics.values()}
        group.topic_names = {**group.topic_names, **names}
        self._ledger.write(
            ShareGroupStatePartitionMetadataKey(group_id=group.id),
            ShareGroupStatePartitionMetadataValue(
                initializing_topics=group.partitions_info(initializing),
                initialized_topics=group.partitions_info(initialized),
                deleting_topics=[
                    ShareTopicInfo(topic_id=t, topic_name=group.topic_names.get(t, ""))
                    for t in sorted(deleting)
                ],
            ),
        )


def _union(a: Assignment, b: Assignment) -> Assignment:
    return {t: a.get(t, set()) | b.get(t, set()) for t in {**a, **b}}


def _difference(a: Assignment, b: Assignment) -> Assignment:
    left = {t: indexes - b.get(t, set()) for t, indexes in a.items()}
    return {t: indexes for t, indexes in left.items() if indexes}
