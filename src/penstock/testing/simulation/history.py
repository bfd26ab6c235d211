"""What clients of a simulation saw: events, in the order in which they happened.

An operation begins with an event and ends with one of three: it was done, it was refused, or nobody knows.
Checkers read nothing else, so a fake that is wrong cannot hide from them what a user would see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.ids import TopicPartition

__all__ = [
    "Acked",
    "Batch",
    "CommitsAsked",
    "CommitsRead",
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
    """What a producer sends: values that nobody else ever sends, under its sequence."""

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
    """What a consumer got when it asked for records from `position` on."""

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
class CommitsAsked:
    """A member is about to ask where its group is."""

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

    No client sees that: it says whose answers are of one who could not know better.
    """

    group: str
    node_id: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Deleting:
    """Somebody is about to have the records before an offset deleted."""

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
    | CommitsAsked
    | CommitsRead
    | Coordinates
    | Deleting
    | DeletionRefused
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
        case CommitsAsked(group, partition):
            return f"asks where {group} is in {partition}"
        case CommitsRead(group, partition, offset, node_id):
            return f"hears from {node_id} that {group} is at {partition} {offset}"
        case Coordinates(group, _, epoch):
            return f"has {group} no more" if epoch is None else f"has {group} in epoch {epoch}"
        case Deleting(partition, before):
            return f"deletes {partition} before {before}"
        case DeletionRefused(partition, before):
            return f"may not delete {partition} before {before}"
