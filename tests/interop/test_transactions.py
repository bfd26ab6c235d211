"""Transactions come later: until then each client says so at once, in its own words, and never hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

#: well below any client's own patience
SOON_S = 30.0


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON_S


def test_confluent(bootstrap: str) -> None:
    quiet = {"logger": None, "error_cb": lambda _: None, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", **quiet})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(60)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.value.args[0].fatal()


def test_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
    with closing(producer), pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()


def test_aiokafka(bootstrap: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
        try:
            with pytest.raises(AioKafkaError, match="TransactionalIdAuthorizationFailed"):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(run())
