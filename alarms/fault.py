"""A fault: how it begins and ends, which alerts it fires, and which reason the health reports name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alarms.cluster import Cluster

__all__ = ["Fault"]


class Fault(NamedTuple):
    name: str
    alerts: tuple[str, ...]
    begin: Callable[[Cluster], None]
    end: Callable[[Cluster], None]
    #: a part of a reason in the health reports; empty if the fault is none of health
    reason: str = ""
    #: whether it begins with the run, because it takes long, and is looked at in its turn
    begins_early: bool = False
    #: whether all brokers keep running
    is_calm: bool = True
