"""The history of the clients of a simulation: events in the order in which they happened.

An operation begins with one event and ends with another: success, refusal, or unknown outcome. Checkers read
only the history, so an error in a fake cannot hide from them an effect that a user would see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.share_events import ShareEvent
from penstock.testing.simulation.transaction_events import TransactionEvent

__all__ = [
    "Acked",
    "Batch",
    "CommitsRead",
    "CommitsRequested",
    "Committed",
    "Coordinates",
    "Deleting",
    "DeletionRefused",
    "Event",
    "History",
    "Read",
    "Refused",
    "Sent",
    "Unsure",
]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a producer: values that are unique in the run, with the producer's sequence."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    sequence: int
    values: tuple[bytes, ...]

    def __str__(self) -> str:
        names = b",".join(self.values).decode()
        return f"{self.partition} {self.producer_id}/{self.producer_epoch}/{self.sequence} [{names}]"


@dataclass(frozen=True, slots=True)
class Sent:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Acked:
    """The batch is in the log, at `offset` (None: the broker only said that it is)."""

    batch: Batch
    offset: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch is not in the log and never will be."""

    batch: Batch
    reason: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """The producer gave up; the batch may be in the log, or not."""

    batch: Batch
    reason: str


@dataclass(frozen=True, slots=True)
class Read:
    """The records that a consumer fetched from `position` on."""

    partition: TopicPartition
    position: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's offset is stored."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CommitsRequested:
    """A member is about to send OffsetFetch for its group."""

    group: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class CommitsRead:
    """Broker `node_id` said where a group is."""

    group: str
    partition: TopicPartition
    offset: int
    node_id: int


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A broker takes itself for a group's coordinator, in the epoch in which it leads its log; None: no more.

    No client sees this event. It shows the checker which responses may be outdated: those of a coordinator
    that does not know yet that it was replaced.
    """

    group: str
    node_id: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Deleting:
    """A client is about to send DeleteRecords for the records before an offset."""

    partition: TopicPartition
    before: int


@dataclass(frozen=True, slots=True)
class DeletionRefused:
    """It has not been done and never will be."""

    partition: TopicPartition
    before: int


Event: TypeAlias = (
    Sent
    | Acked
    | Refused
    | Unsure
    | Read
    | Committed
    | CommitsRequested
    | CommitsRead
    | Coordinates
    | Deleting
    | DeletionRefused
    | ShareEvent
    | TransactionEvent
)


class History:
    """Takes events as they happen and shows them to `observers`."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self.events: list[tuple[str, Event]] = []
        self.observers: list[Callable[[str, Event], None]] = []

    def add(self, client: str, event: Event) -> None:
        self.events.append((client, event))
        self._note(client, _line(event))
        for observe in self.observers:
            observe(client, event)


def _line(event: Event) -> str:
    match event:
        case Sent(batch):
            return f"sends {batch}"
        case Acked(batch, offset):
            return f"acked {batch} at {offset}"
        case Refused(batch, reason):
            return f"refused {batch}: {reason}"
        case Unsure(batch, reason):
            return f"unsure of {batch}: {reason}"
        case Read(partition, position, records):
            found = f"{records[0][0]}..{records[-1][0]}" if records else "nothing"
            return f"reads {partition} from {position}: {found}"
        case Committed(group, partition, offset):
            return f"committed {group} {partition} {offset}"
        case CommitsRequested(group, partition):
            return f"fetches the committed offset of {group} in {partition}"
        case CommitsRead(group, partition, offset, node_id):
            return f"hears from {node_id} that {group} is at {partition} {offset}"
        case Coordinates(group, _, epoch):
            return f"has {group} no more" if epoch is None else f"has {group} in epoch {epoch}"
        case Deleting(partition, before):
            return f"deletes {partition} before {before}"
        case DeletionRefused(partition, before):
            return f"may not delete {partition} before {before}"
        case _:
            return str(event)
