"""The output of the core, and its settings."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model.config.settings import BROKER_CONFIG
from penstock.model.errors import PenstockError
from penstock.raft.messages import LogPoint, ReplicaKey, Request, Response
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterSet

__all__ = ["STAYS_OUT", "Message", "Outbox", "QuorumViolation", "RaftConfig", "Ready", "Reply"]


#: the consequence of a violation, for the operator that reads its message
STAYS_OUT: Final = (
    "This node changes nothing and stays out of the quorum: see 'Voters were rolled back' in docs/cluster.md"
)


class QuorumViolation(PenstockError):
    """A state that Raft rules out: a disk lost data, or there is a bug. The node must stop."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times are in milliseconds. The defaults notice a hang in two seconds and a dead process at once."""

    key: ReplicaKey
    #: a voter that knows no leader stands after one to two of these
    election_timeout_ms: float = BROKER_CONFIG.integer("controller.quorum.election.timeout.ms")
    #: a voter that could not fetch for this long stands
    fetch_timeout_ms: float = BROKER_CONFIG.integer("controller.quorum.fetch.timeout.ms")
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 << 20
    #: how long a voter change may wait for its commit
    request_timeout_ms: float = BROKER_CONFIG.integer("controller.quorum.request.timeout.ms")
    #: after a request that failed or got no answer
    retry_ms: float = 50
    #: a voter that knows that the leader is gone stands within this; it spreads the candidates
    gone_jitter_ms: float = 30
    #: lost elections in a row double the jitter up to this
    backoff_max_ms: float = BROKER_CONFIG.integer("controller.quorum.election.backoff.max.ms")

    @property
    def check_quorum_ms(self) -> float:
        """A leader that a majority has not fetched from for this long resigns."""
        return 1.5 * self.fetch_timeout_ms

    @property
    def trust_ms(self) -> float:
        """A follower whose leader has answered within this refuses pre-votes; longer than a fetch waits."""
        return self.fetch_timeout_ms / 2

    @property
    def begin_epoch_ms(self) -> float:
        """A leader sends BeginQuorumEpoch to voters that have not fetched for this long."""
        return self.fetch_timeout_ms / 2


class Message(NamedTuple):
    to: int
    request: Request


class Reply(NamedTuple):
    """The answer to the request that came in with `token`."""

    token: Hashable
    response: Response


class Outbox:
    """The content of the next `Ready`, except for the durable state."""

    __slots__ = ("installed", "messages", "replies", "truncated_to")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.replies: list[Reply] = []
        self.truncated_to: int | None = None
        self.installed: LogPoint | None = None

    def send(self, node: int, request: Request) -> None:
        self.messages.append(Message(node, request))

    def reply(self, token: Hashable, response: Response) -> None:
        self.replies.append(Reply(token, response))

    def truncated(self, end_offset: int) -> None:
        if self.truncated_to is None or end_offset < self.truncated_to:
            self.truncated_to = end_offset


class Ready(NamedTuple):
    """Everything that followed from the last event."""

    #: to be on the disk BEFORE any message or reply leaves, None if nothing has changed
    save: QuorumState | None
    messages: list[Message]
    replies: list[Reply]
    #: the log has records that are not on the disk: flush it and call `flushed`
    flush: bool
    #: everything below is committed; never falls
    high_watermark: int
    epoch: int
    #: -1 if there is none
    leader_id: int
    #: the log was truncated to this offset; records that were read above it are void
    truncated_to: int | None
    #: a leader's snapshot has replaced the log: the state is loaded from it
    installed: LogPoint | None
    voters: VoterSet
    #: when `tick` is due at the latest
    deadline_ms: float
