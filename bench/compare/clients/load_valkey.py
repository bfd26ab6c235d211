"""Load through redis-py with its C parser, on the streams of Valkey or Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import redis

from bench.compare.clients.protocol import BATCH, WORK_BATCH, LoadClient, serve

_CALL_S = 30.0
_POLL_MS = 200
_GROUP = "workers"
_FIELD = b"v"


class ValkeyLoad(LoadClient):
    """One stream. A worker is a member of a consumer group of the stream."""

    is_blocking = True

    async def open(self) -> None:
        host, _, port = self.address.partition(":")
        self._server = redis.Redis(host=host, port=int(port), socket_timeout=_CALL_S)
        self._server.ping()

    async def close(self) -> None:
        self._server.close()

    async def create(self) -> None:
        self._server.xgroup_create(self.target, _GROUP, id="0", mkstream=True)

    async def remove(self) -> None:
        self._server.delete(self.target)

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        while batch := list(islice(payloads, BATCH)):
            pipeline = self._server.pipeline(transaction=False)
            for payload in batch:
                pipeline.xadd(self.target, {_FIELD: payload})
            pipeline.execute()
            if acked is not None:
                for payload in batch:
                    acked(payload)
                await asyncio.sleep(0)

    async def send_one(self, payload: bytes) -> None:
        self._server.xadd(self.target, {_FIELD: payload})

    async def send_soon(self, payload: bytes) -> None:
        self._server.xadd(self.target, {_FIELD: payload})

    async def read(self) -> AsyncIterator[list[bytes]]:
        last: Any = b"0"
        yield []
        while True:
            entries = _entries(self._server.xread({self.target: last}, count=BATCH, block=_POLL_MS))
            if entries:
                last = entries[-1][0]
            yield [fields[_FIELD] for _, fields in entries]
            await asyncio.sleep(0)

    async def read_one(self) -> AsyncIterator[list[bytes]]:
        async for batch in self._group(1):
            yield batch

    async def work(self) -> AsyncIterator[list[bytes]]:
        async for batch in self._group(WORK_BATCH):
            yield batch

    async def _group(self, most: int) -> AsyncIterator[list[bytes]]:
        yield []
        while True:
            found = self._server.xreadgroup(_GROUP, "worker", {self.target: ">"}, count=most, block=_POLL_MS)
            entries = _entries(found)
            if entries:
                self._server.xack(self.target, _GROUP, *(number for number, _ in entries))
            yield [fields[_FIELD] for _, fields in entries]


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of one stream, from an answer in either version of the protocol."""
    if not answer:
        return []
    streams = list(answer.values()) if isinstance(answer, dict) else [entries for _, entries in answer]
    entries = streams[0]
    # The newer protocol has one more list around them.
    if entries and isinstance(entries[0], list) and entries[0] and isinstance(entries[0][0], (list, tuple)):
        entries = entries[0]
    return [(number, fields) for number, fields in entries]


if __name__ == "__main__":
    serve(ValkeyLoad)
