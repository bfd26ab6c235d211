"""What a node must never forget: the epoch it is in, whom it voted for in it, and who leads it.

The file is Kafka's `quorum-state`: a line of JSON. Its writer replaces it atomically and syncs it before any
message leaves the node. A file that cannot be read is an error, never a fresh start: a node that forgets its
vote could vote twice in one epoch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.ids import format_topic_id, parse_topic_id
from penstock.raft.messages import NO_DIRECTORY, NO_NODE, ReplicaKey

__all__ = ["QuorumState", "UnreadableQuorumState", "decode_quorum_state", "encode_quorum_state"]

_VERSION: Final = 1


class UnreadableQuorumState(PenstockError):
    """The quorum state on the disk is damaged, or of a version that this software does not know."""


class QuorumState(NamedTuple):
    """The state of the election of `epoch`: at most one leader, at most one vote."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class _File(msgspec.Struct, rename="camel"):
    """The file's fields; version 0 had no directory id, and more that nobody needs."""

    leader_id: int
    leader_epoch: int
    voted_id: int
    data_version: int = msgspec.field(name="data_version")
    voted_directory_id: str = format_topic_id(NO_DIRECTORY)


def encode_quorum_state(state: QuorumState) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    return msgspec.json.encode(
        _File(
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            voted_id=voted.id,
            voted_directory_id=format_topic_id(voted.directory_id),
            data_version=_VERSION,
        )
    )


def decode_quorum_state(data: bytes) -> QuorumState:
    """The inverse of `encode_quorum_state`; reads Kafka's version 0 too."""
    try:
        file = msgspec.json.decode(data, type=_File)
        voted = ReplicaKey(file.voted_id, parse_topic_id(file.voted_directory_id))
    except (msgspec.DecodeError, ValueError) as e:
        raise UnreadableQuorumState(f"quorum state cannot be read: {e}") from e
    if not 0 <= file.data_version <= _VERSION:
        raise UnreadableQuorumState(f"quorum state of unknown version {file.data_version}")
    if file.leader_epoch < 0 or file.leader_id < NO_NODE or file.voted_id < NO_NODE:
        raise UnreadableQuorumState(f"quorum state that cannot be: {file}")
    return QuorumState(file.leader_epoch, file.leader_id, None if file.voted_id == NO_NODE else voted)
