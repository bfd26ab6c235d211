"""The APIs of the share coordinator: the state of share partitions, for other brokers and for this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import format_topic_id
from penstock.net.deferred import Deferred
from penstock.shares.shard import ShareShard, ShareStateKey
from penstock.wire.apis import delete_share_group_state as delete
from penstock.wire.apis import initialize_share_group_state as initialize
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import read_share_group_state_summary as summary
from penstock.wire.apis import write_share_group_state as write
from penstock.wire.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest, ShardToRead
from penstock.wire.schema import Struct

__all__ = ["ShareStateService", "coordinator_key"]

#: a share partition, and its part of the request
_Item: TypeAlias = tuple[ShareStateKey, Any]


def coordinator_key(key: ShareStateKey) -> str:
    """The key that determines the partition of `__share_group_state`."""
    return f"{key.group_id}:{format_topic_id(key.topic_id)}:{key.partition}"


class ShareStateService:
    """Runs requests on the shards of this broker."""

    def __init__(self, runtime: CoordinatorRuntime[ShareShard]) -> None:
        self._runtime = runtime

    def initialize(self, request: initialize.InitializeShareGroupStateRequest) -> Struct | Deferred[Struct]:
        def operate(shard: ShareShard, item: _Item) -> Struct:
            key, data = item
            shard.initialize(key, data.state_epoch, data.start_offset)
            return initialize.PartitionResult(partition=key.partition)

        return self._each(
            request,
            operate,
            initialize.PartitionResult,
            initialize.InitializeStateResult,
            initialize.InitializeShareGroupStateResponse,
        )

    def read(self, request: read.ReadShareGroupStateRequest) -> Struct | Deferred[Struct]:
        return self._each(
            request,
            lambda shard, item: shard.read(item[0], item[1].leader_epoch),
            read.PartitionResult,
            read.ReadStateResult,
            read.ReadShareGroupStateResponse,
        )

    def write(self, request: write.WriteShareGroupStateRequest) -> Struct | Deferred[Struct]:
        def operate(shard: ShareShard, item: _Item) -> Struct:
            shard.write(*item)
            return write.PartitionResult(partition=item[0].partition)

        return self._each(
            request,
            operate,
            write.PartitionResult,
            write.WriteStateResult,
            write.WriteShareGroupStateResponse,
        )

    def delete(self, request: delete.DeleteShareGroupStateRequest) -> Struct | Deferred[Struct]:
        def operate(shard: ShareShard, item: _Item) -> Struct:
            shard.delete(item[0])
            return delete.PartitionResult(partition=item[0].partition)

        return self._each(
            request,
            operate,
            delete.PartitionResult,
            delete.DeleteStateResult,
            delete.DeleteShareGroupStateResponse,
        )

    def summary(self, request: ReadShareGroupStateSummaryRequest) -> Struct | Deferred[Struct]:
        if request.shards:
            partitions = {(t.topic_id, data.partition) for t in request.topics for data in t.partitions}
            # Each once: a summary takes as long as its shard has groups.
            return self.lowest_starts(partitions, {each.index: each for each in request.shards}.values())
        return self._each(
            request,
            lambda shard, item: shard.summary(item[0]),
            summary.PartitionResult,
            summary.ReadStateSummaryResult,
            summary.ReadShareGroupStateSummaryResponse,
        )

    def lowest_starts(
        self, partitions: Collection[tuple[bytes, int]], shards: Iterable[ShardToRead]
    ) -> Struct | Deferred[Struct]:
        """The lowest start offsets of all groups, by shard. Refuses shards in another leader epoch."""

        def operate(shard: ShareShard, wanted: ShardToRead) -> Struct:
            partition = self._runtime.partition(wanted.index)
            if partition is None or partition.leader_epoch != wanted.leader_epoch:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            starts = [
                summary.LowestStart(topic_id=topic_id, partition=index, start_offset=start)
                for (topic_id, index), start in shard.lowest_starts(partitions).items()
            ]
            return summary.ShardResult(index=wanted.index, starts=starts)

        def error_response(wanted: ShardToRead, error: ApiError) -> Struct:
            return summary.ShardResult(index=wanted.index, error_code=error.code)

        return self._runtime.submit_each(
            [(wanted.index, wanted) for wanted in shards],
            operate,
            error_response,
            lambda results: summary.ReadShareGroupStateSummaryResponse(shards=results),
        )

    def _each(
        self,
        request: Any,
        operate: Callable[[ShareShard, _Item], Struct],
        result_type: Callable[..., Struct],
        topic_type: Callable[..., Struct],
        response_type: Callable[..., Struct],
    ) -> Struct | Deferred[Struct]:
        """Run `operate` for each share partition of a request."""
        items: list[_Item] = [
            (ShareStateKey(request.group_id, topic.topic_id, data.partition), data)
            for topic in request.topics
            for data in topic.partitions
        ]

        def error_response(item: _Item, error: ApiError) -> Struct:
            return result_type(
                partition=item[0].partition, error_code=error.code, error_message=error.message or None
            )

        def finish(results: list[Any]) -> Struct:
            topics: dict[bytes, list[Any]] = {}
            for (key, _), result in zip(items, results, strict=True):
                topics.setdefault(key.topic_id, []).append(result)
            return response_type(
                results=[topic_type(topic_id=t, partitions=found) for t, found in topics.items()]
            )

        return self._runtime.submit_each(self._placed(items), operate, error_response, finish)

    def _placed(self, items: Iterable[_Item]) -> Iterable[tuple[int, _Item]]:
        for item in items:
            yield self._runtime.topic.partition_for(coordinator_key(item[0])), item
