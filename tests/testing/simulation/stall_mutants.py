"""Brokers that count the time for which they did not run."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.broker.base.awake_clock import AwakeClock
from penstock.broker.node.controller_loop import ControllerLoop
from penstock.broker.replica.lag_checks import StallAllowance
from tests.testing.simulation.hunting import Mutant

__all__ = ["STALL_MUTANTS"]


def _count_everything(self: AwakeClock) -> float:
    return self._monotonic()


def _system_ms(self: ControllerLoop) -> float:
    assert isinstance(self._clock, AwakeClock)
    return self._clock._monotonic() * 1000


def _no_allowance(self: StallAllowance, stalled_ms: int) -> int:
    return 0


def _nothing(*_: object) -> None:
    return None


async def _fence_before_reading(self: ControllerLoop) -> None:
    """Fence brokers whose sessions have expired, whatever waits in the buffers of sockets."""
    assert self.sessions is not None
    for broker_id in self.sessions.expired(self._image, self.now_ms()):
        await self._controller.change(partial(self._fence, broker_id), is_urgent=True)


STALL_MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        guard="the time of a stall does not count for the quorum",
        changes=((AwakeClock, "monotonic", _count_everything),),
        directed_fault="all_stall",
    ),
    Mutant(
        guard="the time of a stall does not count for followers",
        changes=((StallAllowance, "checked", _no_allowance),),
        directed_fault="all_stall",
    ),
    Mutant(
        guard="the time of a stall does not count for sessions",
        changes=(
            (ControllerLoop, "now_ms", _system_ms),
            (ControllerLoop, "was_held_up", _nothing),
            (ControllerLoop, "_fence_expired", _fence_before_reading),
        ),
        directed_fault="controller_stalls",
    ),
)
