"""The part of a shard that all coordinators have: its ledger, as the runtime uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from penstock.coordination.outbox import Outbox
from penstock.coordination.timers import Timers

__all__ = ["LedgerShard"]


class TurnLedger(Protocol):
    """A ledger, or a class that owns one."""

    @property
    def timers(self) -> Timers: ...

    @property
    def outbox(self) -> Outbox: ...

    def begin(self, now_ms: int, timer_ms: int) -> None: ...


L = TypeVar("L", bound=TurnLedger)


class LedgerShard(Generic[L]):
    """The base of shards that change their state through a ledger."""

    def __init__(self, ledger: L) -> None:
        self._ledger = ledger
        self.timers: Final = ledger.timers
        self.outbox: Final = ledger.outbox
        #: begins a turn, see `CoordinatorShard.begin`
        self.begin: Final[Callable[[int, int], None]] = ledger.begin
