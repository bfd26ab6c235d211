"""What groups share whose members have epochs: consumer groups, share groups and streams groups.

The group epoch rises with every change that calls for a new assignment. The assignment epoch is the group
epoch for which the target was computed. Members reach the target one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Final, Generic, Protocol, TypeVar

from penstock.groups.group import PartitionCheck
from penstock.model.errors import ApiError, ErrorCode

__all__ = ["EpochGroup", "MemberState", "ReconciledGroup"]

#: the first version of OffsetCommit for members of the new protocols
_COMMIT_FROM: Final = 9


class MemberState(IntEnum):
    """The state of a member's reconciliation, numbered as in its record. Streams groups have tasks."""

    STABLE = 0
    #: it has partitions to revoke
    UNREVOKED = 1
    #: it waits for partitions that other members own
    UNRELEASED = 2


class _Member(Protocol):
    epoch: int


class _ReconciledMember(_Member, Protocol):
    def is_reconciled_to(self, epoch: int) -> bool: ...


M = TypeVar("M", bound=_Member)
R = TypeVar("R", bound=_ReconciledMember)


class EpochGroup(Generic[M]):
    """Members by id, and epochs. A group has the first epoch, and no target, when it is created."""

    def __init__(self, id: str, *, epoch: int, assignment_epoch: int) -> None:
        self.id = id
        self.epoch = epoch
        self.metadata_hash = 0
        self.assignment_epoch = assignment_epoch
        #: when the target was computed; 0 if unknown
        self.assignment_ms = 0
        self.members: dict[str, M] = {}
        #: of the image whose topics were last compared with the group
        self.image_offset = -1

    def member(self, member_id: str) -> M:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}."
            )
        return member

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_deletion(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)


class ReconciledGroup(EpochGroup[R], ABC):
    """A group that commits offsets, and whose members give partitions up before others get them."""

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int
    ) -> PartitionCheck | None:
        if epoch < 0 and not self.members:
            return None
        member = self.member(member_id)
        if version < _COMMIT_FROM and not self.is_classic(member):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"members of this protocol need OffsetCommit version {_COMMIT_FROM} or above",
            )
        return self._epoch_check(member, epoch)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, epoch: int
    ) -> PartitionCheck | None:
        if epoch < 0 and (not self.members or (not member_id and instance_id is None)):
            return None
        return self._epoch_check(self.member(member_id), epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, f"Epoch {epoch} is not the member's epoch {member.epoch}.")

    def check_offset_deletion(self) -> None:
        """Allowed for topics that the group does not read. The caller checks each topic."""

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    def is_classic(self, member: R) -> bool:
        """Whether a member uses the classic protocol."""
        return False

    @abstractmethod
    def assigned_since(self, member: R, topic: str, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which a member got a partition; None if it does not have it."""

    def _epoch_check(self, member: R, epoch: int) -> PartitionCheck | None:
        """Check the epoch of a commit. Returns a check per partition if the epoch is an older one."""
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise self._stale(member, f"Epoch {epoch} is newer than the member's epoch {member.epoch}.")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            """An older epoch is accepted for partitions that the member has had since then."""
            assigned = self.assigned_since(member, topic, topic_id, partition)
            if assigned is None or epoch < assigned:
                text = f"{topic}-{partition} is not assigned to the member in epoch {epoch}."
                raise self._stale(member, text)

        return check

    def _stale(self, member: R, message: str) -> ApiError:
        is_classic = self.is_classic(member)
        return ApiError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, message)
