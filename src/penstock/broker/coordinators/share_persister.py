"""Persists the state of share partitions: finds their share coordinators, and retries.

The coordinator of a share partition may be this broker or another one. A request fails for good if the
coordinator refuses it, or if none has answered in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from penstock.broker.base.awaiting import awaited
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.share_state_service import ShareStateService, coordinator_key
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.client import Peer
from penstock.net.deferred import Deferred
from penstock.net.peer_errors import PeerGone
from penstock.shares.partition import StateUpdate
from penstock.shares.shard import ShareStateKey
from penstock.wire.api import Api
from penstock.wire.apis import delete_share_group_state as delete
from penstock.wire.apis import initialize_share_group_state as initialize
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import read_share_group_state_summary as summary
from penstock.wire.apis import write_share_group_state as write
from penstock.wire.schema import Struct

__all__ = ["SharePersister"]

#: errors after which another broker, or the same one later, may answer
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_PATIENCE_S: Final = 15.0
_SEND_S: Final = 6.0
_PAUSE_S: Final = 0.05
#: Share partitions of a request that are asked for together. Each takes 50 µs of the event loop.
_CALLS_AT_ONCE: Final = 50
_PAUSE_MAX_S: Final = 1.0


class _Call(NamedTuple):
    """An API, and the function that serves it on this broker."""

    api: Api[Any, Any]
    local: Callable[[Any], Struct | Deferred[Struct]]


class SharePersister:
    """The client of all share coordinators of the cluster."""

    def __init__(
        self,
        node_id: int,
        topic: InternalTopic,
        service: ShareStateService,
        peer: Callable[[int, str], Peer],
    ) -> None:
        """`peer` raises PeerGone if the address of a broker is unknown."""
        self._node_id = node_id
        self._topic = topic
        self._peer = peer
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._initialize = _Call(initialize.INITIALIZE_SHARE_GROUP_STATE, service.initialize)
        self._read = _Call(read.READ_SHARE_GROUP_STATE, service.read)
        self._write = _Call(write.WRITE_SHARE_GROUP_STATE, service.write)
        self._delete = _Call(delete.DELETE_SHARE_GROUP_STATE, service.delete)
        self._summary = _Call(summary.READ_SHARE_GROUP_STATE_SUMMARY, service.summary)

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` until `stop`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    # -- requests of partition leaders

    async def read(self, key: ShareStateKey, leader_epoch: int) -> read.PartitionResult:
        """The state of a share partition. Raises the ApiError of the coordinator."""
        data = read.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read.ReadStateData(topic_id=key.topic_id, partitions=[data])
        request = read.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        result = await self._call(self._read, key, request)
        assert isinstance(result, read.PartitionResult)
        return result

    def write(
        self, key: ShareStateKey, leader_epoch: int, state_epoch: int, update: StateUpdate
    ) -> Deferred[ApiError | None]:
        """Persist an update. Resolves to the error with which it failed, or to None."""
        data = write.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=[
                write.StateBatch(
                    first_offset=b.first,
                    last_offset=b.last,
                    delivery_state=b.state,
                    delivery_count=b.delivery_count,
                )
                for b in update.batches
            ],
        )
        topic = write.WriteStateData(topic_id=key.topic_id, partitions=[data])
        request = write.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        done: Deferred[ApiError | None] = Deferred()
        index = self._topic.partition_for(coordinator_key(key))
        if index < 0 or self._topic.leader_of(index) != self._node_id:
            self.spawn(self._write_later(key, request, done))
            return done

        def answered(response: Struct) -> None:
            error = _error_of(response)
            if error is not None and error.code in _RETRIABLE:
                self.spawn(self._write_later(key, request, done))
            else:
                done.resolve(error)

        # Without a task: this is the path of every acknowledgement.
        response = self._write.local(request)
        if isinstance(response, Deferred):
            response.then(answered)
        else:
            answered(response)
        return done

    async def _write_later(
        self, key: ShareStateKey, request: Struct, done: Deferred[ApiError | None]
    ) -> None:
        try:
            await self._call(self._write, key, request)
        except ApiError as e:
            done.resolve(e)
        else:
            done.resolve(None)

    # -- requests of group coordinators

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[bytes, Mapping[int, int]]
    ) -> dict[tuple[bytes, int], ApiError]:
        """Create the state of share partitions. Returns the errors of those that failed."""

        def request(key: ShareStateKey) -> Struct:
            data = initialize.PartitionData(
                partition=key.partition,
                state_epoch=state_epoch,
                start_offset=start_offsets[key.topic_id][key.partition],
            )
            topic = initialize.InitializeStateData(topic_id=key.topic_id, partitions=[data])
            return initialize.InitializeShareGroupStateRequest(group_id=group_id, topics=[topic])

        partitions = {topic_id: set(offsets) for topic_id, offsets in start_offsets.items()}
        _, errors = await self._call_each(self._initialize, group_id, partitions, request)
        return errors

    async def delete(
        self, group_id: str, partitions: Mapping[bytes, set[int]]
    ) -> dict[tuple[bytes, int], ApiError]:
        """Delete the state of share partitions. Returns the errors of those that failed."""

        def request(key: ShareStateKey) -> Struct:
            data = delete.PartitionData(partition=key.partition)
            topic = delete.DeleteStateData(topic_id=key.topic_id, partitions=[data])
            return delete.DeleteShareGroupStateRequest(group_id=group_id, topics=[topic])

        _, errors = await self._call_each(self._delete, group_id, partitions, request)
        return errors

    async def summaries(
        self, group_id: str, partitions: Mapping[bytes, set[int]]
    ) -> tuple[dict[tuple[bytes, int], Any], dict[tuple[bytes, int], ApiError]]:
        """The summaries of share partitions, and the errors of those that failed."""

        def request(key: ShareStateKey) -> Struct:
            data = summary.PartitionData(partition=key.partition, leader_epoch=-1)
            topic = summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
            return summary.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[topic])

        return await self._call_each(self._summary, group_id, partitions, request)

    # -- requests of partition leaders for all groups

    async def lowest_starts(self, partitions: Iterable[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
        """The lowest start offset of all share groups in each partition; none for one without a group.

        Raises an ApiError unless all shards have answered.
        """
        topics = [
            summary.ReadStateSummaryData(
                topic_id=topic_id, partitions=[summary.PartitionData(partition=index, leader_epoch=-1)]
            )
            for topic_id, index in partitions
        ]
        shards: dict[int, list[summary.ShardToRead]] = {}
        for index, shard in self._topic.partitions().items():
            if shard.leader < 0:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            wanted = summary.ShardToRead(index=index, leader_epoch=shard.leader_epoch)
            shards.setdefault(shard.leader, []).append(wanted)
        lowest: dict[tuple[bytes, int], int] = {}
        for leader, of_leader in shards.items():
            request = summary.ReadShareGroupStateSummaryRequest(topics=topics, shards=of_leader)
            response: Any = await self._send(self._summary, leader, request)
            answered = {result.index for result in response.shards if not result.error_code}
            if answered != {shard.index for shard in of_leader}:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for start in (start for result in response.shards for start in result.starts):
                name = start.topic_id, start.partition
                lowest[name] = min(start.start_offset, lowest.get(name, start.start_offset))
        return lowest

    # -- calls

    async def _call_each(
        self,
        call: _Call,
        group_id: str,
        partitions: Mapping[bytes, set[int]],
        request: Callable[[ShareStateKey], Struct],
    ) -> tuple[dict[tuple[bytes, int], Any], dict[tuple[bytes, int], ApiError]]:
        keys = (
            ShareStateKey(group_id, topic_id, index)
            for topic_id, indexes in partitions.items()
            for index in sorted(indexes)
        )
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        results: dict[tuple[bytes, int], Any] = {}
        errors: dict[tuple[bytes, int], ApiError] = {}
        while some := list(islice(keys, _CALLS_AT_ONCE)):
            calls = (self._call(call, key, request(key), deadline) for key in some)
            found = await asyncio.gather(*calls, return_exceptions=True)
            for key, result in zip(some, found, strict=True):
                name = (key.topic_id, key.partition)
                if isinstance(result, ApiError):
                    errors[name] = result
                elif isinstance(result, BaseException):
                    raise result
                else:
                    results[name] = result
        return results, errors

    async def _call(
        self, call: _Call, key: ShareStateKey, request: Struct, deadline: float | None = None
    ) -> Struct:
        """The partition's result. Raises the ApiError of the coordinator, or of the last attempt."""
        loop = asyncio.get_running_loop()
        if deadline is None:
            deadline = loop.time() + _PATIENCE_S
        pause_s = _PAUSE_S
        while True:
            try:
                return _result_of(await self._attempt(call, key, request))
            except ApiError as e:
                if e.code not in _RETRIABLE or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _attempt(self, call: _Call, key: ShareStateKey, request: Struct) -> Struct:
        index = self._topic.partition_for(coordinator_key(key))
        if index < 0:
            await self._topic.ensure()
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._send(call, self._topic.leader_of(index), request)

    async def _send(self, call: _Call, leader: int, request: Struct) -> Struct:
        if leader == self._node_id:
            response = call.local(request)
            return await awaited(response) if isinstance(response, Deferred) else response
        if leader < 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            answer: Struct = await self._peer(leader, "shares").send(call.api, request, _SEND_S)
        except PeerGone as e:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(e)) from e
        return answer


def _result_of(response: Any) -> Struct:
    """The result of the only partition in a response. Raises its error."""
    error = _error_of(response)
    if error is not None:
        raise error
    result: Struct = response.results[0].partitions[0]
    return result


def _error_of(response: Any) -> ApiError | None:
    result = response.results[0].partitions[0]
    if not result.error_code:
        return None
    return ApiError(ErrorCode(result.error_code), result.error_message or "")
