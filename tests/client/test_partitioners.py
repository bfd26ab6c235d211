from __future__ import annotations

import asyncio
import zlib

import pytest
from kafka.partitioner.default import murmur2

from penstock.client import Admin, MisusedClient, Partitioner, Producer, range_partitioner, round_robin
from penstock.client.partitioners import KeyHash, hash_partitioner
from penstock.client.partitioners import murmur2 as hashed

KEYS = [b"key-%d" % i for i in range(40)]
PARTITIONS = 5


async def placed(bootstrap: str, topic: str, producer: Producer) -> list[int]:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS)
    async with producer:
        return [d.partition for d in await asyncio.gather(*(producer.send(topic, k, key=k) for k in KEYS))]


def test_keys_go_where_java_sends_them(bootstrap: str, name: str) -> None:
    found = asyncio.run(placed(bootstrap, name, Producer(bootstrap)))
    assert found == [(murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in KEYS]


def test_the_hash_of_java_in_python() -> None:
    keys = [*KEYS, b"", b"\xff", b"\x80\xfe\x01", "ключ".encode(), bytes(range(256))]
    assert [hashed(key) for key in keys] == [murmur2(key) & 0x7FFFFFFF for key in keys]


def test_keys_by_their_crc32(bootstrap: str, name: str) -> None:
    expected = [zlib.crc32(key) % PARTITIONS for key in KEYS]
    assert asyncio.run(placed(bootstrap, name, Producer(bootstrap, partitioner="crc32"))) == expected
    in_python = hash_partitioner("crc32", "sticky")
    assert [in_python(key, PARTITIONS) for key in KEYS] == expected


@pytest.mark.parametrize("key_hash", ["key_hash", "crc32"])
def test_messages_without_a_key_take_turns_and_those_with_one_do_not(
    bootstrap: str, name: str, key_hash: KeyHash
) -> None:
    async def send(producer: Producer) -> list[tuple[int, int]]:
        async with Admin(bootstrap) as admin:
            for topic in (name, f"{name}-other"):
                await admin.create_topic(topic, partitions=2)
        async with producer:
            return [
                (
                    (await producer.send(name, b"x", key=key)).partition,
                    (await producer.send(f"{name}-other", b"x", key=key)).partition,
                )
                for key in (None, b"a", None, b"b", None)
            ]

    found = asyncio.run(send(Producer(bootstrap, partitioner=key_hash, keyless="round_robin")))
    hashing = hash_partitioner(key_hash, "sticky")
    # Two topics do not take each other's turns.
    assert found[::2] == [(0, 0), (1, 1), (0, 0)]
    assert found[1::2] == [(hashing(key, 2), hashing(key, 2)) for key in (b"a", b"b")]


def test_round_robin(bootstrap: str, name: str) -> None:
    found = asyncio.run(placed(bootstrap, name, Producer(bootstrap, partitioner=round_robin())))
    assert found == [i % PARTITIONS for i in range(len(KEYS))]


def test_a_function_of_ones_own(bootstrap: str, name: str) -> None:
    def last(key: bytes | None, partitions: int) -> int:
        return partitions - 1

    assert set(asyncio.run(placed(bootstrap, name, Producer(bootstrap, partitioner=last)))) == {
        PARTITIONS - 1
    }


def test_ranges() -> None:
    partition = range_partitioner(["g", "p"])
    assert [partition(key, 3) for key in (None, b"a", b"g", b"o", b"p", b"z")] == [0, 0, 1, 1, 2, 2]


def test_ranges_that_cannot_be() -> None:
    with pytest.raises(MisusedClient, match="must increase"):
        range_partitioner(["p", "g"])
    with pytest.raises(MisusedClient, match="3 ranges do not fit 2 partitions"):
        range_partitioner(["g", "p"])(b"a", 2)


@pytest.mark.parametrize("partitioner", [lambda key, count: count, lambda key, count: -1])
def test_a_partition_that_is_not_there(bootstrap: str, name: str, partitioner: Partitioner) -> None:
    with pytest.raises(MisusedClient, match="has partitions 0 to 4"):
        asyncio.run(placed(bootstrap, name, Producer(bootstrap, partitioner=partitioner)))


def test_send_nowait_needs_the_count_first(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap, partitioner=round_robin()) as producer:
            with pytest.raises(MisusedClient, match=r"await producer\.partitions"):
                producer.send_nowait(name, b"x")
            assert await producer.partitions(name) == 3
            producer.send_nowait(name, b"x")

    asyncio.run(send())
