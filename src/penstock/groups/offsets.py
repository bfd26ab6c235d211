"""Committed offsets, and the decisions on OffsetCommit, OffsetFetch and OffsetDelete.

A group that commits without members is a simple group: an empty classic group without a protocol type. The
last commit in the log wins. The group refuses commits of members with a stale epoch (`check_commit`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.coordination.outbox import EncodedRecord
from penstock.groups.classic import ClassicGroup
from penstock.groups.classic_rebalance import SESSION
from penstock.groups.group import Group, PartitionCheck
from penstock.groups.ledger import GroupLedger
from penstock.groups.pending_offsets import Committed, PendingOffsets
from penstock.groups.records import OffsetCommitKey, OffsetCommitValue, encode_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

__all__ = ["Committed", "Offsets"]

#: the first version with GROUP_ID_NOT_FOUND
_GROUP_NOT_FOUND_FROM: Final = 9
_DEFAULT_RETENTION: Final = -1
#: the largest timestamp; a client may request a longer retention
_NEVER: Final = 2**63 - 1
_OWN_RETENTION_VERSION: Final = 1
_NO_OFFSET: Final = -1
_NO_PRODUCER: Final = -1
#: offsets between two steps of their expiry, or of a response with all of them
_LOOKED_AT_ONCE: Final = 250


class Offsets:
    """Committed offsets by group, topic and partition.

    Why more than 25 methods: three requests, replay, expiry and deletion share the table of offsets.
    """

    __slots__ = ("_by_group", "_ledger", "_position", "pending")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self._by_group: dict[str, dict[str, dict[int, Committed]]] = {}
        #: of open transactions
        self.pending: Final = PendingOffsets()
        self._position = -1

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    @property
    def by_group(self) -> Mapping[str, Mapping[str, Mapping[int, Committed]]]:
        """Committed offsets by group, topic and partition. A caller must not change them."""
        return self._by_group

    # -- the log

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Apply a record that this shard has written outside of a transaction."""
        self.replay_at(self._position + 1, _NO_PRODUCER, key, value)

    def write_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Apply a record that this shard has written in a transaction."""
        self.replay_at(self._position + 1, producer_id, key, value)

    def replay_at(
        self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        """Apply a record at `offset`; it is pending if its batch has a producer id."""
        self._position = offset
        if value is None:
            self._forget(key.group, key.topic, key.partition)
            self.pending.remove((key.group, key.topic, key.partition))
            return
        if key.group not in self._ledger.groups:
            self._ledger.groups[key.group] = ClassicGroup(key.group, value.commit_timestamp)
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if value.expire_timestamp == -1 else value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id == _NO_PRODUCER:
            self._put(key.group, key.topic, key.partition, committed)
        else:
            self.pending.add(producer_id, (key.group, key.topic, key.partition), committed)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a marker. An offset counts only if its record is behind that of the committed one.

        Why: compaction keeps the last record of a key, whatever the order of the markers was.
        """
        for (group, topic, partition), offset in self.pending.end(producer_id).items():
            known = self.get(group, topic, partition)
            if committed and (known is None or offset.position > known.position):
                self._put(group, topic, partition, offset)

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)

    # -- OffsetCommit

    def commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        """Commit to existing partitions, given by name and id. The member is checked for all of them."""
        check = self._check_commit(request, version)
        if check is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    check(topic.name, topic.topic_id, partition.partition_index)
        response = OffsetCommitResponse()
        for topic in request.topics:
            response.topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=self._commit_one(request, topic, partition),
                        )
                        for partition in topic.partitions
                    ],
                )
            )
        return response

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> PartitionCheck | None:
        ledger = self._ledger
        epoch = request.generation_id_or_member_epoch
        group = ledger.groups.get(request.group_id)
        if group is None:
            if epoch >= 0 and version >= _GROUP_NOT_FOUND_FROM:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
            if epoch >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            return None
        check = group.check_commit(request.member_id, request.group_instance_id, epoch, version)
        if isinstance(group, ClassicGroup):
            member = group.members.get(request.member_id)
            if member is not None:
                # A commit counts as a heartbeat.
                ledger.timers.schedule((SESSION, group.id, member.id), member.session_timeout_ms)
        return check

    def _commit_one(
        self,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._ledger.env.settings.metadata_length_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        own_retention = request.retention_time_ms != _DEFAULT_RETENTION
        now_ms = self._ledger.now_ms
        self._ledger.write(
            OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index),
            OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=min(now_ms + request.retention_time_ms, _NEVER) if own_retention else -1,
                topic_id=topic.topic_id,
            ),
            _OWN_RETENTION_VERSION if own_retention else None,
        )
        return ErrorCode.NONE

    # -- OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """The committed offsets of the requested topics. An unknown group has none.

        With `require_stable`, a partition with a pending offset gets UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        assert request.topics is not None, "`fetch_all` has the offsets of all topics"
        self._check_fetch(request)
        return OffsetFetchResponseGroup(
            group_id=request.group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _unstable(index)
                        if require_stable and self.pending.has(request.group_id, topic.name, index)
                        else _fetched(index, self._live(request.group_id, topic.name, index), topic.topic_id)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )

    def fetch_all(
        self, request: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> Iterator[OffsetFetchResponseTopics]:
        """The committed offsets of all topics, as they are now; each topic is a step for the caller.

        A topic comes in several parts if it has many partitions. Why not `fetch`: a group may have 100,000
        offsets.
        """
        self._check_fetch(request)
        by_topic = self._by_group.get(request.group_id, {})
        topics = [(topic, dict(partitions)) for topic, partitions in by_topic.items()]
        unstable = set(self.pending.of_group(request.group_id)) if require_stable else set()
        return self._all_fetched(topics, unstable)

    def _all_fetched(
        self, topics: Iterable[tuple[str, Mapping[int, Committed]]], unstable: Collection[tuple[str, int]]
    ) -> Iterator[OffsetFetchResponseTopics]:
        for topic, partitions in topics:
            indexes = list(partitions)
            for start in range(0, len(indexes), _LOOKED_AT_ONCE):
                found = [
                    _unstable(index) if (topic, index) in unstable else _fetched(index, offset, NO_TOPIC_ID)
                    for index in indexes[start : start + _LOOKED_AT_ONCE]
                    if not self._is_deleted(offset := partitions[index])
                ]
                if found:
                    yield OffsetFetchResponseTopics(name=topic, partitions=found)

    def _check_fetch(self, request: OffsetFetchRequestGroup) -> None:
        group = self._ledger.groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)

    def _live(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """The committed offset, unless its topic is deleted."""
        committed = self.get(group_id, topic, partition)
        return None if committed is None or self._is_deleted(committed) else committed

    # -- OffsetDelete, deletion of groups and topics, retention

    def delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        group = self._ledger.group(request.group_id)
        group.check_offset_deletion()
        return OffsetDeleteResponse(topics=[self._delete_topic(group, topic) for topic in request.topics])

    def _delete_topic(self, group: Group, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        in_use = group.subscribes_to(topic.name)
        responses = []
        for partition in topic.partitions:
            index = partition.partition_index
            known = self.get(group.id, topic.name, index) is not None
            if not in_use and (known or self.pending.has(group.id, topic.name, index)):
                self._delete_one(group.id, topic.name, index)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
            responses.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=responses)

    def delete_all(self, group_id: str) -> None:
        for topic, partitions in list(self._by_group.get(group_id, {}).items()):
            self._delete(group_id, topic, list(partitions))
        for topic, index in self.pending.of_group(group_id):
            self._delete(group_id, topic, [index])

    def topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Delete the offsets of deleted topics, but not those of new topics of the same name."""
        ids: dict[str, set[bytes]] = {}
        for topic, topic_id in topics:
            ids.setdefault(topic, {NO_TOPIC_ID}).add(topic_id)
        for group_id, by_topic in list(self._by_group.items()):
            for topic in by_topic.keys() & ids.keys():
                gone = [index for index, found in by_topic[topic].items() if found.topic_id in ids[topic]]
                self._delete(group_id, topic, gone)
        for (group_id, topic, index), committed in self.pending.items():
            if committed.topic_id in ids.get(topic, ()):
                self._delete(group_id, topic, [index])

    def _is_deleted(self, committed: Committed) -> bool:
        """Returns true if the topic is deleted. A new topic of that name must not use the offset.

        The coordinator that accepted the commit knew the topic from the same metadata log. So a topic that
        is not in this broker's image is deleted.
        """
        topic_id = committed.topic_id
        return topic_id != NO_TOPIC_ID and TopicId(topic_id) not in self._ledger.env.image.topics_by_id

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group or self.pending.has_group(group_id)

    def expire(self, group: Group) -> Iterator[int]:
        """Delete offsets whose retention is over, and those of topics that were deleted meanwhile.

        Why the latter: the shard may have had no coordinator at that time. Yields after some offsets, with
        their number: the caller lets other requests be served in between.
        """
        for topic, partitions in list(self._by_group.get(group.id, {}).items()):
            indexes = list(partitions)
            for start in range(0, len(indexes), _LOOKED_AT_ONCE):
                some = indexes[start : start + _LOOKED_AT_ONCE]
                found = [(index, partitions[index]) for index in some if index in partitions]
                self._delete(group.id, topic, [i for i, c in found if self._is_deleted(c)])
                self._delete(group.id, topic, self._expired(group, topic, found))
                yield len(some)

    def _expired(self, group: Group, topic: str, found: Iterable[tuple[int, Committed]]) -> list[int]:
        """The partitions whose retention is over."""
        if not self._ledger.env.may_expire() or group.subscribes_to(topic):
            return []
        retention_ms = self._ledger.env.settings.offsets_retention_ms
        now_ms, expired = self._ledger.now_ms, []
        for index, committed in found:
            since_ms = group.retention_starts_ms(committed.commit_ms)
            if since_ms is None:
                return []
            until_ms = since_ms + retention_ms if committed.expire_ms is None else committed.expire_ms
            if now_ms >= until_ms and not self.pending.has(group.id, topic, index):
                expired.append(index)
        return expired

    def _delete(self, group_id: str, topic: str, indexes: Sequence[int]) -> None:
        """Delete the offsets of many partitions. The log may get the tombstones in several parts.

        Why they are encoded later: a group may have 100,000 offsets.
        """
        if not indexes:
            return
        for index in indexes:
            self._forget(group_id, topic, index)
        if self.pending.has_group(group_id):
            for index in indexes:
                self.pending.remove((group_id, topic, index))
        outbox = self._ledger.outbox
        outbox.records += [partial(_tombstone, group_id, topic, index) for index in indexes]
        outbox.is_divisible = True

    def _delete_one(self, group_id: str, topic: str, partition: int) -> None:
        self._ledger.write(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _tombstone(group_id: str, topic: str, partition: int) -> EncodedRecord:
    return encode_record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _fetched(index: int, committed: Committed | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    if committed is None or not _same_topic(committed.topic_id, topic_id):
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=_NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
    )


def _same_topic(known: bytes, requested: bytes) -> bool:
    return known == requested or NO_TOPIC_ID in (known, requested)
