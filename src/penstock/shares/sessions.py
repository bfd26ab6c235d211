"""Share sessions: the partitions that a member of a share group fetches, and the order of its requests.

A session belongs to a member and to the connection that opened it. When the connection closes, the session
ends, and all that the member has acquired is released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ApiError, ErrorCode, InvalidRequest

__all__ = [
    "FINAL_EPOCH",
    "INITIAL_EPOCH",
    "MEMBER_ID_LENGTH_MAX",
    "ShareSession",
    "ShareSessions",
    "TopicIdPartition",
    "check_member_id",
]

#: the epoch of a request that opens a session, and of one that closes it
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
MEMBER_ID_LENGTH_MAX: Final = 36
#: The most partitions of all sessions together, and of those of one connection: some 200 bytes each, and
#: members may name any number.
PARTITIONS_MAX: Final = 1_000_000
_CONNECTION_PARTITIONS_MAX: Final = PARTITIONS_MAX // 4


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


#: (group id, member id)
SessionKey: TypeAlias = tuple[str, str]


class ShareSession:
    """The session of one member."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection: object, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        #: the connection that opened the session
        self.connection = connection
        #: the epoch that the next request has to have
        self.epoch = INITIAL_EPOCH + 1
        #: Partitions in the order in which they are to be read, and whether the next response must list them.
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, True)

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)
        if len(self.partitions) > _CONNECTION_PARTITIONS_MAX:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def mark_sent(
        self, partition: TopicIdPartition, is_due: bool, has_records: bool, has_error: bool
    ) -> bool:
        """Returns true if a response has to list the partition, and marks it as sent.

        A partition with records moves to the end, so that other partitions are read before it next time. One
        with an error is listed once more without it, so that the member learns that the error is gone.
        """
        was_due = self.partitions.get(partition)
        if was_due is None:
            return is_due
        if has_records:
            del self.partitions[partition]
        self.partitions[partition] = has_error
        return is_due or was_due


class ShareSessions:
    """The share sessions of a broker, up to a limit."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, set[SessionKey]] = {}
        #: the number of sessions of each group
        self._of_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        return group_id in self._of_group

    def open(
        self,
        group_id: str,
        member_id: str,
        connection: object,
        partitions: Iterable[TopicIdPartition],
        sessions_max: int,
    ) -> ShareSession:
        """Open the session of a member in place of an older one."""
        key = (group_id, member_id)
        self.close(group_id, member_id)
        session = ShareSession(key, connection, partitions)
        own = sum(len(self._sessions[each].partitions) for each in self._by_connection.get(connection, ()))
        total = sum(len(each.partitions) for each in self._sessions.values())
        if (
            len(self._sessions) >= sessions_max
            or own + len(session.partitions) > _CONNECTION_PARTITIONS_MAX
            or total + len(session.partitions) > PARTITIONS_MAX
        ):
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, set()).add(key)
        self._of_group[group_id] = self._of_group.get(group_id, 0) + 1
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is neither its first nor its last, with its epoch raised."""
        session = self.find(group_id, member_id)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        """Remove and return a session, if there is one. The caller releases what its member has acquired."""
        key = (group_id, member_id)
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        keys = self._by_connection[session.connection]
        keys.discard(key)
        if not keys:
            del self._by_connection[session.connection]
        self._of_group[group_id] -= 1
        if not self._of_group[group_id]:
            del self._of_group[group_id]
        return session

    def close_connection(self, connection: object) -> list[ShareSession]:
        """Remove and return the sessions that a connection opened."""
        keys = list(self._by_connection.get(connection, ()))
        return [session for key in keys if (session := self.close(*key)) is not None]


def check_member_id(member_id: str | None) -> str:
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest("Invalid member id in the request.")
    return member_id
