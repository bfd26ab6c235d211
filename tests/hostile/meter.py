"""Measures one request: the steps of the broker's event loop, and the wait of an honest client.

The rule: no request holds the event loop for more than 20 ms, on a machine where a Produce request with one
record costs 25 µs, and an honest client waits for at most 50 ms. `Limits` scales both with what the Produce
request costs here. A suspect is repeated, and the smallest of its readings counts: a garbage collection or a
busy machine spoils one reading, a request that is too expensive spoils all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lab.stall_meter import StallMeter, Window
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.requests import batch_of, record
from tests.hostile.clients import Client, Kind, frame_of
from tests.hostile.ordinary import TOPICS
from tests.hostile.target import Target

__all__ = ["Limits", "Meter", "Reading"]

#: Produce with one record on the machine of the rule
_REFERENCE_MS: Final = 0.025
_STEP_MS: Final = 20.0
_WAIT_MS: Final = 50.0
_PRODUCES: Final = 400
#: readings of a suspect
REPEATED: Final = 4


class Limits(NamedTuple):
    """The limits of one reading on this machine."""

    #: one step of the loop, in processor time
    step_ms: float
    #: the wait of the honest client, in processor time of the loop and by the clock on the wall
    wait_ms: float
    #: how much slower this machine is than that of the rule
    scale: float


class Reading(NamedTuple):
    """The cost of one request."""

    #: the longest step of the loop and all steps, in processor time
    step_ms: float
    total_ms: float
    #: the worst wait of the honest client, in processor time of the loop and by the clock on the wall
    loop_ms: float
    wall_ms: float
    #: what ran in the longest step
    callback: str
    response_bytes: int

    def exceeds(self, limits: Limits) -> bool:
        return max(self.step_ms / limits.step_ms, self.wait_ms / limits.wait_ms) > 1

    @property
    def wait_ms(self) -> float:
        """What the honest client waited for the broker.

        The loop's processor time leaves out what other processes took. A wait that the loop spent without
        the processor (a full pipe, the interpreter lock) shows on the wall only.
        """
        return max(self.loop_ms, self.wall_ms)

    def __str__(self) -> str:
        return (
            f"step {self.step_ms:.1f} ms, in all {self.total_ms:.1f} ms; honest client waited "
            f"{self.wall_ms:.1f} ms ({self.loop_ms:.1f} ms of the loop)"
        )


class Meter:
    """Measures requests to one broker."""

    def __init__(self, target: Target, honest: StallMeter | None = None) -> None:
        """Without `honest` only the steps of the loop are measured."""
        self._target = target
        self._honest = honest
        self._clients: dict[Kind, Client] = {}
        self._window()
        self.limits = self._calibrate()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def client(self, kind: Kind) -> Client:
        found = self._clients.get(kind)
        if found is None:
            found = self._clients[kind] = Client(self._target, kind)
        return found

    def read(self, kind: Kind, frame: bytes) -> Reading:
        """Send a frame and take the cost until its response. A closed connection is a response, too."""
        client = self.client(kind)
        self._target.steps()
        if self._honest is not None:
            self._honest.window()
        try:
            size = len(client.exchange(frame))
        except ConnectionError:
            self._clients.pop(kind).close()
            size = 0
        except TimeoutError:
            # The response may still come: it belongs to no other request.
            self._clients.pop(kind).close()
            raise
        waited = self._window()
        steps = self._target.steps()
        loop, wall = (waited.loop_ms, waited.wall_ms) if waited is not None else (0.0, 0.0)
        return Reading(steps.longest_ms, steps.total_ms, loop, wall, steps.callback, size)

    def _window(self) -> Window | None:
        """What the honest client has seen. It rests until the next reading."""
        if self._honest is None:
            return None
        window = self._honest.window()
        self._honest.rest()
        return window

    def least(self, kind: Kind, frame: bytes, count: int = REPEATED) -> Reading:
        """The smallest values of several readings."""
        return self.least_of(kind, lambda: frame, count)

    def least_of(self, kind: Kind, frame: Callable[[], bytes], count: int = REPEATED) -> Reading:
        """As `least`, with a new frame for each reading."""
        return smallest(lambda: self.read(kind, frame()), count)

    def within_limits(self, kind: Kind, frame: Callable[[], bytes], step_ms: float = _STEP_MS) -> Reading:
        """A reading within the limits; the smallest values of several readings if none is.

        A request that is within them once is not read again: smaller values would not change the verdict.
        `step_ms` is the limit of a step on the machine of the rule.
        """
        limits = self.limits._replace(step_ms=step_ms * self.limits.scale)
        found = self.read(kind, frame())
        for _ in range(REPEATED - 1):
            if not found.exceeds(limits):
                break
            found = _smaller(found, self.read(kind, frame()))
        return found

    def stalls(self, kind: Kind, frame: bytes) -> Reading | None:
        """The reading of a request that exceeds the limits each time; None if it once did not."""
        first = self.read(kind, frame)
        if not first.exceeds(self.limits):
            return None
        again = self.least(kind, frame)
        least = _smaller(first, again)
        return least if least.exceeds(self.limits) else None

    def _calibrate(self) -> Limits:
        kind = Kind.SUPER if "SASL" in self._target.ports else Kind.OPEN
        data = PartitionProduceData(index=0, records=memoryview(batch_of([record(b"x" * 100)])))
        topic = TopicProduceData(name=next(iter(TOPICS)), partition_data=[data])
        frame = frame_of(PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]))
        client = self.client(kind)
        costs = []
        for _ in range(5):
            self._target.steps()
            for _ in range(_PRODUCES):
                client.exchange(frame)
            costs.append(self._target.steps().total_ms / _PRODUCES)
        # A faster machine keeps the limits of the rule.
        scale = max(1.0, min(costs) / _REFERENCE_MS)
        return Limits(_STEP_MS * scale, _WAIT_MS * scale, scale)


def smallest(read: Callable[[], Reading], count: int) -> Reading:
    found = read()
    for _ in range(count - 1):
        found = _smaller(found, read())
    return found


def _smaller(one: Reading, other: Reading) -> Reading:
    return Reading(
        min(one.step_ms, other.step_ms),
        min(one.total_ms, other.total_ms),
        min(one.loop_ms, other.loop_ms),
        min(one.wall_ms, other.wall_ms),
        one.callback if one.step_ms <= other.step_ms else other.callback,
        other.response_bytes,
    )
