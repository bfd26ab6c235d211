"""What a fetch delivers when librdkafka serves a rebalance inside it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.errors import ClientError
from penstock.client.fetching import Fetcher
from penstock.client.first_contact import FirstContact
from penstock.model import ids
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


class OneThread(Librdkafka):
    """Notes the threads that call it, and revokes partition 0 in its first fetch."""

    def __init__(self, fetcher: Fetcher) -> None:
        super().__init__(fetcher)
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append((name, threading.get_ident()))

    def consume(self, limit: int, timeout: float) -> list[Fetched]:
        self.calls.append(("consume", threading.get_ident()))
        return super().consume(limit, timeout)


def test_a_consumer_calls_librdkafka_on_one_thread_only() -> None:
    """From version 2.16 on, confluent_kafka lets a second thread wait until a fetch has ended."""

    async def test() -> None:
        fetcher = new_fetcher()
        rk = OneThread(fetcher)
        started(fetcher, rk)
        partition = ids.TopicPartition("t", 1)

        async def commit(revoked: Any) -> dict[Any, int]:
            fetcher.store({partition: 3})
            await fetcher.call(rk.commit)
            return {}

        fetcher._on_revoked = commit
        fetcher.pause({partition})
        fetcher.resume({partition})
        await fetcher.fill(10, 0.0)
        await fetcher.close()

        assert [name for name, _ in rk.calls] == [
            "pause",
            "resume",
            "consume",
            "consume",
            "store_offsets",
            "commit",
            "close",
        ]
        assert len({thread for _, thread in rk.calls}) == 1
        assert threading.get_ident() not in {thread for _, thread in rk.calls}

    asyncio.run(asyncio.wait_for(test(), 60))


def test_an_assignment_is_known_without_a_call_of_librdkafka() -> None:
    async def test() -> None:
        fetcher = new_fetcher()
        rk = OneThread(fetcher)
        started(fetcher, rk)
        await fetcher.call(fetcher._assigned, rk, [TopicPartition("t", 0), TopicPartition("t", 1)])
        assert fetcher.assignment() == {ids.TopicPartition("t", 0), ids.TopicPartition("t", 1)}
        await fetcher.call(fetcher._revoked, rk, [TopicPartition("t", 0)])
        assert fetcher.assignment() == {ids.TopicPartition("t", 1)}
        assert rk.calls == []

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_failed_call_that_nothing_waited_for_fails_the_next_fetch() -> None:
    class Refusing(OneThread):
        def store_offsets(self, **_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE))

    async def test() -> None:
        fetcher = new_fetcher()
        started(fetcher, Refusing(fetcher))
        fetcher.store({ids.TopicPartition("t", 0): 1})
        with pytest.raises(ClientError):
            await fetcher.fill(10, 0.0)
        assert delivered(fetcher) == [(1, 3)]

    asyncio.run(asyncio.wait_for(test(), 60))
