"""What clients were told, in the order in which each of them was: all that the checker knows.

Values are unique in a history. A send whose outcome is not known may have been carried out or not, and may
even be carried out later: only `FAILED` says that the value must never appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__all__ = ["History", "Outcome", "Poll", "Record", "Send"]


class Outcome(Enum):
    #: nobody has been told anything yet
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
    """What one poll returned; `moved` where the consumer's position was set anew since its last one."""

    consumer: str
    records: Sequence[Record]
    moved: bool = False


@dataclass(slots=True)
class History:
    """Sends in the order in which each producer made them, polls in the order of each consumer."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        return sum(send.outcome is outcome for send in self.sends)

    def records(self) -> set[Record]:
        """Everything that anybody knows to be in the log: acknowledged, or read."""
        known = {record for poll in self.polls for record in poll.records}
        known.update(
            Record(send.partition, send.offset, send.value)
            for send in self.sends
            if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None
        )
        return known
