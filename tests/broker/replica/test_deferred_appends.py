"""Appends that wait for a worker: what they hold counts, and nothing is copied that is refused anyway."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.broker.replica import deferred_appends
from penstock.model.errors import ErrorCode
from penstock.net.buffers import BufferPool
from penstock.records.codecs import Codec
from penstock.testing import broker
from penstock.wire.apis.produce import PRODUCE, ProduceResponse
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    only_partition,
    produce,
    produce_request,
    record,
    until,
)


def test_copies_count_as_memory_of_requests_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    recompress = deferred_appends._recompress

    def stuck(*args: Any) -> bytearray:
        go_on.wait(120)
        return recompress(*args)

    monkeypatch.setattr(deferred_appends, "_recompress", stuck)
    batch = batch_of([bytes(10_000)])
    with broker() as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs={"compression.type": "gzip"})
        pool = running.broker.stages.listening.server.pool
        try:
            for _ in range(3):
                client.send(PRODUCE, 12, produce_request(topic, batch, version=12))
            until(lambda: pool.held == 3 * len(batch))
            # They are those of one address: it may have a part of the memory.
            assert pool._held_by_address == {"127.0.0.1": 3 * len(batch)}
        finally:
            go_on.set()
        answers = [client.receive() for _ in range(3)]
        until(lambda: pool.held == 0)
        metrics = running.broker.stages.storage.metrics
        assert (metrics.messages_in, metrics.bytes_in) == (3, 3 * len(batch))

    offsets = [only_partition(a).base_offset for a in answers if isinstance(a, ProduceResponse)]
    assert offsets == [0, 1, 2]


@penstock_only
def test_a_batch_that_is_too_large_is_not_copied(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    monkeypatch.setattr(BufferPool, "charge", lambda _, size, address="": copied.append(size))
    topic = create_topic(client, configs={"compression.type": "gzip", "max.message.bytes": "1000"})

    answer = produce(client, topic, batch_of([bytes(2000)]))

    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not copied


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_appends_behind_a_long_validation_keep_their_order(client: RawClient, codec: Codec) -> None:
    topic = create_topic(client, configs={"cleanup.policy": "compact"})
    long = batch_of([record(b"", key=b"k")] * 5000, codec)
    for batch in (long, batch_of([record(b"x", key=b"k")]), long):
        client.send(PRODUCE, 12, produce_request(topic, batch, version=12))

    answers = [client.receive() for _ in range(3)]

    offsets = [only_partition(a).base_offset for a in answers if isinstance(a, ProduceResponse)]
    assert offsets == [0, 5000, 5001]
