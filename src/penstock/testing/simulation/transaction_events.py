"""Events of transactional clients, for the history of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.ids import TopicPartition

__all__ = [
    "Ended",
    "Ending",
    "Initialized",
    "Initializing",
    "RefusedAsFenced",
    "StoredOffset",
    "Transaction",
    "TransactionEvent",
    "TransactionalAck",
    "TransactionalRead",
    "TransactionalSend",
]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one instance of a transactional id."""

    transactional_id: str
    #: the number of the instance: two instances may use one transactional id at the same time
    instance: int
    number: int

    def __str__(self) -> str:
        return f"{self.transactional_id}/{self.instance}/{self.number}"


@dataclass(frozen=True, slots=True)
class Initializing:
    """An instance is about to send InitProducerId, which fences all instances before it."""

    transactional_id: str
    instance: int

    def __str__(self) -> str:
        return f"initializes {self.transactional_id}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Initialized:
    transactional_id: str
    instance: int
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        name = f"{self.transactional_id}/{self.instance}"
        return f"initialized {name}: {self.producer_id}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class RefusedAsFenced:
    """A request of an instance was refused because a newer epoch exists.

    `is_certain` is false if a request of the transactional id was not answered: it may have fenced this one.
    """

    transaction: Transaction
    reason: str
    is_certain: bool

    def __str__(self) -> str:
        return f"fenced in {self.transaction}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TransactionalSend:
    transaction: Transaction
    partition: TopicPartition
    values: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"sends {self.partition} [{b','.join(self.values).decode()}] in {self.transaction}"


@dataclass(frozen=True, slots=True)
class TransactionalAck:
    """The records are in the log, at `offset` if the response has it; they may yet be aborted."""

    transaction: Transaction
    partition: TopicPartition
    values: tuple[bytes, ...]
    offset: int | None

    def __str__(self) -> str:
        return f"acked {self.partition} [{b','.join(self.values).decode()}] at {self.offset}"


@dataclass(frozen=True, slots=True)
class Ending:
    """EndTxn is about to be sent."""

    transaction: Transaction
    committed: bool

    def __str__(self) -> str:
        return f"{'commits' if self.committed else 'aborts'} {self.transaction}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome, None if it is unknown to the client."""

    transaction: Transaction
    committed: bool | None

    def __str__(self) -> str:
        outcome = {True: "committed", False: "aborted", None: "unknown"}[self.committed]
        return f"{self.transaction} is {outcome}"


@dataclass(frozen=True, slots=True)
class TransactionalRead:
    """The records that a consumer got between `position` and `next_position`."""

    partition: TopicPartition
    position: int
    next_position: int
    records: tuple[tuple[int, bytes], ...]
    #: true for isolation.level=read_committed
    is_committed: bool
    last_stable_offset: int

    def __str__(self) -> str:
        level = "committed" if self.is_committed else "uncommitted"
        found = f"{len(self.records)} records to {self.next_position}, LSO {self.last_stable_offset}"
        return f"reads {level} {self.partition} from {self.position}: {found}"


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A group's offset as `node_id` answers OffsetFetch, after commits up to `expected` were answered."""

    group: str
    partition: TopicPartition
    offset: int
    expected: int
    node_id: int

    def __str__(self) -> str:
        found = f"hears from {self.node_id} that {self.group} is at {self.offset} of {self.partition}"
        return f"{found}, {self.expected} was stored"


TransactionEvent: TypeAlias = (
    Initializing
    | Initialized
    | RefusedAsFenced
    | TransactionalSend
    | TransactionalAck
    | Ending
    | Ended
    | TransactionalRead
    | StoredOffset
)
