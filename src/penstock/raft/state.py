"""The durable state of a node: its epoch, its vote in the epoch, and the leader of the epoch.

The file is Kafka's `quorum-state`: a line of JSON, with a checksum and a few fields of our own. Its writer
replaces it atomically and syncs it before any message leaves the node. A file that cannot be read is an
error, never a fresh start: a node that forgets its vote could vote twice in one epoch.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import format_topic_id, parse_topic_id
from penstock.raft.messages import NO_DIRECTORY, NO_NODE, ReplicaKey
from penstock.records.checksum import crc32c

__all__ = ["QuorumState", "Recovery", "UnreadableQuorumState", "decode_quorum_state", "encode_quorum_state"]

_VERSION: Final = 1
_CHECKSUM: Final = "checksum"
#: every field that Kafka or Penstock writes; another name is damage, perhaps to the name of the checksum
_FIELDS: Final = frozenset(
    {
        *("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version"),
        *("clusterId", "appliedOffset", "currentVoters"),
        *("directoryId", "recovery", "recoverTo", _CHECKSUM),
    }
)


class UnreadableQuorumState(PenstockError):
    """The quorum state on the disk is damaged, or of a version that this software does not know."""


class Recovery(StrEnum):
    """Why a replica's log may lack records that it has acknowledged (see `docs/internals/raft.md`)."""

    #: the log has everything that this replica ever acknowledged
    NONE = "none"
    #: the disk is new. The cluster may be new as well, or the disk replaces one that was lost
    NEW = "new"
    #: the votes are lost, and the log is not (see `raft.unanimity`)
    FORGOTTEN = "forgotten"
    #: the log was damaged and set aside
    DAMAGED = "damaged"
    #: on an operator's request the node fetches everything again, and votes afterwards under a new voter key
    REJOINING = "rejoining"


class QuorumState(NamedTuple):
    """The state of the election of `epoch`: at most one leader, at most one vote."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None
    #: unless NONE, this replica neither votes nor counts towards the high watermark
    recovery: Recovery = Recovery.NONE
    #: what is known to be committed: recovery does not end below it
    recover_to: int = 0
    #: the id that this replica votes under; NO_DIRECTORY for that of its data directory
    directory_id: bytes = NO_DIRECTORY

    def damaged(self, committed_offset: int) -> QuorumState:
        """The state of a replica whose log is set aside; `committed_offset` is what it knows to be committed.

        It leaves its epoch, because acknowledgements of before the damage may still be on their way there: a
        leader of a later epoch takes none of them.
        """
        recover_to = max(committed_offset, self.recover_to)
        return self._replace(
            epoch=self.epoch + 1,
            leader_id=NO_NODE,
            voted=None,
            recovery=Recovery.DAMAGED,
            recover_to=recover_to,
        )


def encode_quorum_state(state: QuorumState) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    file: dict[str, Any] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": format_topic_id(voted.directory_id),
        "data_version": _VERSION,
    }
    if state.directory_id != NO_DIRECTORY:
        file["directoryId"] = format_topic_id(state.directory_id)
    if state.recovery != Recovery.NONE:
        file |= {"recovery": state.recovery, "recoverTo": state.recover_to}
    return _text({**file, _CHECKSUM: crc32c(_text(file))})


def _text(file: dict[str, Any]) -> bytes:
    return json.dumps(file, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """The inverse of `encode_quorum_state`; reads files without a checksum, and Kafka's version 0, too."""
    try:
        file = _checked(json.loads(data))
        version, epoch, leader_id, voted_id = (
            _integer(file[name]) for name in ("data_version", "leaderEpoch", "leaderId", "votedId")
        )
        voted_directory, directory = (
            parse_topic_id(file.get(name, format_topic_id(NO_DIRECTORY)))
            for name in ("votedDirectoryId", "directoryId")
        )
        recovery = Recovery(file.get("recovery", Recovery.NONE))
        recover_to = _integer(file.get("recoverTo", 0))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise UnreadableQuorumState(f"quorum state cannot be read: {e!r}") from e
    if not 0 <= version <= _VERSION:
        raise UnreadableQuorumState(f"quorum state of unknown version {version}")
    if epoch < 0 or leader_id < NO_NODE or voted_id < NO_NODE or recover_to < 0:
        raise UnreadableQuorumState(f"invalid quorum state: {file}")
    voted = None if voted_id == NO_NODE else ReplicaKey(voted_id, voted_directory)
    return QuorumState(epoch, leader_id, voted, recovery, recover_to, directory)


def _checked(file: dict[str, Any]) -> dict[str, Any]:
    """The fields of the file; ValueError if they are not what the checksum says."""
    if unknown := file.keys() - _FIELDS:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    fields = {name: value for name, value in file.items() if name != _CHECKSUM}
    if _CHECKSUM in file and file[_CHECKSUM] != crc32c(_text(fields)):
        raise ValueError("its checksum does not match")
    return fields


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value
