"""A leader below min ISR queries all other replicas for the high watermark."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.replica.high_watermark_recovery import HighWatermarkRecovery
from penstock.broker.replica.leadership import Leadership
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.net.client import Peer
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData


class Replica:
    """A peer that knows a high watermark, or answers an error."""

    def __init__(self, high_watermark: int = -1, error: ErrorCode = ErrorCode.NONE) -> None:
        self.high_watermark = high_watermark
        self.error = error
        self.requests: list[FetchRequest] = []

    async def send(self, api: Any, request: FetchRequest, timeout_s: float) -> FetchResponse:
        self.requests.append(request)
        data = PartitionData(error_code=self.error, high_watermark=self.high_watermark)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


class Led:
    """A leadership in epoch 4, which began at offset 10, below min ISR."""

    def __init__(self, *followers: int) -> None:
        self.recovered: list[int] = []
        self.needs_high_watermark_recovery = True
        log = SimpleNamespace(high_watermark=0, leader_epochs=SimpleNamespace(epoch_of=lambda offset: 3))
        self.partition = SimpleNamespace(name="t-0", index=0, topic_id=bytes(16), log=log, leadership=self)
        self.state = SimpleNamespace(followers=followers, leader_epoch=4, epoch_start_offset=10)

    def recover_high_watermark(self, high_watermark: int) -> None:
        self.recovered.append(high_watermark)


def recover(led: Led, replicas: dict[int, Replica], fenced: tuple[int, ...] = ()) -> list[int]:
    brokers = {number: SimpleNamespace(active=number not in fenced) for number in replicas}
    recovery = HighWatermarkRecovery(
        cast(ClusterImage, SimpleNamespace(brokers=brokers)),
        lambda number, purpose: cast(Peer, replicas[number]),
    )
    asyncio.run(recovery.recover([cast(Leadership, led)]))
    return led.recovered


def test_the_highest_of_all_replicas_is_recovered() -> None:
    replicas = {2: Replica(7), 3: Replica(9)}
    assert recover(Led(2, 3), replicas) == [9]
    (wanted,) = replicas[2].requests[0].topics[0].partitions
    assert (wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch) == (4, 10, 3)


def test_nothing_is_recovered_while_a_replica_is_fenced() -> None:
    replicas = {2: Replica(7), 3: Replica(9)}
    assert recover(Led(2, 3), replicas, fenced=(3,)) == []
    assert replicas[2].requests == [], "a replica that is down may know a higher one"


def test_nothing_is_recovered_if_a_replica_refuses() -> None:
    assert recover(Led(2, 3), {2: Replica(7), 3: Replica(error=ErrorCode.FENCED_LEADER_EPOCH)}) == []


def test_nothing_is_recovered_in_a_later_leadership() -> None:
    led = Led(2)
    led.partition.leadership = None
    assert recover(led, {2: Replica(7)}) == []
