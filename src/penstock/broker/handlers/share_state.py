"""The APIs of the share coordinator, for other brokers."""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from typing import Any, Final

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.coordinators.share_state_service import ShareStateService
from penstock.net.deferred import Deferred
from penstock.wire.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from penstock.wire.apis.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from penstock.wire.apis.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

__all__ = ["ShareStateHandlers"]

#: state batches of a write, each of which takes 2 to 5 µs, and shards that are read at once
_BATCHES_AT_ONCE: Final = 500
_SHARDS_AT_ONCE: Final = 100


class ShareStateHandlers:
    """Initialize, read, write and delete the state of share partitions, and read its summary."""

    def __init__(self, service: ShareStateService) -> None:
        self._service = service

    def initialize(self, context: Context, request: Any) -> Any:
        return self._service.initialize(request)

    def read(self, context: Context, request: Any) -> Any:
        if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
            return self._service.read(request)
        return context.spawn(self._read_in_turns(context, request))

    async def _read_in_turns(self, context: Context, request: ReadShareGroupStateRequest) -> Any:
        """Read one share partition after the other: each may have 10,000 state batches."""
        results: dict[bytes, ReadStateResult] = {}
        for answer in await context.until_done(self._reads(request)):
            read: Any = await awaited(answer) if isinstance(answer, Deferred) else answer
            (result,) = read.results
            if result.topic_id in results:
                results[result.topic_id].partitions += result.partitions
            else:
                results[result.topic_id] = result
        return ReadShareGroupStateResponse(results=list(results.values()))

    def _reads(self, request: ReadShareGroupStateRequest) -> Generator[None, None, list[Any]]:
        answers = []
        for topic in request.topics:
            for data in topic.partitions:
                part, of_topic = copy(request), copy(topic)
                of_topic.partitions = [data]
                part.topics = [of_topic]
                answers.append(self._service.read(part))
                yield
        return answers

    def write(self, context: Context, request: Any) -> Any:
        if context.is_large and _batches(request) > _BATCHES_AT_ONCE:
            return context.spawn(self._write_in_turns(context, request))
        return self._service.write(request)

    async def _write_in_turns(self, context: Context, request: WriteShareGroupStateRequest) -> Any:
        """Write many state batches, some at a time. Those of one partition end with the first error.

        The start offset comes with each of them. A leader that gets no response writes all of them again.
        """
        response = WriteShareGroupStateResponse()
        for topic in request.topics:
            result = WriteStateResult(topic_id=topic.topic_id)
            for data in topic.partitions:
                result.partitions.append(await self._write_one(context, request, topic, data))
            response.results.append(result)
        return response

    async def _write_one(self, context: Context, request: Any, topic: Any, data: Any) -> PartitionResult:
        batches = data.state_batches
        written = PartitionResult()
        for start in range(0, len(batches) or 1, _BATCHES_AT_ONCE):
            await context.turn()
            part, of_topic, some = copy(request), copy(topic), copy(data)
            some.state_batches = batches[start : start + _BATCHES_AT_ONCE]
            of_topic.partitions = [some]
            part.topics = [of_topic]
            answer: Any = self._service.write(part)
            if isinstance(answer, Deferred):
                answer = await awaited(answer)
            written = answer.results[0].partitions[0]
            if written.error_code:
                break
        return written

    def delete(self, context: Context, request: Any) -> Any:
        return self._service.delete(request)

    def summary(self, context: Context, request: Any) -> Any:
        if len(request.shards) > _SHARDS_AT_ONCE:
            return context.spawn(self._summary_in_turns(context, request))
        return self._service.summary(request)

    async def _summary_in_turns(self, context: Context, request: ReadShareGroupStateSummaryRequest) -> Any:
        response = ReadShareGroupStateSummaryResponse()
        partitions = await context.until_done(_partitions(request))
        # Each once: a summary takes as long as its shard has groups.
        shards = list({shard.index: shard for shard in request.shards}.values())
        for start in range(0, len(shards), _SHARDS_AT_ONCE):
            await context.turn()
            some = shards[start : start + _SHARDS_AT_ONCE]
            answer: Any = self._service.lowest_starts(partitions, some)
            if isinstance(answer, Deferred):
                answer = await awaited(answer)
            response.shards += answer.shards
        return response


def _batches(request: WriteShareGroupStateRequest) -> int:
    return sum(len(data.state_batches) for topic in request.topics for data in topic.partitions)


def _partitions(
    request: ReadShareGroupStateSummaryRequest,
) -> Generator[None, None, set[tuple[bytes, int]]]:
    found: set[tuple[bytes, int]] = set()
    for topic in request.topics:
        for number, partition in enumerate(topic.partitions):
            found.add((topic.topic_id, partition.partition))
            if not number % _SHARDS_AT_ONCE:
                yield
    return found
