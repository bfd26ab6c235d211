"""The history of clients: their operations and responses, in the order of each client.

Values are unique in a history. A send with an unknown outcome may have been executed or not, and may even be
executed later: only after `FAILED` the value must never appear. The checker has no other input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__all__ = ["History", "Outcome", "Poll", "Record", "Send"]


class Outcome(Enum):
    #: the operation has no response yet
    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Record(NamedTuple):
    partition: int
    offset: int
    value: int


@dataclass(slots=True)
class Send:
    """One value on its way to a partition; its offset comes with the acknowledgement."""

    producer: str
    partition: int
    value: int
    outcome: Outcome = Outcome.PENDING
    offset: int | None = None


class Poll(NamedTuple):
    """The records of one poll; `moved` if the consumer's position was reset since its last poll."""

    consumer: str
    records: Sequence[Record]
    moved: bool = False


@dataclass(slots=True)
class History:
    """Sends in the order in which each producer made them, polls in the order of each consumer."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    #: the sends of each transaction; their outcome is that of the transaction
    transactions: list[list[Send]] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        return sum(send.outcome is outcome for send in self.sends)

    def records(self) -> set[Record]:
        """All values that are known to be in the log: acknowledged, or read."""
        known = {record for poll in self.polls for record in poll.records}
        known.update(
            Record(send.partition, send.offset, send.value)
            for send in self.sends
            if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None
        )
        return known
