"""The interface of a group of any protocol, for offsets, listings and deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from penstock.wire.schema import Struct

__all__ = ["Group", "PartitionCheck"]

#: (topic, topic id, partition): raises the ApiError of a commit to that partition that is refused
PartitionCheck: TypeAlias = Callable[[str, bytes, int], None]


class Group(Protocol):
    """A group, independent of its protocol."""

    id: str

    @property
    def type(self) -> str:
        """The type in ListGroups: classic, consumer, share or streams."""
        ...

    @property
    def state_name(self) -> str: ...

    @property
    def shown_protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def members(self) -> Mapping[str, object]:
        """The members by id."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int
    ) -> PartitionCheck | None:
        """Raise the ApiError of a commit that is refused. Returns a check per partition if one is needed."""
        ...

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, epoch: int
    ) -> PartitionCheck | None:
        """As `check_commit`, for TxnOffsetCommit. The member is checked only if it is given (KIP-447)."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None: ...

    def check_offset_deletion(self) -> None: ...

    def check_deletion(self) -> None: ...

    def subscribes_to(self, topic: str) -> bool: ...

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        """The time from which the retention of an offset counts; None while the offset is in use."""
        ...

    def record_keys(self) -> Iterable[Struct]:
        """The keys of all records of the group. Tombstones for them delete the group."""
        ...
