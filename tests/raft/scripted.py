"""One core on its own, for scenarios in which the test says every message itself."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    FetchRequest,
    FetchResponse,
    LogPoint,
    ReplicaKey,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.node import RaftNode
from penstock.raft.ready import RaftConfig, Ready
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterSet
from tests.raft.invariants import directory_of
from tests.raft.memory_log import MemoryLog
from tests.raft.simulation import SeededRng, batch, voter

__all__ = ["Scripted", "key"]

R = TypeVar("R", bound=Request)


def key(node: int) -> ReplicaKey:
    return ReplicaKey(node, directory_of(node))


class Scripted:
    """Node `node` of `voters`; `ready` is what its last event led to."""

    def __init__(
        self,
        node: int = 1,
        voters: int = 3,
        state: QuorumState | None = None,
        log: MemoryLog | None = None,
        now_ms: float = 0,
        static: VoterSet | None = None,
    ) -> None:
        self.log = log or MemoryLog()
        static = static or VoterSet(voter(n) for n in range(1, voters + 1))
        self.core = RaftNode(
            RaftConfig(key(node)),
            self.log,
            state or QuorumState(),
            self.log.history(static),
            SeededRng(Random(1)),
            now_ms,
        )
        self.now_ms = now_ms
        self.ready: Ready = self.core.take()

    # -- events

    def settle(self) -> Ready:
        self.ready = self.core.take()
        return self.ready

    def wait(self, for_ms: float) -> Ready:
        self.now_ms += for_ms
        self.core.tick(self.now_ms)
        return self.settle()

    def handle(self, request: Request) -> Response | None:
        """What it answers, None if it does not answer yet."""
        self.core.request("handle", request, self.now_ms)
        self.settle()
        return next((reply.response for reply in self.ready.replies if reply.token == "handle"), None)

    def answered(self, peer: int, request: Request, response: Response) -> Ready:
        self.core.response(peer, request, response, self.now_ms)
        return self.settle()

    def flush(self) -> Ready:
        self.core.flushed(self.log.sync(), self.now_ms)
        return self.settle()

    def append(self, value: bytes = b"x") -> int:
        offset = self.core.append(batch(value))
        self.settle()
        return offset

    # -- short ways

    def sent(self, kind: type[R]) -> list[tuple[int, R]]:
        """What the last event made it send."""
        return [(m.to, m.request) for m in self.ready.messages if isinstance(m.request, kind)]

    def stand(self) -> None:
        """Let it request pre-votes."""
        self.wait(10_000)
        assert self.core.quorum.role.name == "prospective"

    def grant(self, *peers: int, granted: bool = True) -> None:
        """Answer the vote requests that it has just sent."""
        for peer, request in self.sent(VoteRequest):
            if peer in peers:
                self.answered(peer, request, VoteResponse(ErrorCode.NONE, request.epoch, -1, granted))

    def elect(self) -> None:
        """Make it the leader, with the votes of just enough others."""
        others = range(2, len(self.core.quorum.voters) // 2 + 2)
        self.stand()
        self.grant(*others)
        self.grant(*others)
        assert self.core.quorum.is_leader

    def fetch(
        self, node: int, offset: int, epoch: int, *, wait_ms: int = 0, hw: int = 1 << 62
    ) -> Response | None:
        request = FetchRequest(key(node), self.core.quorum.epoch, offset, epoch, wait_ms, 1 << 20, hw)
        return self.handle(request)

    def follow(self, leader: int, epoch: int) -> tuple[int, FetchRequest]:
        """Make it follow; the fetch that it sends."""
        self.core.quorum.observe(epoch, leader)
        self.settle()
        return self.sent(FetchRequest)[0]

    def receive(self, leader: int, records: bytes = b"", high_watermark: int = 0) -> Ready:
        """Answer its fetch with records."""
        request = self.core.quorum.pending_fetch
        assert isinstance(request, FetchRequest)
        epoch = self.core.quorum.epoch
        response = FetchResponse(ErrorCode.NONE, epoch, leader, high_watermark, 0, records)
        return self.answered(leader, request, response)


def log_of(*epochs: int) -> MemoryLog:
    """A durable log with a batch of each epoch."""
    log = MemoryLog()
    for offset, epoch in enumerate(epochs):
        log.append(batch(f"{epoch}:{offset}".encode()), epoch)
    log.sync()
    return log


def vote(candidate: int, epoch: int, end: LogPoint, *, pre_vote: bool = False, voter: int = 1) -> VoteRequest:
    return VoteRequest(key(candidate), epoch, end, pre_vote, key(voter))


def records(*epochs: int, offset: int = 0) -> bytes:
    """The batches of `log_of` from `offset` on."""
    log = log_of(*epochs)
    return b"".join(bytes(entry.data) for entry in log.entries[offset:])
