"""Replaying recorded telemetry, at its own pace or another, once or again and again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from penstock.telemetry.logs import Counts, read_log
from penstock.telemetry.message import Message, Sample, as_message
from penstock.telemetry.outlet import Outlet
from penstock.telemetry.pacing import Pace

__all__ = ["Replay", "Shard"]

#: between the last sample and the first of the next round, where a recording has no rhythm of its own
_GAP_MS = 1000


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `of` equal parts of the GPUs: several replays share a file without sharing a GPU."""

    number: int = 0
    of: int = 1

    def has(self, gpu_id: str) -> bool:
        return zlib.crc32(gpu_id.encode()) % self.of == self.number


@dataclass(slots=True)
class Replay:
    """Sends the samples of a file.

    Times are the file's, moved by a constant: so that the first is `restamp_ms`, if that is given. With every
    further round they move on by the recording's length, since the same times again would only be duplicates.
    """

    path: Path
    outlet: Outlet
    shard: Shard = field(default_factory=Shard)
    restamp_ms: int | None = None
    hostname: str = ""
    counts: Counts = field(default_factory=Counts)
    #: samples of GPUs in other shards
    elsewhere: int = 0
    sent: int = 0

    def run(self, rounds: int | None, pace: Pace) -> None:
        """`rounds` times, or until `pace` says that it is enough; seconds count from the start."""
        timeline = _Timeline(self.restamp_ms)
        done = 0
        while rounds is None or done < rounds:
            before = self.sent
            for recorded_ms, samples in groupby(self._samples(), key=lambda sample: sample.timestamp_ms):
                at_ms = timeline.move(recorded_ms)
                if not pace((at_ms - timeline.begin_ms) / 1000):
                    return
                self.outlet.send(self._ours(samples, at_ms))
            if self.sent == before:
                return  # what has nothing to send will have nothing in the next round
            timeline.start_over()
            done += 1

    def _ours(self, samples: Iterable[Sample], at_ms: int) -> Iterator[Message]:
        for sample in samples:
            if self.shard.has(sample.gpu_id):
                self.sent += 1
                yield as_message(sample._replace(timestamp_ms=at_ms))
            else:
                self.elsewhere += 1

    def _samples(self) -> Iterator[Sample]:
        with self.path.open(encoding="utf-8", newline="") as lines:
            yield from read_log(lines, self.counts, self.hostname)


class _Timeline:
    """Where recorded times come to lie."""

    __slots__ = ("_first_ms", "_gap_ms", "_last_ms", "_restamp_ms", "_shift_ms", "begin_ms")

    def __init__(self, restamp_ms: int | None) -> None:
        self._first_ms: int | None = None
        self._last_ms = 0
        self._gap_ms = _GAP_MS
        self._shift_ms = 0
        self._restamp_ms = restamp_ms
        #: where the first sample of all comes to lie
        self.begin_ms = 0

    def move(self, recorded_ms: int) -> int:
        if self._first_ms is None:
            self._first_ms = recorded_ms
            self.begin_ms = recorded_ms if self._restamp_ms is None else self._restamp_ms
            self._shift_ms = self.begin_ms - recorded_ms
            self._last_ms = self.begin_ms
        at_ms = recorded_ms + self._shift_ms
        if at_ms > self._last_ms:
            self._gap_ms = at_ms - self._last_ms
            self._last_ms = at_ms
        return at_ms

    def start_over(self) -> None:
        """The next round begins one step behind the end of this one."""
        assert self._first_ms is not None, "a round that sent something has a first sample"
        self._shift_ms = self._last_ms + self._gap_ms - self._first_ms
