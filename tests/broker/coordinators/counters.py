"""A small coordinator that has nothing to do with groups: counters in a topic, with an effect per change.

`add` writes a record with the new value of a counter, and has a `Signal` as its effect. Replayed records of
a producer are pending until the end marker of its transaction. A request may wait for a counter to reach a
value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from penstock.broker.app.broker import Broker
from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partition import Partition
from penstock.coordination.ledger import Ledger
from penstock.coordination.outbox import Effect, Outbox, ReplyTo
from penstock.coordination.timers import TimerKey, Timers
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError
from penstock.storage.producers import AppendOrigin
from penstock.wire.schema import Struct, int16, int64, string
from tests.broker.coordinators.offset_commits import running

__all__ = ["Count", "CounterShard", "Counters", "Signal", "counting"]

TOPIC = "counters"
NO_PRODUCER = -1


class Counter(Struct):
    """The key of a record."""

    name: str = string()


class Count(Struct):
    """The value of a record, and the response to all requests."""

    value: int = int64()
    error_code: int = int16()


class Signal(NamedTuple):
    """The effect of a change."""

    name: str
    value: int


class CounterShard:
    """Counters of one partition."""

    def __init__(self, signal_on_load: bool) -> None:
        self._ledger = Ledger(_encode, self._apply)
        self._signal_on_load = signal_on_load
        self.values: dict[str, int] = {}
        #: (offset, producer id, producer epoch, name, value) of each replayed record
        self.replayed: list[tuple[int, int, int, str, int]] = []
        #: (producer id, producer epoch, committed) of each replayed marker
        self.markers: list[tuple[int, int, bool]] = []
        self._pending: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self._waiting: list[tuple[str, int, ReplyTo]] = []

    @property
    def outbox(self) -> Outbox:
        return self._ledger.outbox

    @property
    def timers(self) -> Timers:
        return self._ledger.timers

    def begin(self, now_ms: int, timer_ms: int) -> None:
        self._ledger.begin(now_ms, timer_ms)

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        assert value is not None
        name, number = key.decode(), int(value)
        self.replayed.append((offset, producer_id, producer_epoch, name, number))
        if producer_id == NO_PRODUCER:
            self.values[name] = number
        else:
            self._pending.setdefault((producer_id, producer_epoch), []).append((name, number))

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.markers.append((producer_id, producer_epoch, committed))
        pending = self._pending.pop((producer_id, producer_epoch), [])
        if committed:
            self.values.update(pending)

    def on_loaded(self) -> None:
        if self._signal_on_load:
            for name, value in self.values.items():
                self._ledger.after_commit(Signal(name, value))

    def timer_expired(self, key: TimerKey) -> None:
        self._ledger.write(Counter(name=key[0]), Count(value=0))

    # -- requests

    def add(self, name: str, number: int) -> Count:
        value = Count(value=self.values.get(name, 0) + number)
        self._ledger.write(Counter(name=name), value)
        self._ledger.after_commit(Signal(name, value.value))
        return value

    def read(self, name: str) -> Count:
        return Count(value=self.values.get(name, 0))

    def signal(self, name: str) -> None:
        """Repeat the effect of the last change, without a record."""
        self._ledger.after_commit(Signal(name, self.values[name]))

    def wait_for(self, name: str, value: int, reply_to: ReplyTo) -> None:
        self._waiting.append((name, value, reply_to))

    def reset_after(self, name: str, delay_ms: int) -> Count:
        self.timers.schedule((name,), delay_ms)
        return self.read(name)

    def _apply(self, key: Counter, value: Count) -> None:
        self.values[key.name] = value.value
        for waiting in self._waiting:
            if waiting[:2] == (key.name, value.value):
                self._ledger.reply(waiting[2], lambda: Count(value=value.value))


def _encode(key: Any, value: Any, version: int | None) -> tuple[bytes, bytes | None]:
    return key.name.encode(), str(value.value).encode()


class Counters:
    """The coordinator: its runtime, and the effects that it was given."""

    def __init__(self, broker: Broker, commit_timeout_s: float, signal_on_load: bool) -> None:
        self.effects: list[Signal] = []
        #: called with the partition and each effect
        self.on_effect: Callable[[int, Signal], None] = lambda index, signal: None
        self.broker = broker

        async def mend(_: Partition) -> None:
            raise AssertionError("no log is damaged")

        self.runtime = CoordinatorRuntime(
            InternalTopic(
                TOPIC,
                broker.stages.cluster.image,
                lambda: NewTopic(TOPIC, 1, 1),
                broker.stages.cluster.topics.create,
            ),
            broker.stages.storage.partitions,
            broker.stages.config.node_id,
            HostSettings(
                lambda: CounterShard(signal_on_load),
                broker.stages.world.clock,
                Loader(broker.stages.world.workers, broker.stages.storage.metrics, mend),
                commit_timeout_s,
                self._run_effect,
            ),
        )

    def _run_effect(self, index: int, effect: Effect) -> None:
        self.effects.append(effect)
        self.on_effect(index, effect)

    @property
    def partition(self) -> Partition:
        partition = self.broker.stages.storage.partitions.find(TOPIC, 0)
        assert isinstance(partition, Partition)
        return partition

    def submit(self, operation: Callable[[CounterShard, ReplyTo], Count | None]) -> Any:
        return self.runtime.submit("any key", operation, _error_response)

    def add(self, name: str, number: int = 1) -> Any:
        return self.submit(lambda shard, _: shard.add(name, number))

    def read(self, name: str) -> Any:
        return self.submit(lambda shard, _: shard.read(name))

    def append(self, batches: Iterable[bytes]) -> None:
        """Append batches as an earlier coordinator did."""
        for batch in batches:
            self.partition.append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR)

    def commit(self) -> None:
        """Commit all records, where the log's flusher does not."""
        self.partition.sync.flushed(self.partition.log.end_offset, self.partition.sync.hidden_bytes)


def _error_response(error: ApiError) -> Count:
    return Count(error_code=error.code)


@asynccontextmanager
async def counting(
    *, commit_timeout_s: float = 20, signal_on_load: bool = False, elect: bool = True, **config: str
) -> AsyncIterator[Counters]:
    """A broker that hosts the coordinator of counters on the one partition of their topic."""
    async with running(**config) as broker:
        counters = Counters(broker, commit_timeout_s, signal_on_load)
        await counters.runtime.topic.ensure()
        if elect:
            counters.runtime.elected(0)
        try:
            yield counters
        finally:
            counters.runtime.resign_all()
