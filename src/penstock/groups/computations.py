"""Computations of large groups, a few slices per turn, so that other requests are served in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.groups.group import Group
from penstock.groups.ledger import GroupLedger

__all__ = ["PAUSE_MS", "SLICES_PER_TURN", "Computations"]

#: slices of a computation per turn, and the pause between two turns
SLICES_PER_TURN: Final = 2
PAUSE_MS: Final = 1
_DONE: Final = object()


class Computations:
    """The computations of one kind, at most one for each group. `kind` is that of their timers."""

    __slots__ = ("_kind", "_ledger", "_running")

    def __init__(self, ledger: GroupLedger, kind: str) -> None:
        self._ledger = ledger
        self._kind = kind
        self._running: dict[str, tuple[Group, Iterator[None]]] = {}

    def is_running(self, group: Group) -> bool:
        return self._running.get(group.id, (None,))[0] is group

    def begin(self, group: Group, computation: Iterator[None]) -> None:
        self._running[group.id] = group, computation
        self._ledger.timers.schedule((self._kind, group.id), PAUSE_MS)

    def stop(self, group: Group) -> None:
        if self._running.pop(group.id, None) is not None:
            self._ledger.timers.cancel((self._kind, group.id))

    def resume(self, group_id: str) -> None:
        """The next turn of a computation. It ends if the group was deleted or replaced meanwhile."""
        group, computation = self._running.pop(group_id)
        if self._ledger.groups.get(group_id) is not group:
            return
        for _ in range(SLICES_PER_TURN):
            if next(computation, _DONE) is _DONE:
                return
        self.begin(group, computation)
