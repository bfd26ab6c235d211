"""A broker with one partition of `__consumer_offsets`, and requests that go to its coordinator directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.replica.partition import Partition
from penstock.groups.ledger import Client
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.records.record import iter_batches
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

__all__ = [
    "GROUP",
    "answer",
    "batches",
    "commit",
    "crowd",
    "error_response",
    "fetch",
    "fetched",
    "make_durable",
    "offsets_partition",
    "run",
    "running",
]

CLIENT = Client("c", "/h", 9)
GROUP = "g"


@asynccontextmanager
async def running(**config: str) -> AsyncIterator[Broker]:
    """A broker in this event loop, with an offsets topic of one partition."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    if "log_dirs" not in config:
        settings["penstock.memory"] = "true"
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    parsed = BrokerConfig(settings)
    broker = await Broker.open(parsed, system_world(parsed))
    await broker.start()
    try:
        await broker.stages.coordinators.groups.runtime.topic.ensure()
        yield broker
    finally:
        await broker.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def offsets_partition(broker: Broker) -> Partition:
    partition = broker.stages.storage.partitions.find(OFFSETS_TOPIC, 0)
    assert isinstance(partition, Partition)
    return partition


def commit(broker: Broker, offset: int, metadata: str = "") -> Any:
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    return broker.stages.coordinators.groups.runtime.submit(
        GROUP, lambda shard, _: shard.commit(request, CLIENT.version), error_response
    )


def error_response(error: ApiError) -> OffsetFetchResponseGroup:
    """Any response type that carries an error code."""
    return OffsetFetchResponseGroup(error_code=error.code)


def fetch(broker: Broker) -> Any:
    request = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    return broker.stages.coordinators.groups.runtime.submit(
        GROUP, lambda shard, _: shard.fetch(request), error_response
    )


async def answer(promised: Any) -> Any:
    """The response, once it is there."""
    if not isinstance(promised, Deferred):
        return promised
    arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    promised.then(arrived.set_result)
    return await arrived


async def fetched(broker: Broker) -> int:
    response = await answer(fetch(broker))
    assert response.error_code == ErrorCode.NONE
    return int(response.topics[0].partitions[0].committed_offset)


def batches(broker: Broker) -> list[int]:
    """The number of records in each batch of the offsets topic."""
    log = offsets_partition(broker).log
    found = log.read(0, 1 << 20, upper=log.end_offset)
    return [] if found is None else [header.record_count for _, header in iter_batches(found.read())]


def crowd(broker: Broker, size: int) -> list[tuple[int, int]]:
    """Commit often in one turn. Returns a list that gets the (number, error) of each commit."""
    answered: list[tuple[int, int]] = []

    def note(number: int, response: Any) -> None:
        if isinstance(response, OffsetCommitResponse):
            answered.append((number, response.topics[0].partitions[0].error_code))
        else:
            answered.append((number, response.error_code))

    for number in range(size):
        promised = commit(broker, number)
        if isinstance(promised, Deferred):
            promised.then(partial(note, number))
        else:
            note(number, promised)
    return answered


def make_durable(broker: Broker) -> None:
    partition = offsets_partition(broker)
    partition.sync.flushed(partition.log.end_offset, partition.sync.hidden_bytes)
