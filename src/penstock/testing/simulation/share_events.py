"""Events of members of share groups, for the history of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.ids import TopicPartition
from penstock.shares.states import AcknowledgeType

__all__ = ["ShareAck", "ShareAcknowledged", "ShareAcknowledging", "ShareEvent", "ShareRefused"]


@dataclass(frozen=True, slots=True)
class ShareAck:
    """One acknowledgement of consecutive offsets, which were delivered for the n-th time."""

    first: int
    last: int
    kind: AcknowledgeType
    delivery_count: int

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.first}..{self.last} (delivery {self.delivery_count})"


@dataclass(frozen=True, slots=True)
class ShareAcknowledging:
    """A member is about to send acknowledgements."""

    partition: TopicPartition
    acks: tuple[ShareAck, ...]
    member_id: str

    def __str__(self) -> str:
        return f"acknowledges {self.partition} {', '.join(map(str, self.acks))}"


@dataclass(frozen=True, slots=True)
class ShareAcknowledged:
    """The acknowledgements were answered without an error."""

    partition: TopicPartition
    acks: tuple[ShareAck, ...]
    member_id: str

    def __str__(self) -> str:
        return f"acknowledged {self.partition} {', '.join(map(str, self.acks))}"


@dataclass(frozen=True, slots=True)
class ShareRefused:
    """The acknowledgements were refused, and have no effect: the member does not have the records."""

    partition: TopicPartition
    acks: tuple[ShareAck, ...]
    member_id: str

    def __str__(self) -> str:
        return f"refused {self.partition} {', '.join(map(str, self.acks))}"


ShareEvent: TypeAlias = ShareAcknowledging | ShareAcknowledged | ShareRefused
