"""Whatever happens to partitions, a repeated fetch is answered byte for byte as any other at that moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.base import repeated
from penstock.broker.fetch.pipeline import WaitingFetch
from penstock.broker.fetch.repeated_client import RepeatedClientFetches
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError
from penstock.net.deferred import Deferred
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages import encode_request
from tests.amounts import amount
from tests.broker.disks import on_disk
from tests.broker.fake_connections import fake_connection
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, create_topic, now_ms

STEPS = 60
SEEDS = 100
PER_TOPIC = 2


class History:
    """Two topics with random events, and a client that repeats its fetch of them."""

    def __init__(self, broker: Broker, topics: Sequence[Topic], random: Random) -> None:
        self._broker = broker
        self._topics = topics
        self._random = random
        found = [
            broker.stages.storage.partitions.find(topic.id, index)
            for topic in topics
            for index in range(PER_TOPIC)
        ]
        self.partitions = [partition for partition in found if isinstance(partition, Partition)]
        self._version = random.choice(range(13, FETCH.max_version + 1))
        listener = SimpleNamespace(name="PLAINTEXT")
        dispatcher = broker.serving.dispatcher
        self._connection = fake_connection(dispatcher, listener=listener)
        #: where no request is learned
        self._general = fake_connection(dispatcher, listener=listener)
        self._settings: dict[str, Any] = {
            "isolation_level": random.choice([0, 1, 1]),
            "max_bytes": random.choice([50 << 20, 50 << 20, 3000, 500, 100, 0, -5]),
            "max_wait_ms": random.choice([0, 0, 50_000]),
            "min_bytes": random.choice([0, 1, 1, 400]),
        }
        self._most = random.choice([1 << 20, 1 << 20, 3000, 300, 0, -1])
        self._knows_epochs = random.random() < 0.3
        self._sequences: dict[tuple[Partition, int], int] = {}
        self._open: set[tuple[Partition, int]] = set()

    def go_on(self) -> None:
        """An event, then both kinds of fetch."""
        # Only a leader accepts records.
        with suppress(ApiError):
            self._something(self._random.choice(self.partitions))
        parts = encode_request(FETCH, self._version, 7, "reader", self._request())
        frame = memoryview(b"".join(map(bytes, parts))[4:])  # type: ignore[arg-type]
        dispatcher = self._broker.serving.dispatcher
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repeated, "ENABLED", False)
            general: Any = dispatcher.serve(self._general, frame)
        known: Any = dispatcher.serve(self._connection, frame)
        assert isinstance(known, Deferred) == isinstance(general, Deferred)
        if isinstance(known, Deferred):
            if self._random.random() < 0.7:
                self._append(self._random.choice([p for p in self.partitions if p.leading] or [None]))
            for waiting in (known, general):
                _end_the_wait_of(waiting)
            known, general = known.value, general.value
        assert _written(known) == _written(general)

    def _something(self, partition: Partition) -> None:
        random = self._random
        choice = random.random()
        if choice < 0.45:
            self._append(partition)
        elif choice < 0.75:
            self._transact(partition, random.choice([7, 8]), ends=choice > 0.6)
        elif choice < 0.8:
            log = partition.log
            log.delete_records(random.randint(log.log_start_offset, log.high_watermark))
        elif choice < 0.85:
            partition.lead(partition.leader_epoch + 1, None)
        elif choice < 0.87:
            partition.step_down()
        elif choice < 0.9:
            partition.log.roll()

    def _append(self, partition: Partition | None) -> None:
        if partition is not None:
            values = [b"v" * self._random.choice([1, 10, 300, 3000])] * self._random.choice([1, 1, 3])
            partition.append(memoryview(bytearray(batch_of(values))))

    def _transact(self, partition: Partition, producer: int, *, ends: bool) -> None:
        key = (partition, producer)
        if not ends:
            sequence = self._sequences.get(key, 0)
            batch = batch_of(
                [b"t" * 20],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            partition.append(memoryview(bytearray(batch)), guard=NO_VERIFICATION)
            self._sequences[key] = sequence + 1
            self._open.add(key)
        elif key in self._open:
            end = EndTransaction(self._random.random() < 0.5, 0)
            marker = build_end_transaction(end, producer_id=producer, producer_epoch=0, timestamp=now_ms())
            partition.append(memoryview(bytearray(marker)), AppendOrigin.COORDINATOR)
            self._open.discard(key)

    def _request(self) -> FetchRequest:
        topics = []
        for place, topic in enumerate(self._topics):
            of_topic = self.partitions[place * PER_TOPIC : (place + 1) * PER_TOPIC]
            topics.append(FetchTopic(topic_id=topic.id, partitions=[self._wanted(p) for p in of_topic]))
        return FetchRequest(session_epoch=-1, topics=topics, **self._settings)

    def _wanted(self, partition: Partition) -> FetchPartition:
        log, random = partition.log, self._random
        ends = [log.high_watermark, log.high_watermark, log.last_stable_offset, log.end_offset - 1]
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch if self._knows_epochs else -1,
            fetch_offset=max(
                0, random.choice([*ends, log.end_offset - 1, random.randint(0, log.end_offset + 1)])
            ),
            partition_max_bytes=self._most,
        )


def _written(parts: Any) -> bytes:
    return b"".join(bytes(p) if isinstance(p, bytes | memoryview) else p.read() for p in parts)


def _end_the_wait_of(deferred: Deferred[Any]) -> None:
    """As its timer would."""
    assert deferred.on_cancel is not None
    waiting = deferred.on_cancel.__self__  # type: ignore[attr-defined]
    assert isinstance(waiting, WaitingFetch)
    waiting._finish()


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_a_repeated_fetch_is_answered_as_any_other(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    take = RepeatedClientFetches.take

    def counted(self: RepeatedClientFetches, frame: memoryview) -> Any:
        nonlocal taken
        answer = take(self, frame)
        taken += answer is not None
        return answer

    monkeypatch.setattr(RepeatedClientFetches, "take", counted)
    with on_disk(MemoryFiles()) as running, RawClient(running.bootstrap) as client:
        for seed in range(first, first + amount(20)):
            topics = [create_topic(client, partitions=PER_TOPIC) for _ in range(2)]
            history = running.call(lambda: History(running.broker, topics, Random(seed)))  # noqa: B023
            for _ in range(STEPS):
                running.call(history.go_on)
    assert taken > amount(100)
