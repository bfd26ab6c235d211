"""Reads of many small batches of an encrypted partition: each batch is a frame of its own to decrypt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from penstock.broker.shares.delay_source import DelaySource
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, create_topic, new_name
from tests.broker.share_groups import Member, set_group_configs
from tests.broker.stalls import assert_brief
from tests.encryption.keyring import OLD

T = TypeVar("T")
_BATCHES = 12_000


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {
        "penstock.encryption.keys": OLD,
        "group.share.max.partition.max.record.locks": "10000",
        "group.share.partition.max.record.locks": "10000",
    }
    with broker(data=tmp_path_factory.mktemp("encrypted") / "data", config=settings) as started:
        yield started


@pytest.fixture(scope="module")
def filled(encrypted: BrokerThread) -> Topic:
    """A partition with a mebibyte of batches of one byte."""
    with RawClient(encrypted.bootstrap) as client:
        topic = create_topic(client)
    partition = encrypted.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    batch = batch_of([b"x"])

    def append() -> None:
        for _ in range(_BATCHES):
            partition.append(memoryview(bytearray(batch)))

    _run(encrypted, _called(append))
    return topic


async def _called(function: Callable[[], T]) -> T:
    return function()


def _run(running: BrokerThread, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, running.broker.stages.listening.server.loop).result(60)


def test_a_share_fetch_of_many_small_batches(encrypted: BrokerThread, filled: Topic) -> None:
    """A read of a mebibyte held the event loop for 49 ms."""
    with RawClient(encrypted.bootstrap) as client:
        group = new_name("group")
        set_group_configs(client, group, share_auto_offset_reset="earliest")
        member = Member(client, group, filled).join()
        taken = []

        def take() -> None:
            taken.extend(member.take(max_records=10_000, max_bytes=50 << 20, batch_size=10_000))

        assert_brief(encrypted, take)
    # Several requests get what one did before.
    assert taken[0][0] == 0 and all(after[0] == before[1] + 1 for before, after in pairwise(taken))


def test_a_delay_partition_of_many_small_batches(encrypted: BrokerThread, filled: Topic) -> None:
    partition = encrypted.broker.stages.storage.partitions.find(filled.name, 0)
    assert not isinstance(partition, ErrorCode)
    source = DelaySource(partition, encrypted.broker.stages.world.workers)

    def read() -> None:
        assert _run(encrypted, source.part(0)).end > 1000

    assert_brief(encrypted, read)
