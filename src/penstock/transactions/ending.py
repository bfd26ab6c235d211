"""The tables of EndTxn: what a commit or an abort does in each state.

With transaction.version 2 a request one epoch behind the current one is a retry: its response was lost. The
tables are Kafka's (`TransactionCoordinator.endTransaction`). While markers are being written (Prepare*), the
answer is CONCURRENT_TRANSACTIONS, whatever the request is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from penstock.transactions.states import TransactionState

__all__ = ["END_V1", "END_V2", "Ending"]


class Ending(Enum):
    """The effects of EndTxn."""

    #: decide the transaction and write markers
    PREPARE = auto()
    #: the transaction has this result already
    DONE = auto()
    FENCED = auto()
    INVALID_STATE = auto()


_S = TransactionState
COMMIT: Final = True
ABORT: Final = False

#: (state, committed), of a client with transaction.version 0 or 1
END_V1: Final[Mapping[tuple[TransactionState, bool], Ending]] = {
    (_S.EMPTY, ABORT): Ending.INVALID_STATE,
    (_S.EMPTY, COMMIT): Ending.INVALID_STATE,
    (_S.ONGOING, ABORT): Ending.PREPARE,
    (_S.ONGOING, COMMIT): Ending.PREPARE,
    (_S.COMPLETE_ABORT, ABORT): Ending.DONE,
    (_S.COMPLETE_ABORT, COMMIT): Ending.INVALID_STATE,
    (_S.COMPLETE_COMMIT, ABORT): Ending.INVALID_STATE,
    (_S.COMPLETE_COMMIT, COMMIT): Ending.DONE,
}
RETRY: Final = True
CURRENT: Final = False

#: (state, committed, is a retry), of a client with transaction.version 2
END_V2: Final[Mapping[tuple[TransactionState, bool, bool], Ending]] = {
    (_S.EMPTY, ABORT, RETRY): Ending.FENCED,
    (_S.EMPTY, ABORT, CURRENT): Ending.PREPARE,
    (_S.EMPTY, COMMIT, RETRY): Ending.FENCED,
    (_S.EMPTY, COMMIT, CURRENT): Ending.INVALID_STATE,
    (_S.ONGOING, ABORT, RETRY): Ending.FENCED,
    (_S.ONGOING, ABORT, CURRENT): Ending.PREPARE,
    (_S.ONGOING, COMMIT, RETRY): Ending.FENCED,
    (_S.ONGOING, COMMIT, CURRENT): Ending.PREPARE,
    (_S.COMPLETE_ABORT, ABORT, RETRY): Ending.DONE,
    (_S.COMPLETE_ABORT, ABORT, CURRENT): Ending.PREPARE,
    (_S.COMPLETE_ABORT, COMMIT, RETRY): Ending.INVALID_STATE,
    (_S.COMPLETE_ABORT, COMMIT, CURRENT): Ending.INVALID_STATE,
    (_S.COMPLETE_COMMIT, ABORT, RETRY): Ending.INVALID_STATE,
    (_S.COMPLETE_COMMIT, ABORT, CURRENT): Ending.PREPARE,
    (_S.COMPLETE_COMMIT, COMMIT, RETRY): Ending.DONE,
    (_S.COMPLETE_COMMIT, COMMIT, CURRENT): Ending.INVALID_STATE,
}
