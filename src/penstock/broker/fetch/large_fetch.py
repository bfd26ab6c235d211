"""The fetch of a client that names many partitions, or whose session has many: computed in slices.

It is the same pipeline as `pipeline`, as a coroutine: read, wait, read again, answer. A large fetch costs as
much as many small ones, so no task is saved here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.fetch.client_fetch import ClientFetch, ClientRead
from penstock.broker.fetch.sessions import WantedPartition
from penstock.broker.replica.partition import Partition
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.messages import with_header

__all__ = ["LARGE", "LargeFetch", "encoded"]

#: partitions of a fetch that is computed in slices
LARGE: Final = 500
#: partitions between two yields
_STEP: Final = 100
#: how often a fetch that waits looks whether its client has left
_LOOK_S: Final = 1.0
#: attempts to load cold pages, see `pipeline`
_WARM_TRIES: Final = 3


class _Growth:
    """Waits until partitions grow or the time is up. Partitions join in slices."""

    __slots__ = ("_connection", "_grown", "_is_committed", "_missing", "_partitions")

    def __init__(self, context: Context, is_committed: bool, missing: int) -> None:
        self._is_committed = is_committed
        self._connection = context.connection
        self._missing = missing
        self._partitions: list[Partition] = []
        self._grown = asyncio.Event()

    def join(self, partitions: Sequence[Partition]) -> Generator[None, None, None]:
        for number, partition in enumerate(partitions):
            self._partitions.append(partition)
            partition.readers.join(self, self._is_committed)
            if not number % _STEP:
                yield

    def more(self, size: int) -> None:
        """A partition has grown by `size` bytes."""
        self._missing -= size
        if self._missing <= 0:
            self._grown.set()

    async def wait(self, wait_s: float) -> None:
        """Return when there are enough bytes, when the time is up, or soon after the client has left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not self._grown.is_set() and not self._connection.closed:
            left_s = deadline - loop.time()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_S)):
                    await self._grown.wait()

    def leave(self) -> None:
        for partition in self._partitions:
            partition.readers.leave(self)


class LargeFetch:
    """One Fetch request with many partitions."""

    def __init__(self, fetch: ClientFetch, wanted: Sequence[WantedPartition]) -> None:
        self._fetch = fetch
        #: some partitions each
        self._parts = [fetch.part(wanted[at : at + _STEP]) for at in range(0, len(wanted), _STEP)]

    async def run(self, min_bytes: int, max_wait_ms: int) -> FetchResponse:
        context, may_wait = self._fetch.context, max_wait_ms > 0
        reads = await context.until_done(self._read(may_wait))
        missing = min_bytes - reads[-1].size
        if may_wait and missing > 0 and not any(read.is_urgent or read.cold for read in reads):
            partitions = [partition for read in reads for _, partition in read.quiet]
            if partitions:
                reads = await self._wait(partitions, min_bytes, missing, max_wait_ms / 1000)
        for _ in range(_WARM_TRIES):
            cold = list(chain.from_iterable(read.cold for read in reads))
            if not cold:
                break
            is_loaded = await warm_pages(self._fetch.environment.workers, cold[:_STEP])
            reads = await context.until_done(self._read(False))
            if not is_loaded:
                break
        throttled = self._fetch.throttled(reads[-1])
        return await context.until_done(self._respond(reads)) if throttled is None else throttled

    def _read(self, may_wait: bool) -> Generator[None, None, list[ClientRead]]:
        reads: list[ClientRead] = []
        size = 0
        for part in self._parts:
            reads.append(part.read_behind(size, may_wait))
            size = reads[-1].size
            yield
        return reads

    async def _wait(
        self, partitions: Sequence[Partition], min_bytes: int, missing: int, wait_s: float
    ) -> list[ClientRead]:
        context = self._fetch.context
        growth = _Growth(context, self._fetch.is_committed, missing)
        try:
            await context.until_done(growth.join(partitions))
            # Records may have come before their partition was joined.
            reads = await context.until_done(self._read(True))
            if reads[-1].size < min_bytes and not any(read.is_urgent or read.cold for read in reads):
                await growth.wait(wait_s)
                reads = await context.until_done(self._read(False))
            return reads
        finally:
            growth.leave()

    def _respond(self, reads: Sequence[ClientRead]) -> Generator[None, None, FetchResponse]:
        response: FetchResponse | None = None
        for part, read in zip(self._parts, reads, strict=True):
            answer = part.respond(read)
            if response is None:
                response = answer
            else:
                _append(response, answer)
            yield
        assert response is not None, "a large fetch has partitions"
        return response


def _append(response: FetchResponse, answer: FetchResponse) -> None:
    """Add the partitions of `answer`; a topic may go on there."""
    topics = answer.responses
    if topics and response.responses:
        last, first = response.responses[-1], topics[0]
        if (last.topic, last.topic_id) == (first.topic, first.topic_id):
            last.partitions += first.partitions
            topics = topics[1:]
    response.responses += topics
    known = {endpoint.node_id for endpoint in response.node_endpoints}
    response.node_endpoints += [each for each in answer.node_endpoints if each.node_id not in known]


async def encoded(context: Context, response: FetchResponse) -> tuple[Any, Any]:
    """(writer, content) of a large response."""
    encode = FETCH.sliced_response_encoder(context.version)
    return with_header(FETCH, context.version), await context.until_done(encode(response))
