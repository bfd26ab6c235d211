"""The workload of simulated clients: they write unique values, and read them.

Each client runs until it is stopped, and then finishes its current operation, so that after healing every
write is acknowledged or refused. Failed requests are retried with the same sequence, as real clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.records.batch import HEADER_SIZE, crc_matches, read_offset_and_length
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.history import (
    Acked,
    Batch,
    Read,
    Sent,
    Unsure,
)
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

__all__ = [
    "FATAL",
    "Consumer",
    "Producer",
    "earliest",
    "fetch",
    "new_producer_id",
    "produce",
    "read_all",
    "records_of",
]

#: Errors that trying again does not mend: the producer starts again with another id. (A clock that jumps back
#: makes a broker refuse what an earlier try may have written: INVALID_TIMESTAMP does not say that it is not.)
FATAL: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
_BATCH_RECORDS_MAX: Final = 3
_MAX_BYTES: Final = 1 << 20
_EARLIEST: Final = -2
#: decoded batches in memory: more than a run has
_DECODED_MAX: Final = 4096


class Producer:
    """An idempotent producer; one batch at a time per partition, `batches` to each where that is given."""

    def __init__(
        self, client: Client, partitions: Sequence[TopicPartition], pause_s: float, batches: int | None = None
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._pause_s = pause_s
        self._batches = batches
        self._count = 0
        self.stopping = False

    async def run(self) -> None:
        await asyncio.gather(*(self._write(partition) for partition in self._partitions))

    async def _write(self, partition: TopicPartition) -> None:
        client, left = self._client, self._batches
        while not self.stopping and left != 0:
            producer_id, epoch = await new_producer_id(client)
            sequence = 0
            while not self.stopping and left != 0:
                await asyncio.sleep(client.rng.random() * self._pause_s)
                batch = Batch(partition, producer_id, epoch, sequence, self._values())
                client.saw(Sent(batch))
                code, offset = await self._send(batch)
                if code in FATAL:
                    client.saw(Unsure(batch, code.name))
                    break
                client.saw(Acked(batch, offset))
                sequence += len(batch.values)
                left = None if left is None else left - 1

    def _values(self) -> tuple[bytes, ...]:
        count = self._client.rng.randint(1, _BATCH_RECORDS_MAX)
        self._count += count
        return tuple(b"%s.%d" % (self._client.name.encode(), self._count - i) for i in range(count, 0, -1))

    async def _send(self, batch: Batch) -> tuple[ErrorCode, int | None]:
        """Send the batch until a response has its outcome."""
        data = _encode(batch, self._client.clock.now_ms())
        while True:
            try:
                answer = await produce(self._client, batch.partition, data)
            except Unanswered:
                await self._client.backoff()
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return code, answer.base_offset
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return ErrorCode.NONE, None
            if code in FATAL:
                return code, None
            self._client.forget(batch.partition)
            await self._client.backoff()


async def new_producer_id(client: Client) -> tuple[int, int]:
    """A producer id and its epoch, from any broker."""
    while True:
        try:
            answer = await client.send_to_any(
                INIT_PRODUCER_ID, InitProducerIdRequest(transaction_timeout_ms=60_000)
            )
        except Unanswered:
            await client.backoff()
            continue
        if answer.error_code == ErrorCode.NONE:
            return answer.producer_id, answer.producer_epoch
        await client.backoff()


async def produce(client: Client, partition: TopicPartition, data: bytes) -> PartitionProduceResponse:
    """One batch, with acks=all."""
    if partition.topic not in client.topic_ids:
        await client.refresh(partition.topic)
    topic = TopicProduceData(topic_id=client.topic_ids[partition.topic])
    topic.partition_data = [PartitionProduceData(index=partition.partition, records=memoryview(data))]
    request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
    answer = await client.send_to_leader(partition, PRODUCE, request)
    return answer.responses[0].partition_responses[0]


def _encode(batch: Batch, now_ms: int) -> bytes:
    return build_batch(
        [Record(i, now_ms, None, value) for i, value in enumerate(batch.values)],
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.sequence,
    )


class Consumer:
    """Reads partitions from the start, and now and then from the start again.

    A consumer with a rack reads from the replica that the leader names (KIP-392).
    """

    def __init__(
        self, client: Client, partitions: Sequence[TopicPartition], rewind: float, rack: str = ""
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._rewind = rewind
        self._rack = rack
        #: where to read instead of at the leader
        self._nearest: dict[TopicPartition, int] = {}
        self.stopping = False

    async def run(self) -> None:
        positions = dict.fromkeys(self._partitions, 0)
        while not self.stopping:
            partition = self._client.rng.choice(self._partitions)
            if self._client.rng.random() < self._rewind:
                positions[partition] = 0
            try:
                answer = await self._fetch(partition, positions[partition])
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    positions[partition] = max(positions[partition], await earliest(self._client, partition))
            except Unanswered:
                self._nearest.pop(partition, None)
                await self._client.backoff()
                continue
            if answer.error_code:
                self._nearest.pop(partition, None)
                self._client.forget(partition)
                await self._client.backoff()
                continue
            records = records_of(answer, positions[partition])
            if records is None:
                await self._client.backoff()
            elif records:
                self._client.saw(Read(partition, positions[partition], records))
                positions[partition] = records[-1][0] + 1

    async def _fetch(self, partition: TopicPartition, position: int) -> PartitionData:
        nearest = self._nearest.get(partition)
        answer = await fetch(self._client, partition, position, 200, rack=self._rack, replica=nearest)
        if answer.preferred_read_replica >= 0:
            self._nearest[partition] = answer.preferred_read_replica
        return answer


async def fetch(
    client: Client,
    partition: TopicPartition,
    offset: int,
    max_wait_ms: int,
    *,
    rack: str = "",
    replica: int | None = None,
    committed: bool = False,
) -> PartitionData:
    """One partition's records from `offset` on, of its leader or of another `replica`."""
    if partition.topic not in client.topic_ids:
        await client.refresh(partition.topic)
    wanted = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES
    )
    topic = FetchTopic(topic_id=client.topic_ids[partition.topic], partitions=[wanted])
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=_MAX_BYTES,
        isolation_level=committed,
        topics=[topic],
        rack_id=rack,
    )
    if replica is None:
        answer = await client.send_to_leader(partition, FETCH, request)
    else:
        answer = await client.send_to_node(replica, FETCH, request)
    if answer.error_code or not answer.responses:
        raise Unanswered(ErrorCode(answer.error_code).name)
    return answer.responses[0].partitions[0]


def records_of(answer: PartitionData, position: int) -> tuple[tuple[int, bytes], ...] | None:
    """None where bytes are damaged, in a header or elsewhere: any client notices that and fetches again."""
    data = answer.records
    assert data is None or isinstance(data, memoryview)
    content = b"" if data is None else bytes(data)
    found: list[tuple[int, bytes]] = []
    start = 0
    while start + HEADER_SIZE <= len(content):
        size = max(HEADER_SIZE, read_offset_and_length(content, start)[1])
        try:
            records = _decoded(content[start : start + size])
        except CorruptMessage:
            return None
        if records is None:
            break
        if records and records[0][0] < position:
            records = tuple(each for each in records if each[0] >= position)
        found += records
        start += size
    return tuple(found)


@lru_cache(maxsize=_DECODED_MAX)
def _decoded(batch: bytes) -> tuple[tuple[int, bytes], ...] | None:
    """The offsets and values of a batch, None if it is incomplete; CorruptMessage for any other damage.

    Every consumer of a run reads the same batches, and reads them again after a rewind.
    """
    for _, header in iter_batches(batch):
        if not crc_matches(batch, header):
            raise CorruptMessage(f"the checksum at offset {header.base_offset} does not match")
        if header.is_control:
            return ()
        return tuple((record.offset, record.value or b"") for record in iter_records(batch))
    return None


async def earliest(client: Client, partition: TopicPartition) -> int:
    """Where the partition begins, as its leader has it."""
    wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=_EARLIEST)
    topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    answer = (await client.send_to_leader(partition, LIST_OFFSETS, request)).topics[0].partitions[0]
    if answer.error_code:
        client.forget(partition)
        raise Unanswered(ErrorCode(answer.error_code).name)
    return answer.offset


async def read_all(client: Client, partition: TopicPartition) -> list[tuple[int, bytes]]:
    """Everything that can be read of a partition, when nothing is being written any more."""
    found: list[tuple[int, bytes]] = []
    while True:
        try:
            position = found[-1][0] + 1 if found else await earliest(client, partition)
            answer = await fetch(client, partition, position, max_wait_ms=0)
        except Unanswered:
            await client.backoff()
            continue
        if answer.error_code:
            client.forget(partition)
            await client.backoff()
            continue
        records = records_of(answer, position)
        if records is None:
            await client.backoff()
        elif records:
            found += records
        else:
            return found
