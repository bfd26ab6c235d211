"""Many active clients in one process: `python -m bench.active_clients PORT TOPIC PARTITIONS CLIENTS SECONDS`.

As many producers as consumers, each with a connection of its own. A producer sends one record a second. A
consumer always has a Fetch outstanding; its partition has the records of several producers, and the Fetch is
answered when as many bytes are there as these send in a second. So a second has one Produce per producer and
one answered Fetch per consumer. Frames are prebuilt: only times, offsets and checksums change.

It prints `connected` once all are, waits for a line of input, sends for SECONDS, and prints the results.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from struct import Struct
from typing import Final, cast

import uvloop

from lab.server import HOST
from penstock.records.checksum import crc32c
from penstock.records.record import Record, build_batch
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages import encode_request

VALUE: Final = bytes(100)
#: the last versions before the flexible encoding, in which the fields of responses have fixed positions
PRODUCE_VERSION: Final = 8
FETCH_VERSION: Final = 11
MAX_WAIT_MS: Final = 5000
TICK_S: Final = 0.005
#: connections that are opened at the same time
CONNECTING: Final = 100
_OFFSET: Final = Struct(">q")
_CRC: Final = Struct(">I")
_SIZE: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_BATCH_CRC: Final = 17
_BATCH_CRC_START: Final = 21
#: the start of the value, from the end of the batch: behind it is the number of headers, none
_VALUE_AT: Final = -len(VALUE) - 1
#: size, correlation id, throttle time, error, session, number of topics
_FETCH_TOPICS: Final = 22


def batch() -> bytes:
    return build_batch([Record(0, time.time_ns() // 1_000_000, None, VALUE)])


class Producer(asyncio.Protocol):
    """Sends a record on each call, and records the latency of the response."""

    def __init__(self, topic: str, partition: int, took: list[float]) -> None:
        data = PartitionProduceData(index=partition, records=memoryview(batch()))
        request = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        parts = encode_request(PRODUCE, PRODUCE_VERSION, 1, "active", request)
        self._frame = bytearray(b"".join(cast("list[bytes]", parts)))
        self._batch = memoryview(self._frame)[-len(batch()) :]
        self._took = took
        self._sent_at = 0.0
        #: behind size, correlation id, the lists of topics and of partitions, and the partition
        self._error_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
        self.failed = 0
        self.late = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        if self._sent_at:
            self.late += 1
            return
        _OFFSET.pack_into(self._batch, len(self._batch) + _VALUE_AT, time.time_ns())
        _CRC.pack_into(self._batch, _BATCH_CRC, crc32c(self._batch[_BATCH_CRC_START:]))
        self._sent_at = time.perf_counter()
        self._transport.write(bytes(self._frame))

    def data_received(self, data: bytes) -> None:
        (error,) = _ERROR.unpack_from(data, self._error_at)
        self.failed += error != 0
        self._took.append(time.perf_counter() - self._sent_at)
        self._sent_at = 0.0

    def connection_lost(self, error: Exception | None) -> None:
        self.failed += 1


class Consumer(asyncio.Protocol):
    """Fetches, and notes how old the newest record of each answer is."""

    def __init__(self, topic: str, partition: int, min_bytes: int, ages: list[float]) -> None:
        wanted = FetchPartition(partition=partition, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        mark = 0x5EED_0FF5_E7_00_00_00
        wanted.fetch_offset = mark
        parts = encode_request(FETCH, FETCH_VERSION, 1, "active", request)
        self._frame = bytearray(b"".join(cast("list[bytes]", parts)))
        self._offset_at = bytes(self._frame).index(_OFFSET.pack(mark))
        _OFFSET.pack_into(self._frame, self._offset_at, 0)
        self._batch_size = len(batch())
        self._received = bytearray()
        self._ages = ages
        self.failed = 0
        self.records = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def fetch(self) -> None:
        self._transport.write(bytes(self._frame))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if len(received) < 4 or len(received) < 4 + _SIZE.unpack_from(received)[0]:
            return
        if len(received) > _FETCH_TOPICS + self._batch_size:
            last = len(received) - self._batch_size
            (offset,) = _OFFSET.unpack_from(received, last)
            (sent_ns,) = _OFFSET.unpack_from(received, len(received) + _VALUE_AT)
            self._ages.append((time.time_ns() - sent_ns) / 1e9)
            (before,) = _OFFSET.unpack_from(self._frame, self._offset_at)
            self.records += offset + 1 - before
            _OFFSET.pack_into(self._frame, self._offset_at, offset + 1)
        self._received = bytearray()
        self.fetch()

    def connection_lost(self, error: Exception | None) -> None:
        self.failed += 1


async def _connect(port: int, clients: list[asyncio.Protocol]) -> None:
    loop = asyncio.get_running_loop()
    for first in range(0, len(clients), CONNECTING):
        await asyncio.gather(
            *(
                loop.create_connection(partial(_same, client), HOST, port)
                for client in clients[first : first + CONNECTING]
            )
        )


def _same(client: asyncio.Protocol) -> asyncio.Protocol:
    return client


async def _send(producers: list[Producer], seconds: float) -> float:
    """One record a second of each producer, evenly spread; returns how long it really took."""
    began = time.perf_counter()
    sent = 0
    while (passed := time.perf_counter() - began) < seconds:
        due = int(passed * len(producers))
        while sent < due:
            producers[sent % len(producers)].send()
            sent += 1
        await asyncio.sleep(TICK_S)
    return time.perf_counter() - began


async def main(port: int, topic: str, partitions: int, count: int, seconds: float) -> None:
    took: list[float] = []
    ages: list[float] = []
    min_bytes = max(1, count // partitions) * len(batch())
    producers = [Producer(topic, number % partitions, took) for number in range(count)]
    consumers = [Consumer(topic, number % partitions, min_bytes, ages) for number in range(count)]
    await _connect(port, [*producers, *consumers])
    print("connected", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for consumer in consumers:
        consumer.fetch()
    await _send(producers, 2.0)
    took.clear()
    ages.clear()
    late, cpu = sum(p.late for p in producers), time.process_time()
    print("sending", flush=True)
    lasted = await _send(producers, seconds)
    measured = {
        "seconds": lasted,
        "produced": len(took),
        "fetches": len(ages),
        "late": sum(p.late for p in producers) - late,
        "failed": sum(p.failed for p in producers) + sum(c.failed for c in consumers),
        "cpu": time.process_time() - cpu,
        "produce_ms": _percentiles(took),
        "deliver_ms": _percentiles(ages),
    }
    print(json.dumps(measured), flush=True)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"p50": float("nan"), "p99": float("nan")}
    ordered = sorted(seconds)
    return {f"p{p}": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 99)}


if __name__ == "__main__":
    port, topic, partitions, count, seconds = sys.argv[1:]
    uvloop.run(main(int(port), topic, int(partitions), int(count), float(seconds)))
