"""Searches for requests that hold the event loop, and for costs that grow faster than the request.

For each case (a list or a text of one version's request) and each kind of client:

1. The request is sent with N and 4 N elements. Its cost must grow by at most a factor of 5.
2. If its steps would exceed the limit at the largest size, it is sent at that size. Neither a step of the
   loop nor the wait of the honest client may exceed the limits.

A request that fails is shrunk, so that the report has a small one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from penstock.wire.schema import Struct
from tests.hostile.clients import Kind, frame_of
from tests.hostile.large import Case, Form
from tests.hostile.meter import REPEATED, Meter, Reading, smallest
from tests.hostile.shrinking import described, shrunk

__all__ = ["Failure", "Search"]

GROWTH_MAX: Final = 5.0
_TIMES: Final = 4
#: Costs below this are mostly those of any request; a ratio of them says nothing.
_GROWTH_FROM_MS: Final = 6.0


@dataclass(frozen=True)
class Failure:
    """A request that breaks a rule."""

    case: Case
    kind: Kind
    #: "stall", "growth" or "unanswered"
    rule: str
    size: int
    #: None if there was no response
    reading: Reading | None
    detail: str
    request: str
    #: how much slower the machine is than that of the rule
    scale: float = 1.0

    def __str__(self) -> str:
        measured = "" if self.reading is None else f"    {self.reading}\n    in {self.reading.callback}\n"
        where = f"{self.case}, {self.kind}, size {self.size}"
        return f"{self.rule}: {where}: {self.detail}\n{measured}    {self.request}"


class Search:
    """Runs cases against one broker."""

    def __init__(self, meter: Meter, small: int, largest: int, *, shrinks: bool = True) -> None:
        """`small` is the N of the growth; `largest` the size at which a request must not stall."""
        self._meter = meter
        self._small = small
        self._largest = largest
        self._shrinks = shrinks
        self._salts = count()
        #: the size of the last request of a case
        self._sent = 0
        self.requests = 0
        self.failures: list[Failure] = []
        #: the worst step and the worst growth so far, for the report
        self.worst_step: tuple[float, str] = (0.0, "")
        self.worst_growth: tuple[float, str] = (0.0, "")

    def run(self, cases: Iterable[Case], kinds: Iterable[Kind]) -> None:
        for case in cases:
            for kind in kinds:
                self.check(case, kind)

    def check(self, case: Case, kind: Kind) -> None:
        """Check growth and stalls of one case."""
        try:
            self._check_growth(case, kind)
        except TimeoutError as e:
            request = described(case.build(self._sent))
            self._failed(Failure(case, kind, "unanswered", self._sent, None, str(e), request))

    def _check_growth(self, case: Case, kind: Kind) -> None:
        limits = self._meter.limits
        small, large = self._least(case, kind, self._small, 1), self._least(case, kind, self._large, 1)
        floor = _GROWTH_FROM_MS * limits.scale
        if large.total_ms > floor and large.total_ms > GROWTH_MAX * small.total_ms:
            small = _smaller(small, self._least(case, kind, self._small, REPEATED))
            large = _smaller(large, self._least(case, kind, self._large, REPEATED))
        self.worst_step = max(self.worst_step, (large.step_ms, f"{case}, {kind}"))
        growth = large.total_ms / max(small.total_ms, 0.01)
        if large.total_ms > floor:
            if growth > GROWTH_MAX:
                growth = min(growth, self._growth_beyond(case, kind, large))
            self.worst_growth = max(self.worst_growth, (growth, f"{case}, {kind}"))
            if growth > GROWTH_MAX:
                detail = f"{_TIMES} times the elements cost {growth:.1f} times as much"
                request = described(case.build(self._large))
                self._failed(Failure(case, kind, "growth", self._large, large, detail, request))
                return
        if large.step_ms * self._ratio(case) > limits.step_ms:
            self._check_stall(case, kind)

    def _growth_beyond(self, case: Case, kind: Kind, large: Reading) -> float:
        """The growth from 4 N to 16 N: a cost that is quadratic grows further, a threshold between two
        implementations does not.
        """
        return self._least(case, kind, self._large * _TIMES, 2).total_ms / large.total_ms

    @property
    def _large(self) -> int:
        return self._small * _TIMES

    def _ratio(self, case: Case) -> float:
        # A list of lists grows no faster than its elements.
        return max(1.0, self._largest / self._large)

    def _check_stall(self, case: Case, kind: Kind) -> None:
        limits, size = self._meter.limits, self._largest
        reading = self._least(case, kind, size, 1)
        if reading.exceeds(limits):
            reading = _smaller(reading, self._least(case, kind, size, REPEATED - 1))
        self.worst_step = max(self.worst_step, (reading.step_ms, f"{case}, {kind}"))
        if reading.exceeds(limits):
            request = case.build(size)
            if self._shrinks:
                request = shrunk(request, partial(self._stalls, case, kind))
            detail = f"limits {limits.step_ms:.0f} and {limits.wait_ms:.0f} ms"
            shown = described(request)
            self._failed(Failure(case, kind, "stall", size, reading, detail, shown, limits.scale))

    def _stalls(self, case: Case, kind: Kind, request: Struct) -> bool:
        try:
            frame = frame_of(case.api, case.version, request)
        except (TypeError, ValueError, AttributeError):
            return False  # The shrunk request cannot be encoded.
        self.requests += 1
        return self._meter.stalls(kind, frame) is not None

    def _least(self, case: Case, kind: Kind, size: int, times: int) -> Reading:
        """The smallest cost of several requests of one size, each with unknown names of its own."""

        def read() -> Reading:
            self.requests += 1
            self._sent = size
            salt = "" if case.form in (Form.SAME, Form.LONG) else f"-{next(self._salts)}"
            return self._meter.read(kind, frame_of(case.api, case.version, case.build(size, salt)))

        return smallest(read, times)

    def _failed(self, failure: Failure) -> None:
        self.failures.append(failure)


def _smaller(one: Reading, other: Reading) -> Reading:
    return smallest(iter((one, other)).__next__, 2)
