"""The share partitions of a share group: creation and deletion of their state in the share coordinator.

The group coordinator records which share partitions are being created (`initializing`), exist
(`initialized`), or are being deleted (`deleting`). An effect sends the request to the share coordinator. Its
response comes back as an event. A creation without an answer is repeated after a time: it is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Final, NamedTuple

from penstock.groups.assignors import Assignment, Due
from penstock.groups.large_assignments import PARTITIONS_AT_ONCE_MAX, TOPICS_AT_ONCE_MAX
from penstock.groups.large_share_changes import Change, LargeShareChanges, is_large
from penstock.groups.ledger import GroupLedger
from penstock.groups.share_group import ShareGroup, SharePartitions
from penstock.groups.share_records import ShareGroupMetadataKey, ShareGroupMetadataValue
from penstock.groups.subscriptions import existing
from penstock.metadata.image import TopicImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.slicing import exhausted

__all__ = ["UNINITIALIZED", "InitializeShareState", "ShareStatePartitions"]

#: the time after which the creation of state is tried again
RETRY_MS: Final = 30_000
#: of a partition in the record of a group's share partitions; the records of its members have no more of them
PARTITION_BYTES: Final = 4
#: The start offset of a share partition that no leader has read from yet: the leader chooses it.
UNINITIALIZED: Final = -1


class InitializeShareState(NamedTuple):
    """An effect: create the state of share partitions, by topic and partition, with these start offsets."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[bytes, Mapping[int, int]]


class ShareStatePartitions:
    """The share partitions of one shard's share groups."""

    __slots__ = ("_ledger", "large")

    def __init__(self, ledger: GroupLedger, large: LargeShareChanges) -> None:
        self._ledger = ledger
        self.large = large

    # -- creation

    def initialize_subscribed(self, group: ShareGroup) -> None:
        """Have the state of new partitions of subscribed topics created."""
        image = self._ledger.env.image
        state, topics = (group.share_partitions, group.epoch, image.offset), image.topics
        if group.initialized_in == state or self.large.is_changing(group):
            return
        subscribed = [topics[name] for name in existing(topics, group.named)]
        has = group.initialized.get
        number = missing = 0
        for topic in subscribed:
            partitions = len(topic.partitions)
            number += partitions
            missing += max(0, partitions - len(has(topic.id, ())))
        if not missing:
            group.initialized_in = state
            return
        if len(subscribed) > TOPICS_AT_ONCE_MAX or number > PARTITIONS_AT_ONCE_MAX:
            if not self._waits(group) or self._may_miss(group, subscribed):
                self._check_size(group, missing + sum(map(len, group.initialized.values())))
                self.large.change(group, partial(self._create, topics=subscribed))
            return
        change = exhausted(self._create(group, subscribed))
        if change is not None:
            self._check_size(group, change.partitions.number())
            self._write(group, change.partitions)
            self._ledger.after_commit(change.effect)

    def _may_miss(self, group: ShareGroup, topics: Sequence[TopicImage]) -> bool:
        """Returns true if there are partitions whose state neither exists nor is being created."""
        has, creates = group.initialized.get, group.initializing.get
        return any(len(has(t.id, ())) + len(creates(t.id, ())) < len(t.partitions) for t in topics)

    def _waits(self, group: ShareGroup) -> bool:
        """Returns true if the share coordinator may still answer the last request to create state."""
        return bool(group.initializing) and self._ledger.now_ms < group.initializing_ms + RETRY_MS

    def _create(
        self, group: ShareGroup, topics: Sequence[TopicImage]
    ) -> Generator[None, None, Change | None]:
        """Begin to create the state of the partitions of topics that have none; None if all have it."""
        due = Due()
        missing: Assignment = {}
        offsets: dict[bytes, dict[int, int]] = {}
        initializing = group.initializing if self._waits(group) else {}
        for topic in sorted(topics, key=lambda topic: topic.name):
            known, creates = group.initialized.get(topic.id, set()), initializing.get(topic.id, set())
            if len(known) < len(topic.partitions):
                indexes = set(range(len(topic.partitions)))
                indexes -= known
                indexes -= creates
                if indexes:
                    missing[topic.id] = indexes
                    offsets[topic.id] = dict.fromkeys(sorted(indexes), UNINITIALIZED)
            if due.after(len(topic.partitions)):
                yield
        if not missing:
            return None
        group.initializing_ms = self._ledger.now_ms
        partitions = SharePartitions(
            _union(group.initializing, missing), group.initialized, group.deleting - missing.keys()
        )
        return Change(partitions, InitializeShareState(group.id, group.epoch, offsets))

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
        begun = SharePartitions(
            _union(group.initializing, partitions), group.initialized, group.deleting - partitions.keys()
        )
        self._check_size(group, begun.number())
        group.initializing_ms = self._ledger.now_ms
        self._write(group, begun)

    def _check_size(self, group: ShareGroup, number: int) -> None:
        if number * PARTITION_BYTES > self._ledger.outbox.record_bytes_max():
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{number} partitions are too many for share group {group.id}"
            )

    def creation_ended(
        self,
        group: ShareGroup,
        wanted: Mapping[bytes, Collection[int]],
        failed: Collection[tuple[bytes, int]],
    ) -> None:
        """The share coordinator has answered an `InitializeShareState`. A large group changes later."""
        if is_large(group.initializing) or is_large(group.initialized):
            self.large.change(group, partial(_answered, wanted=wanted, failed=failed))
        else:
            self.answered(group, wanted, failed)

    def answered(
        self,
        group: ShareGroup,
        wanted: Mapping[bytes, Collection[int]],
        failed: Collection[tuple[bytes, int]],
    ) -> None:
        """The share coordinator has answered a request to create state."""
        change = exhausted(_answered(group, wanted, failed))
        if change is not None:
            self._write(group, change.partitions)

    def initialized(self, group: ShareGroup, partitions: Assignment) -> None:
        """The share coordinator has created the state of `partitions`."""
        self.answered(group, partitions, ())

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
        self._write(group, _without(group, topic_ids, group.deleting | partitions.keys()))
        return partitions

    def deleted(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> None:
        """The share coordinator has deleted the state of topics."""
        left = group.deleting - set(topic_ids)
        self._write(group, group.share_partitions._replace(deleting=left))

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
        self._write(group, _without(group, topic_ids, group.deleting - set(topic_ids)))

    def _write(self, group: ShareGroup, partitions: SharePartitions) -> None:
        group.topic_names = names = group.names_of(partitions, self._ledger.env.image)
        self._ledger.write(group.state_key(), exhausted(partitions.record(names)))


def _answered(
    group: ShareGroup, wanted: Mapping[bytes, Collection[int]], failed: Collection[tuple[bytes, int]]
) -> Generator[None, None, Change | None]:
    """The share partitions after an answer. A heartbeat tries those that have failed again."""
    refused: Assignment = {}
    for topic_id, index in failed:
        refused.setdefault(topic_id, set()).add(index)
    initializing, initialized = dict(group.initializing), dict(group.initialized)
    is_changed = False
    due = Due()
    for topic_id, indexes in wanted.items():
        asked = set(indexes)
        created = asked - refused[topic_id] if topic_id in refused else asked
        if created:
            initialized[topic_id] = initialized[topic_id] | created if topic_id in initialized else created
            is_changed = True
        before = initializing.pop(topic_id, None)
        if before is not None:
            is_changed = True
            if left := before - asked:
                initializing[topic_id] = left
        if due.after(len(asked)):
            yield
    return Change(SharePartitions(initializing, initialized, group.deleting)) if is_changed else None


def _without(group: ShareGroup, topic_ids: Collection[bytes], deleting: Set[bytes]) -> SharePartitions:
    """The share partitions of other topics."""
    gone = set(topic_ids)
    return SharePartitions(
        {t: p for t, p in group.initializing.items() if t not in gone},
        {t: p for t, p in group.initialized.items() if t not in gone},
        deleting,
    )


def _union(a: Assignment, b: Assignment) -> Assignment:
    """The partitions of both. It may share sets with them."""
    return {**a, **{t: a[t] | indexes if t in a else indexes for t, indexes in b.items()}}
