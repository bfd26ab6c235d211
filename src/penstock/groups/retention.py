"""Expiry of committed offsets, and deletion of empty groups without offsets.

A check looks at all offsets of a shard. It is divided into steps, so that other requests are served in
between: a shard may have a million offsets. Offsets and groups may change between two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.groups.classic import ClassicGroup
from penstock.groups.ledger import GroupLedger
from penstock.groups.offsets import Offsets
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_state import ShareStatePartitions

__all__ = ["RETENTION", "Retention"]

#: the kind of the timer of the next check, or of the next step of a check
RETENTION: Final = "retention"
#: offsets and groups that a step looks at, and the pause between two steps
STEP: Final = 1000
PAUSE_MS: Final = 1
_DONE: Final = object()


class Retention:
    """The checks of one shard."""

    __slots__ = ("_check", "_ledger", "_offsets", "_shares")

    def __init__(self, ledger: GroupLedger, offsets: Offsets, shares: ShareStatePartitions) -> None:
        self._ledger = ledger
        self._offsets = offsets
        self._shares = shares
        #: the steps of the check that is under way
        self._check: Iterator[None] | None = None

    def schedule(self) -> None:
        self._ledger.timers.schedule((RETENTION,), self._ledger.env.settings.retention_check_ms)

    def run(self) -> None:
        """Run the next step of a check, and schedule the one after it, or the next check."""
        if self._check is None:
            self._check = self._steps()
        if next(self._check, _DONE) is _DONE:
            self._check = None
            self.schedule()
        else:
            self._ledger.timers.schedule((RETENTION,), PAUSE_MS)

    def _steps(self) -> Iterator[None]:
        groups, looked = self._ledger.groups, 0
        for group_id in list(groups):
            group = groups.get(group_id)
            looked += 1
            if isinstance(group, ShareGroup):
                # It has no committed offsets, and its share partitions do not expire.
                self._shares.delete_orphaned(group)
            elif group is not None:
                for number in self._offsets.expire(group):
                    looked += number
                    if looked >= STEP:
                        looked = 0
                        yield
                if self._is_unused(group_id):
                    for key in list(groups[group_id].record_keys()):
                        self._ledger.write(key, None)
            if looked >= STEP:
                looked = 0
                yield

    def _is_unused(self, group_id: str) -> bool:
        """Returns true if a group is empty, has no offsets, and no member is about to join it."""
        group = self._ledger.groups.get(group_id)
        if group is None or not self._ledger.env.may_expire() or self._offsets.has_any(group_id):
            return False
        return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_joins)
