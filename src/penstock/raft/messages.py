"""Messages between the nodes of a quorum: small values, which the driver encodes as Kafka's requests.

Nodes are numbers, -1 for none. Every response has the sender's epoch and its known leader, so that a node
with an older epoch learns it from any response.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.ports import Buffer, FileRange

__all__ = [
    "NO_DIRECTORY",
    "NO_NODE",
    "RECOVERING_DIRECTORY",
    "AddVoterRequest",
    "BeginEpochRequest",
    "EndEpochRequest",
    "Endpoint",
    "EpochResponse",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "LogPoint",
    "RemoveVoterRequest",
    "ReplicaKey",
    "Request",
    "Response",
    "UpdateVoterRequest",
    "VoteRequest",
    "VoteResponse",
    "Voter",
    "VoterChangeResponse",
]

NO_NODE: Final = -1
NO_DIRECTORY: Final = bytes(16)
#: the directory id of a replica in recovery: it is no voter's, so its fetches acknowledge nothing
RECOVERING_DIRECTORY: Final = b"\xff" * 16
#: a follower that does not send its high watermark gets no early response
UNKNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1


class ReplicaKey(NamedTuple):
    """A node and the disk that its vote and its log are on: a node that lost its disk is another replica."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    @property
    def is_replica(self) -> bool:
        """False for a client that only reads the log: it has a negative id, as Kafka's consumers have."""
        return self.id >= 0


class LogPoint(NamedTuple):
    """Where a log, or a snapshot, ends. Points compare as Raft compares logs: by epoch, then by length."""

    epoch: int
    offset: int


class Endpoint(NamedTuple):
    """Where a listener of a voter is reached."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A member of the quorum; `kraft.version` says which protocol versions its process speaks."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 1


class VoteRequest(NamedTuple):
    """Do you vote for `candidate`; or would you (`pre_vote`), were it to leave its epoch for the next?"""

    candidate: ReplicaKey
    epoch: int
    log_end: LogPoint
    pre_vote: bool
    #: the voter key that the candidate addresses
    voter: ReplicaKey


class VoteResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool
    #: not granted, but counts if all other voters vote for the candidate, too (see `raft.unanimity`)
    conditional: bool = False


class BeginEpochRequest(NamedTuple):
    """`leader_id` won `epoch`: come and fetch."""

    leader_id: int
    epoch: int
    voter: ReplicaKey


class EndEpochRequest(NamedTuple):
    """`leader_id` resigns; the first of `successors` should stand at once, the others a little later."""

    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


class EpochResponse(NamedTuple):
    """The answer to the beginning or the end of an epoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


class FetchRequest(NamedTuple):
    """`replica` has everything below `offset` on its disk; its last record is of `last_epoch`."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    max_bytes: int
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    #: the checksum of the batch that ends at `offset`, -1 if it is not sent
    last_checksum: int = -1


class FetchResponse(NamedTuple):
    """Records, or where the logs part, or which snapshot to fetch first."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Buffer | FileRange = b""
    diverging: LogPoint | None = None
    snapshot: LogPoint | None = None


class FetchSnapshotRequest(NamedTuple):
    replica: ReplicaKey
    epoch: int
    snapshot: LogPoint
    position: int
    max_bytes: int


class FetchSnapshotResponse(NamedTuple):
    """The bytes of `snapshot`, which has `size` of them, from `position` on."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: LogPoint
    size: int = 0
    position: int = 0
    chunk: Buffer = b""


class AddVoterRequest(NamedTuple):
    """Make an observer that has caught up a voter."""

    voter: Voter
    ack_when_committed: bool = True


class RemoveVoterRequest(NamedTuple):
    voter: ReplicaKey


class UpdateVoterRequest(NamedTuple):
    """A voter's endpoints, or versions, have changed."""

    voter: Voter
    epoch: int


class VoterChangeResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int
    message: str = ""


Request: TypeAlias = (
    VoteRequest
    | BeginEpochRequest
    | EndEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)
Response: TypeAlias = (
    VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse | VoterChangeResponse
)
