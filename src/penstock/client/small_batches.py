"""Compresses only batches whose values have at least a given size.

librdkafka compresses every batch or none. `SmallBatches` is a producer over two of librdkafka: the first
compresses, the second does not. Messages of a partition are gathered until their values reach the threshold,
and then go to the first; those that do not reach it within the linger time go to the second.

Invariant: a partition has messages in flight in at most one of the two producers, so their order is kept.
When the next batch belongs to the other producer, it waits for the acknowledgements.

Owned by: `Producer`. The lock is there because `flush` blocks and runs on a thread, as librdkafka's does.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as _Librdkafka

__all__ = ["SmallBatches"]

#: messages that wait here at most, as librdkafka's queue.buffering.max.messages
_HELD_MAX: Final = 100_000
#: the linger time of the producer that does not compress: its batches were gathered already
_PLAIN_LINGER_MS: Final = 1
_FLUSH_STEP_S: Final = 0.05


class _Entry(NamedTuple):
    value: bytes | None
    key: bytes | None
    on_delivery: Callable[[Any, Any], None]
    extra: dict[str, Any]


class _Lane:
    """The messages of one partition that are not acknowledged."""

    __slots__ = ("compressed", "gathered", "gathered_bytes", "in_flight", "opened_at", "place", "released")

    def __init__(self, place: tuple[str, int]) -> None:
        self.place = place
        #: the batch that is being gathered
        self.gathered: list[_Entry] = []
        self.gathered_bytes = 0
        self.opened_at = 0.0
        #: messages of complete batches, with whether they are to be compressed
        self.released: deque[tuple[bool, _Entry]] = deque()
        self.in_flight = 0
        #: which producer has those in flight
        self.compressed = False


class SmallBatches:
    """The part of librdkafka's producer that `Producer` uses."""

    def __init__(
        self, config: Mapping[str, Any], threshold: int, make: Callable[[dict[str, Any]], Any] = _Librdkafka
    ) -> None:
        self._threshold = threshold
        self._linger_s = config["linger.ms"] / 1000
        self._compressing = make(dict(config))
        plain = {"compression.type": "none", "linger.ms": min(_PLAIN_LINGER_MS, config["linger.ms"])}
        self._plain = make({**config, **plain})
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        #: lanes with something gathered or released, in the order in which that came
        self._busy: dict[_Lane, None] = {}
        self._held = 0

    def __len__(self) -> int:
        return self._held + len(self._plain) + len(self._compressing)

    def list_topics(self, *arguments: Any, **options: Any) -> Any:
        return self._plain.list_topics(*arguments, **options)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Callable[[Any, Any], None],
        **extra: Any,
    ) -> None:
        """As librdkafka's; the partition must be known."""
        assert partition >= 0, "a batch is one partition's"
        extra.setdefault("timestamp", round(time.time() * 1000))
        with self._lock:
            if self._held >= _HELD_MAX:
                raise BufferError
            lane = self._lanes.setdefault((topic, partition), _Lane((topic, partition)))
            if not lane.gathered:
                lane.opened_at = time.monotonic()
                self._busy[lane] = None
            lane.gathered.append(_Entry(value, key, on_delivery, extra))
            lane.gathered_bytes += len(value or b"")
            self._held += 1
            failed = self._advance(lane, time.monotonic())
        _report(failed)

    def poll(self, timeout: float) -> None:
        """Send due messages, and run the callbacks of delivery reports."""
        self._advance_all(time.monotonic())
        self._plain.poll(timeout)
        self._compressing.poll(timeout)

    def flush(self, timeout: float = math.inf) -> int:
        """Wait until nothing is left, or for the timeout; the number of messages that are left."""
        deadline = time.monotonic() + timeout
        while len(self) and time.monotonic() < deadline:
            self._advance_all(float("inf"))
            self._plain.flush(_FLUSH_STEP_S)
            self._compressing.flush(_FLUSH_STEP_S)
        return len(self)

    def purge(self) -> None:
        """Fail everything that waits."""
        with self._lock:
            entries = [
                entry
                for lane in self._busy
                for entry in (*(entry for _, entry in lane.released), *lane.gathered)
            ]
            for lane in self._busy:
                lane.gathered.clear()
                lane.released.clear()
                lane.gathered_bytes = 0
            self._busy.clear()
            self._held = 0
        _report([(entry, KafkaError(KafkaError._PURGE_QUEUE)) for entry in entries])
        self._plain.purge()
        self._compressing.purge()

    # -- lanes

    def _advance_all(self, now: float) -> None:
        failed = []
        with self._lock:
            for lane in list(self._busy):
                failed += self._advance(lane, now)
        _report(failed)

    def _advance(self, lane: _Lane, now: float) -> list[tuple[_Entry, Any]]:
        """Release the batch if it is complete, and produce what may go; returns what librdkafka refuses."""
        compressed = lane.gathered_bytes >= self._threshold
        if lane.gathered and (compressed or now >= lane.opened_at + self._linger_s):
            lane.released.extend((compressed, entry) for entry in lane.gathered)
            lane.gathered.clear()
            lane.gathered_bytes = 0
        failed = []
        while lane.released:
            compressed, entry = lane.released[0]
            if lane.in_flight and lane.compressed != compressed:
                break
            producer = self._compressing if compressed else self._plain
            try:
                producer.produce(
                    lane.place[0],
                    entry.value,
                    entry.key,
                    lane.place[1],
                    partial(self._delivered, lane, entry),
                    **entry.extra,
                )
            except BufferError:
                break
            except KafkaException as e:
                failed.append((entry, e.args[0]))
            else:
                lane.compressed = compressed
                lane.in_flight += 1
            lane.released.popleft()
            self._held -= 1
        if not lane.released and not lane.gathered:
            self._busy.pop(lane, None)
        return failed

    def _delivered(self, lane: _Lane, entry: _Entry, error: Any, message: Any) -> None:
        with self._lock:
            lane.in_flight -= 1
            failed = [] if lane.in_flight else self._advance(lane, time.monotonic())
        entry.on_delivery(error, message)
        _report(failed)


def _report(failed: list[tuple[_Entry, Any]]) -> None:
    for entry, error in failed:
        entry.on_delivery(error, None)
