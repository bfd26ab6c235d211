"""What offsets, listings and deletion need of a group, of whatever protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from penstock.wire.schema import Struct

__all__ = ["Group", "PartitionCheck"]

#: (topic, topic id, partition): raises the ApiError with which a commit to that partition is refused
PartitionCheck: TypeAlias = Callable[[str, bytes, int], None]


class Group(Protocol):
    """A group in the eyes of everyone who is not its own protocol."""

    id: str

    @property
    def type(self) -> str:
        """As ListGroups shows it: Classic or Consumer."""
        ...

    @property
    def state_name(self) -> str: ...

    @property
    def shown_protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int
    ) -> PartitionCheck | None:
        """Raise the ApiError that the commit deserves; a check per partition where that is still open."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None: ...

    def check_offset_deletion(self) -> None: ...

    def check_deletion(self) -> None: ...

    def subscribes_to(self, topic: str) -> bool: ...

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        """From when on an offset of that age counts as unused; None while it is in use."""
        ...

    def record_keys(self) -> Iterable[Struct]:
        """The keys of all its records: tombstones for them make the group disappear."""
        ...
