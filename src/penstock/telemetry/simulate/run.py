"""The run of a simulated fleet: ticks on a clock that may be faster than ours.

Simulated time and ours are two things. Samples carry the former, which begins at `start_ms` and advances by
`interval_s` per tick; `speed` says how many of its seconds pass in one of ours. A host measures at a moment
of its own within the tick, as real exporters do, so messages flow evenly instead of in bursts.

A tick's values become messages from pieces that never change. All that differs between two samples of one
field of one GPU is the time and the value, which become text in bulk, in C. So a message costs one `join`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.message import Message, format_timestamp
from penstock.telemetry.outlet import Outlet
from penstock.telemetry.pacing import Pace
from penstock.telemetry.simulate.dirt import Dirt, Shares
from penstock.telemetry.simulate.faults import Fault, FaultClass, Plan, label_lines
from penstock.telemetry.simulate.fleet import GPUS_PER_HOST, Fleet, Floats, build_fleet
from penstock.telemetry.simulate.physics import MEASURED, Physics

__all__ = ["Encoder", "Scenario", "Simulation"]

#: A tick is sent in at most this many pieces.
_PIECES: Final = 64
_FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The options of a simulation, which determine all messages."""

    hosts: int
    seed: int
    start_ms: int
    interval_s: float = 10.0
    #: simulated seconds; None has no end
    duration_s: float | None = None
    #: GPUs of each fault class and period, as a share of the fleet
    faults: float = 0.005
    fault_period_s: float = 3600.0
    dirt: Shares = field(default_factory=Shares)
    late_s: float = 600.0

    @property
    def end_s(self) -> float:
        return _FOREVER if self.duration_s is None else self.duration_s

    @property
    def period_s(self) -> float:
        """Faults of a run that is shorter than a period still begin and end in it."""
        return min(self.fault_period_s, self.end_s)


class Simulation:
    """One run. `labels` gets the ground truth, period by period, before the first sample of that period."""

    def __init__(self, scenario: Scenario, outlet: Outlet, labels: Path | None = None) -> None:
        self.scenario = scenario
        self.fleet: Fleet = build_fleet(scenario.hosts, scenario.seed)
        self.faults: dict[FaultClass, int] = {}
        self.ticks = 0
        self._outlet = outlet
        self._labels = labels
        self._physics = Physics(self.fleet, scenario.seed)
        self._encoder = Encoder(self.fleet, MEASURED)
        self._dirt = Dirt(
            scenario.dirt, scenario.seed, interval_s=scenario.interval_s, late_s=scenario.late_s
        )
        self._plan = Plan(scenario.seed, scenario.period_s, scenario.faults)
        self._periods = self._plan.faults(self.fleet)
        self._period_end_s = 0.0
        self._current: list[Fault] = []
        if labels is not None:
            labels.write_text("")

    @property
    def samples_per_tick(self) -> int:
        """Messages of one tick while no GPU is silent."""
        return self.fleet.gpus * len(MEASURED)

    def run(self, pace: Pace, progress: Callable[[float], None]) -> None:
        """Send until the end, or until `pace` stops it; calls `progress` with the seconds of each piece.

        It ends only between two pieces, after sending all held-back messages, so every counted message was
        sent.
        """
        for second, step_s in self._pieces():
            if not pace(second):
                break
            progress(step_s)
        self._outlet.send(self._dirt.rest())

    def summary(self) -> dict[str, Any]:
        """The counts of sent messages: `sent` is the sum of the rest."""
        tally = self._dirt.tally
        return {
            "seed": self.scenario.seed,
            "hosts": self.fleet.hosts,
            "gpus": self.fleet.gpus,
            "fields": len(MEASURED),
            "ticks": self.ticks,
            "sent": tally.sent,
            **asdict(tally),
            "faults": {fault_class.value: count for fault_class, count in sorted(self.faults.items())},
        }

    def _pieces(self) -> Iterator[tuple[float, float]]:
        """Before each piece is sent: the simulated second it belongs to, and how long it stands for."""
        scenario, hosts = self.scenario, self.fleet.hosts
        pieces = min(_PIECES, hosts)
        step_s = scenario.interval_s / pieces
        begin_s = 0.0
        while begin_s < scenario.end_s:
            self._begin_periods(begin_s)
            active = [fault for fault in self._current if fault.start_s <= begin_s < fault.end_s]
            values = self._physics.step(scenario.interval_s, active)
            silent = frozenset(
                fault.gpu
                for fault in active
                if fault.fault_class is FaultClass.SILENT and fault.gpu is not None
            )
            for piece in range(pieces):
                yield begin_s + piece * step_s, step_s
                for host in range(piece * hosts // pieces, (piece + 1) * hosts // pieces):
                    phase_s = host * scenario.interval_s / hosts
                    at_ms = scenario.start_ms + int((begin_s + phase_s) * 1000)
                    messages = self._encoder.encode(values, host, at_ms, silent)
                    self._outlet.send(self._dirt.soil(messages, begin_s + phase_s, scenario.end_s))
            self.ticks += 1
            begin_s = self.ticks * scenario.interval_s

    def _begin_periods(self, now_s: float) -> None:
        while now_s >= self._period_end_s:
            planned = next(self._periods)
            self._period_end_s += self._plan.period_s
            self._current = planned
            for fault in planned:
                self.faults[fault.fault_class] = self.faults.get(fault.fault_class, 0) + 1
            if self._labels is not None:
                with self._labels.open("a") as lines:
                    lines.write(label_lines(planned, self.fleet, self.scenario.start_ms))


class Encoder:
    """Messages of a fleet, for columns that are these fields."""

    def __init__(self, fleet: Fleet, fields: Sequence[int]) -> None:
        self._fields = len(fields)
        self._keys = [uuid.encode() for uuid in fleet.uuids]
        self._heads = [f'","metric_name":"{FIELDS[number].name}'.encode() for number in fields]
        self._middles = [
            f'","gpu_id":"{uuid}","device":"nvidia{gpu % GPUS_PER_HOST}",'
            f'"hostname":"{fleet.hostnames[gpu // GPUS_PER_HOST]}","value":'.encode()
            for gpu, uuid in enumerate(fleet.uuids)
        ]
        self._tails = [
            f',"labels":{json.dumps(fleet.labels(gpu), separators=(",", ":"))}}}'.encode()
            for gpu in range(fleet.gpus)
        ]

    def encode(self, values: Floats, host: int, timestamp_ms: int, silent: frozenset[int]) -> list[Message]:
        """The samples of one host at one time; `values` has the rows of all GPUs."""
        messages: list[Message] = []
        start = f'{{"timestamp":"{format_timestamp(timestamp_ms)}'.encode()
        join, append, heads = b"".join, messages.append, self._heads
        for gpu in range(host * GPUS_PER_HOST, (host + 1) * GPUS_PER_HOST):
            if gpu in silent:
                continue
            key, middle, tail = self._keys[gpu], self._middles[gpu], self._tails[gpu]
            texts = msgspec.json.encode(values[gpu].tolist())[1:-1].split(b",")
            for head, text in zip(heads, texts, strict=True):
                append(Message(key, join((start, head, middle, text, tail)), timestamp_ms))
        return messages
