"""What a fetch delivers when librdkafka serves a rebalance inside it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.errors import ClientError
from penstock.client.fetching import Fetcher
from penstock.client.first_contact import FirstContact
from tests.client.fakes import Raw


class Fetched(Raw):
    """A message of a partition."""

    def __init__(self, partition: int, offset: int) -> None:
        super().__init__(offset)
        self._partition = partition

    def partition(self) -> int:
        return self._partition

    def error(self) -> None:
        return None


class Librdkafka:
    """Has one message of partition 0 and one of partition 1. It revokes partition 0 between them."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._calls = 0

    def consume(self, limit: int, timeout: float) -> list[Fetched]:
        self._calls += 1
        if self._calls == 1:
            return [Fetched(0, 7)]
        self._fetcher._revoked(self, [TopicPartition("t", 0)])
        return [Fetched(1, 3)]


async def nothing_to_commit(partitions: Any) -> dict[Any, int]:
    return {}


def started(fetcher: Fetcher, rk: Any) -> None:
    fetcher._config |= {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    fetcher.start()
    fetcher._rk.close()
    fetcher._rk = rk


def new_fetcher() -> Fetcher:
    contact = FirstContact("", None)
    contact.made = True
    return Fetcher({}, None, nothing_to_commit, cast(Any, None), contact)


def delivered(fetcher: Fetcher) -> list[tuple[int, int]]:
    return [(message.partition(), message.offset()) for message in fetcher.buffer]


def test_a_message_is_not_delivered_if_its_partition_is_revoked_in_the_same_fetch() -> None:
    """The new owner delivers it, and librdkafka does not store its offset here."""

    async def test() -> None:
        fetcher = new_fetcher()
        started(fetcher, Librdkafka(fetcher))
        await fetcher.fill(10, 0.0)
        assert delivered(fetcher) == [(1, 3)]

    asyncio.run(test())


def test_a_fetch_that_fails_halfway_loses_no_message_of_a_partition_that_stays() -> None:
    class FailsLater(Librdkafka):
        def consume(self, limit: int, timeout: float) -> list[Fetched]:
            self._calls += 1
            if self._calls == 2:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return [Fetched(1, self._calls)] if self._calls < 4 else []

    async def test() -> None:
        fetcher = new_fetcher()
        started(fetcher, FailsLater(fetcher))
        with pytest.raises(ClientError):
            await fetcher.fill(10, 0.0)
        await fetcher.fill(10, 0.0)
        assert delivered(fetcher) == [(1, 1), (1, 3)]

    asyncio.run(test())
