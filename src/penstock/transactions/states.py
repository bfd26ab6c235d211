"""The states of a transaction, and the transitions between them.

    Empty ----------> Ongoing --> PrepareCommit --> CompleteCommit
      ^                |  ^                              |
      |                |  +------------------------------+   (or from Empty, CompleteAbort)
      |                v
      +---- Complete* <-- PrepareAbort  <- Ongoing; with transaction.version 2 also Empty and Complete*

A transactional id is removed from Empty and Complete* only. Kafka's states Dead and PrepareEpochFence exist
in memory only. They are not needed here, because a decision applies its record at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

__all__ = ["COMPLETED", "EXPIRABLE", "PREPARED", "PREVIOUS_STATES", "TransactionState"]


class TransactionState(IntEnum):
    """The state of a transactional id, by its number in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return _LABELS[self]


_S = TransactionState
_LABELS: Final[Mapping[TransactionState, str]] = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
}
#: the states whose markers have to be written
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETED: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
#: the states in which an unused transactional id expires
EXPIRABLE: Final = COMPLETED | {_S.EMPTY}
#: the states from which each state can be entered
PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: EXPIRABLE,
    _S.ONGOING: EXPIRABLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: EXPIRABLE | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}
