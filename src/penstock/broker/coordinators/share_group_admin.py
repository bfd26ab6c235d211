"""Administration of share groups whose steps span the group coordinator and share coordinators.

The group coordinator records that an operation has begun. The share coordinators carry it out. Then the group
coordinator records the end. An operation that was interrupted can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.broker.base.awaiting import awaited
from penstock.broker.coordinators.end_offsets import EndOffsets
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.share_persister import SharePersister
from penstock.groups.assignors import Assignment
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.net.deferred import Deferred
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.schema import Struct

__all__ = ["ShareGroupAdmin"]

T = TypeVar("T")
_NONE = -1


class _Done(Struct):
    """The result of an operation whose values are passed in another way."""


class ShareGroupAdmin:
    """Operations on share groups of this broker."""

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupShard],
        persister: SharePersister,
        image: ClusterImage,
        end_offsets: EndOffsets,
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._image = image
        self._end_offsets = end_offsets

    async def alter_offsets(
        self, request: alter.AlterShareGroupOffsetsRequest
    ) -> alter.AlterShareGroupOffsetsResponse:
        group_id = request.group_id
        effect, response = await self._run(group_id, lambda shard: shard.share_admin.begin_reset(request))
        wanted = effect.start_offsets
        if not wanted:
            return response
        failed = await self._persister.initialize(group_id, effect.state_epoch, wanted)
        for topic in response.responses:
            for result in topic.partitions:
                error = failed.get((topic.topic_id, result.partition_index))
                if error is not None:
                    result.error_code, result.error_message = error.code, error.message or None

        def end(shard: GroupShard) -> None:
            group = shard.shares.get(group_id)
            if group is not None:
                shard.shares.state.answered(group, wanted, failed)

        await self._run(group_id, end)
        return response

    async def delete_offsets(self, group_id: str, names: list[str]) -> delete.DeleteShareGroupOffsetsResponse:
        partitions, refused = await self._run(
            group_id, lambda shard: shard.share_admin.begin_offset_deletion(group_id, names)
        )
        failed = await self._delete(group_id, partitions)
        answers = [self._deleted(topic_id, failed.get(topic_id)) for topic_id in partitions]
        return delete.DeleteShareGroupOffsetsResponse(responses=[*answers, *refused])

    def _deleted(
        self, topic_id: bytes, error: ApiError | None
    ) -> delete.DeleteShareGroupOffsetsResponseTopic:
        topic = self._image.topics_by_id.get(TopicId(topic_id))
        return delete.DeleteShareGroupOffsetsResponseTopic(
            topic_name="" if topic is None else topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.message or None,
        )

    async def delete_group(self, group_id: str) -> None:
        """Delete the state of all share partitions of a group. The group itself is deleted by the caller."""
        partitions = await self._run(group_id, lambda shard: shard.share_admin.begin_group_deletion(group_id))
        failed = await self._delete(group_id, partitions)
        for error in failed.values():
            raise error

    async def _delete(self, group_id: str, partitions: Assignment) -> dict[bytes, ApiError]:
        """Delete state. Returns the errors by topic."""
        if not partitions:
            return {}
        errors = await self._persister.delete(group_id, partitions)
        failed = {topic_id: error for (topic_id, _), error in errors.items()}

        def end(shard: GroupShard) -> None:
            group = shard.shares.get(group_id)
            if group is not None:
                shard.shares.state.deleted(group, [t for t in partitions if t not in failed])

        await self._run(group_id, end)
        return failed

    async def describe_offsets(
        self, wanted: describe.DescribeShareGroupOffsetsRequestGroup
    ) -> describe.DescribeShareGroupOffsetsResponseGroup:
        """The offsets of the partitions that are wanted, or of all share partitions of the group."""
        group_id = wanted.group_id
        answer = describe.DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
        if wanted.topics is None:
            partitions = await self._run(group_id, lambda shard: shard.share_admin.initialized(group_id))
        else:
            partitions = {}
            for topic in wanted.topics:
                known = self._image.topics.get(topic.topic_name)
                if known is None:
                    answer.topics.append(_without_offsets(topic))
                else:
                    partitions[known.id] = set(topic.partitions)
        names = {
            topic_id: self._image.topics_by_id[TopicId(topic_id)].name
            for topic_id in partitions
            if topic_id in self._image.topics_by_id
        }
        partitions = {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id in names}
        summaries, errors = await self._persister.summaries(group_id, partitions)
        ends = await self._end_offsets.find({names[t]: indexes for t, indexes in partitions.items()})
        for topic_id, indexes in partitions.items():
            name = names[topic_id]
            results = [
                _failed(index, errors[topic_id, index])
                if (topic_id, index) in errors
                else _described(index, summaries[topic_id, index], ends.get((name, index), _NONE))
                for index in sorted(indexes)
            ]
            answer.topics.append(
                describe.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=topic_id, partitions=results
                )
            )
        return answer

    async def _run(self, group_id: str, operate: Callable[[GroupShard], T]) -> T:
        """The result of `operate` on the group's shard, once its records are committed."""
        found: list[T] = []
        failed: list[ApiError] = []

        def operation(shard: GroupShard, _: object) -> Struct:
            found.append(operate(shard))
            return _Done()

        def error_response(error: ApiError) -> Struct:
            failed.append(error)
            return _Done()

        response = self._groups.submit(group_id, operation, error_response)
        if isinstance(response, Deferred):
            await awaited(response)
        if failed:
            raise failed[0]
        return found[0]


def _without_offsets(topic: Any) -> describe.DescribeShareGroupOffsetsResponseTopic:
    """As in Kafka, a topic that does not exist is not an error: it has no offsets."""
    return describe.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=NO_TOPIC_ID,
        partitions=[
            describe.DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=_NONE)
            for index in topic.partitions
        ],
    )


def _failed(index: int, error: ApiError) -> describe.DescribeShareGroupOffsetsResponsePartition:
    return describe.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=_NONE,
        error_code=error.code,
        error_message=error.message or None,
    )


def _described(
    index: int, summary: Any, end_offset: int
) -> describe.DescribeShareGroupOffsetsResponsePartition:
    """The lag is the number of records from the start offset on that are not finished."""
    start, complete = summary.start_offset, summary.delivery_complete_count
    is_known = start >= 0 and complete >= 0 and end_offset >= 0
    return describe.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=start,
        leader_epoch=summary.leader_epoch,
        lag=max(0, end_offset - start - complete) if is_known else _NONE,
    )
