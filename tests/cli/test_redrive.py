"""Redrive of dead letters: which letters name a message that is gone, and the pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from penstock.cli.failure import Failure
from penstock.cli.redrive import Origin, _Originals, _Pace

ORIGIN = Origin("jobs", 0, 5)


class FakeConsumer:
    """Returns the given messages, and nothing after them."""

    def __init__(self, *messages: Any, start: int = 0, end: int = 10, high_watermark: int = 10) -> None:
        """`end` is the last stable offset."""
        self._messages = list(messages)
        self._watermarks = start, end
        self.high_watermark = high_watermark
        self.assigned: list[Any] = []

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return self._watermarks

    def assign(self, places: list[Any]) -> None:
        self.assigned += places

    def poll(self, timeout_s: float) -> Any:
        return self._messages.pop(0) if self._messages else None


def message(offset: int, error: int | None = None) -> Any:
    return SimpleNamespace(
        offset=lambda: offset,
        error=lambda: None if error is None else KafkaError(error),
        key=lambda: b"k",
        value=lambda: b"v",
        headers=lambda: [("own", b"1"), ("none", None)],
    )


def read(consumer: Any, topic_error: int | None = None) -> Any:
    error = None if topic_error is None else KafkaError(topic_error)

    def metadata(client: Any, topic: str | None = None) -> Any:
        """As brokers with ACLs do, the list of all topics leaves out topics with errors."""
        topics = {} if error and topic is None else {"jobs": SimpleNamespace(error=error)}
        return SimpleNamespace(topics=topics)

    def list_offsets(places: Any, isolation_level: Any) -> Any:
        assert isolation_level is IsolationLevel.READ_UNCOMMITTED
        return dict.fromkeys(places, SimpleNamespace(offset=consumer.high_watermark))

    cluster: Any = SimpleNamespace(
        timeout_s=0.01,
        consumer=lambda config: consumer,
        metadata=metadata,
        admin=SimpleNamespace(list_offsets=list_offsets),
        wait=lambda future, about: future,
    )
    return _Originals(cluster).read(ORIGIN)


def test_a_message_that_is_there() -> None:
    assert read(FakeConsumer(message(5))) == (b"k", b"v", [("own", b"1"), ("none", None)])


@pytest.mark.parametrize(
    "consumer",
    [
        FakeConsumer(start=6),
        FakeConsumer(end=3, high_watermark=5),
        FakeConsumer(message(7)),
        FakeConsumer(message(10, KafkaError._PARTITION_EOF)),
    ],
    ids=["deleted", "truncated", "compacted", "compacted at the end"],
)
def test_a_message_that_is_gone(consumer: FakeConsumer) -> None:
    assert read(consumer) is None


@pytest.mark.parametrize(
    ("consumer", "reason"),
    [
        (FakeConsumer(), "timeout of 0.01 s"),
        (FakeConsumer(message(5, KafkaError._PARTITION_EOF)), "timeout of 0.01 s"),
        (
            FakeConsumer(message(5, KafkaError._PARTITION_EOF), end=5),
            "committed messages end at offset 5, .*",
        ),
        (FakeConsumer(end=3), "committed messages end at offset 3, where a transaction is open"),
        (FakeConsumer(message(5, KafkaError._AUTO_OFFSET_RESET)), "Local: No offset .*"),
        (FakeConsumer(message(-1, KafkaError._TRANSPORT)), "Local: Broker transport failure"),
    ],
    ids=["slow", "at the end", "not committed yet", "behind a transaction", "no offset", "lost connection"],
)
def test_a_message_that_may_be_there(consumer: FakeConsumer, reason: str) -> None:
    """Its letter must not be rejected."""
    with pytest.raises(Failure, match=rf"offset 5 of jobs-0 could not be read: {reason}; its letter is kept"):
        read(consumer)


def test_an_error_does_not_end_the_read() -> None:
    assert read(FakeConsumer(message(-1, KafkaError._TRANSPORT), message(5))) is not None


class Refusing(FakeConsumer):
    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


def test_a_topic_that_is_gone() -> None:
    assert read(Refusing(), KafkaError.UNKNOWN_TOPIC_OR_PART) is None
    with pytest.raises(Failure, match="could not be read: Local: Unknown partition; its letter is kept"):
        read(Refusing())


def test_a_topic_that_the_user_may_not_describe() -> None:
    """It may exist: its letters must not be rejected."""
    with pytest.raises(Failure, match="could not be read: Broker: Topic authorization failed; its letter"):
        read(Refusing(), KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_a_message_that_is_committed_in_time() -> None:
    end = message(5, KafkaError._PARTITION_EOF)
    assert read(FakeConsumer(end, message(5), end=5)) == (b"k", b"v", [("own", b"1"), ("none", None)])


@pytest.mark.parametrize(("rate", "letters"), [(None, 100), (1000, 100), (1, 60), (0.1, 6), (0.001, 1)])
def test_a_poll_takes_the_letters_of_a_minute(rate: float | None, letters: int) -> None:
    """Locks are renewed for ten minutes: letters that wait for longer would be sent twice."""
    assert in_loop(lambda: _Pace(rate)).letters_max == letters


def in_loop(make: Callable[[], _Pace]) -> _Pace:
    async def main() -> _Pace:
        return make()

    return asyncio.run(main())


def test_the_pace() -> None:
    async def main() -> float:
        pace = _Pace(0.001)
        await pace.wait()
        pace.count()
        return pace.due_in_s

    assert 900 < asyncio.run(main()) <= 1000
