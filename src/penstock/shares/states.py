"""The states of a record in a share partition, acknowledgement types, and batches of equal states."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

__all__ = [
    "STATE_BY_ACKNOWLEDGEMENT",
    "TERMINAL",
    "AcknowledgeType",
    "DeadLetterCause",
    "RecordState",
    "StateBatch",
    "released_state",
]


class RecordState(IntEnum):
    """Kafka's numbers. `ACQUIRED` is never persisted."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


#: a record in one of these states is never delivered again
TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AcknowledgeType(IntEnum):
    """The outcome of a delivery. `GAP` is for offsets without a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


#: the state after an acknowledgement; a renewal changes no state
STATE_BY_ACKNOWLEDGEMENT: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class DeadLetterCause(Enum):
    """Why a record cannot be delivered. The values are the texts of dead letters."""

    REJECTED = "Record rejected by the consumer."
    LIMIT = "Delivery count limit exceeded."


#: by number; a lookup takes a fifth of the time of the call of an enumeration
STATES: Final = {int(state): state for state in RecordState}


class StateBatch(NamedTuple):
    """Consecutive offsets with the same state and delivery count, as they are persisted."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


def released_state(delivery_count: int, delivery_count_limit: int) -> RecordState:
    """The state of a released record: it is archived when its last delivery has failed."""
    return RecordState.ARCHIVED if delivery_count >= delivery_count_limit else RecordState.AVAILABLE
