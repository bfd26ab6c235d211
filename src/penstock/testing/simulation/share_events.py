"""Events of members of share groups, for the history of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

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
class _Acknowledgements:
    partition: TopicPartition
    acks: tuple[ShareAck, ...]
    member_id: str

    verb: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.verb} {self.partition} {', '.join(map(str, self.acks))}"


class ShareAcknowledging(_Acknowledgements):
    """A member is about to send acknowledgements."""

    __slots__ = ()
    verb = "acknowledges"


class ShareAcknowledged(_Acknowledgements):
    """The acknowledgements were answered without an error."""

    __slots__ = ()
    verb = "acknowledged"


class ShareRefused(_Acknowledgements):
    """The acknowledgements were refused, and have no effect: the member does not have the records."""

    __slots__ = ()
    verb = "refused"


ShareEvent: TypeAlias = ShareAcknowledging | ShareAcknowledged | ShareRefused
