"""What a node must never forget: the epoch it is in, whom it voted for in it, and who leads it.

The file is Kafka's `quorum-state`: a line of JSON. Its writer replaces it atomically and syncs it before any
message leaves the node. A file that cannot be read is an error, never a fresh start: a node that forgets its
vote could vote twice in one epoch.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

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


def encode_quorum_state(state: QuorumState) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    file = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": format_topic_id(voted.directory_id),
        "data_version": _VERSION,
    }
    return json.dumps(file, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """The inverse of `encode_quorum_state`; reads Kafka's version 0 too, which has no directory id."""
    try:
        file = json.loads(data)
        version, epoch, leader_id, voted_id = (
            _integer(file[name]) for name in ("data_version", "leaderEpoch", "leaderId", "votedId")
        )
        directory_id = parse_topic_id(file.get("votedDirectoryId", format_topic_id(NO_DIRECTORY)))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise UnreadableQuorumState(f"quorum state cannot be read: {e!r}") from e
    if not 0 <= version <= _VERSION:
        raise UnreadableQuorumState(f"quorum state of unknown version {version}")
    if epoch < 0 or leader_id < NO_NODE or voted_id < NO_NODE:
        raise UnreadableQuorumState(f"quorum state that cannot be: {file}")
    return QuorumState(epoch, leader_id, None if voted_id == NO_NODE else ReplicaKey(voted_id, directory_id))


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    return value
