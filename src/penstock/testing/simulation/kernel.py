"""The part of the simulated loop that the network uses, as a protocol: the loop imports the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from penstock.testing.simulation.process import Process
from penstock.testing.simulation.trace import Trace

__all__ = ["Kernel"]


class Kernel(Protocol):
    """Virtual time, events outside of all processes, and callbacks that are queued for a process."""

    trace: Trace

    def time(self) -> float: ...

    def world_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle: ...

    def deliver(self, process: Process, callback: Callable[..., object], *args: Any) -> None: ...
