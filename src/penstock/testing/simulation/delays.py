"""A delay topic in a run with a share group: its producer, a reader of its target, and the verdict.

Every acknowledged message must be in the target once. A message whose outcome is unknown may be there, once.
The producer repeats a message until it knows the outcome, so a second copy in the target may come from the
delay topic as well as from its mover. A message must not be in the target before its time, as long as no
clock jumps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.model.delays import DELIVER_AT_HEADER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.records.record import Record, build_batch
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.cluster import SimCluster, Worker
from penstock.testing.simulation.log_starts import DELAY_TOPIC
from penstock.testing.simulation.workload import (
    FATAL,
    fetch,
    new_producer_id,
    produce,
    read_all,
    records_of,
)

__all__ = ["PRODUCER", "TARGET_TOPIC", "DelayChecker", "Delays"]

TARGET_TOPIC: Final = "due"
#: the host of the client that sends delayed messages
PRODUCER: Final = "delay-producer"
_TARGET: Final = TopicPartition(TARGET_TOPIC, 0)
_SOURCE: Final = TopicPartition(DELAY_TOPIC, 0)
_DELAY_MS_MAX: Final = 3000
_PAUSE_S: Final = 0.4
_LOOK_S: Final = 0.05
#: virtual seconds for the last messages to reach the target: a request to a dead machine takes as long
_DRAIN_S: Final = 30.0


class DelayChecker:
    """The messages of one delay topic."""

    def __init__(self, *, is_punctual: bool) -> None:
        """With `is_punctual`, a message that is early is a violation."""
        self._is_punctual = is_punctual
        self.due_ms: dict[bytes, int] = {}
        self.acknowledged: set[bytes] = set()
        #: the offset of each message that a reader has found in the target
        self._found: dict[bytes, int] = {}

    def seen(self, value: bytes, offset: int, now_ms: int) -> None:
        """A reader has found a message in the target."""
        if self._is_punctual and now_ms < self.due_ms[value]:
            raise Violation("delayed message early", f"{value!r} at {now_ms}, due at {self.due_ms[value]}")
        first = self._found.setdefault(value, offset)
        if first != offset:
            raise Violation("delayed message written twice", f"{value!r} at {first} and {offset}")

    def missing(self, values: list[bytes]) -> set[bytes]:
        return self.acknowledged.difference(values)

    def finish(self, values: list[bytes]) -> None:
        """`values` are in the target at the end."""
        if missing := self.missing(values):
            raise Violation("delayed message lost", repr(sorted(missing)))
        if twice := [value for value, count in Counter(values).items() if count > 1]:
            raise Violation("delayed message written twice", repr(twice))


class _Producer:
    """An idempotent producer: it sends each message until it knows the outcome."""

    def __init__(self, client: Client, checker: DelayChecker) -> None:
        self._client = client
        self._checker = checker
        self.stopping = False

    async def run(self) -> None:
        client = self._client
        while not self.stopping:
            producer_id, epoch = await new_producer_id(client)
            sequence = 0
            while not self.stopping:
                await asyncio.sleep(client.rng.random() * _PAUSE_S)
                if not await self._send_next(producer_id, epoch, sequence):
                    break
                sequence += 1

    async def _send_next(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Send one more message. Returns false if the producer has to begin with another id."""
        client, checker = self._client, self._checker
        value = b"delayed-%d" % len(checker.due_ms)
        now_ms = client.clock.now_ms()
        due_ms = now_ms + client.rng.randrange(_DELAY_MS_MAX) * client.rng.randrange(2)
        checker.due_ms[value] = due_ms
        header = (DELIVER_AT_HEADER, str(due_ms).encode())
        batch = build_batch(
            [Record(0, now_ms, None, value, (header,))],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        while True:
            try:
                answer = await produce(client, _SOURCE, batch)
            except Unanswered:
                await client.backoff()
                continue
            code = ErrorCode(answer.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                checker.acknowledged.add(value)
                return True
            if code in FATAL:
                return False
            client.forget(_SOURCE)
            await client.backoff()


class _Reader:
    """Reads the target as it grows."""

    def __init__(self, client: Client, checker: DelayChecker, violated: Callable[[Violation], None]) -> None:
        self._client = client
        self._checker = checker
        self._violated = violated
        self.stopping = False

    async def run(self) -> None:
        try:
            await self._read()
        except Violation as e:
            self._violated(e)

    async def _read(self) -> None:
        client, position = self._client, 0
        while not self.stopping:
            await asyncio.sleep(_LOOK_S)
            try:
                answer = await fetch(client, _TARGET, position, max_wait_ms=100)
            except Unanswered:
                await client.backoff()
                continue
            if answer.error_code:
                client.forget(_TARGET)
                continue
            for offset, value in records_of(answer, position) or ():
                self._checker.seen(value, offset, client.clock.now_ms())
                position = offset + 1


class Delays:
    """The delay topic of one run."""

    def __init__(
        self, cluster: SimCluster, violated: Callable[[Violation], None], *, is_punctual: bool
    ) -> None:
        self._cluster = cluster
        self._violated = violated
        self.checker = DelayChecker(is_punctual=is_punctual)

    def workers(self) -> list[tuple[Client, Worker]]:
        producer, reader = self._cluster.client(PRODUCER), self._cluster.client("delay-reader")
        return [
            (producer, _Producer(producer, self.checker)),
            (reader, _Reader(reader, self.checker, self._violated)),
        ]

    async def prepare(self, replicas: int) -> None:
        admin, loop = self._cluster.admin, self._cluster.loop
        kept = {"retention.ms": "-1", "retention.bytes": "-1", "penstock.delay.target": _TARGET.topic}
        await admin.process.spawn(loop, admin.create_topic(_TARGET.topic, 1, replicas))
        await admin.process.spawn(loop, admin.create_topic(DELAY_TOPIC, 1, replicas, kept))

    async def verify(self) -> None:
        """Wait until all messages are in the target.

        Clocks are corrected first: a leader whose clock is an hour behind delivers an hour late.
        """
        admin, loop = self._cluster.admin, self._cluster.loop
        for node in self._cluster.nodes:
            node.clock.correct()
        deadline = loop.time() + _DRAIN_S
        while True:
            found = await admin.process.spawn(loop, read_all(admin, _TARGET))
            values = [value for _, value in found]
            if not self.checker.missing(values) or loop.time() > deadline:
                self.checker.finish(values)
                return
            await asyncio.sleep(_LOOK_S)
