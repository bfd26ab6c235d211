"""A quorum in one process: virtual time, a network that loses, reorders and repeats, disks that forget.

It drives the cores exactly as their contract says (`penstock.raft.node`), checks the invariants after every
event, and in the end heals everything and waits for the quorum to agree. A seed gives the same run again.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from penstock.raft.control import voters_batch
from penstock.raft.leader import Leader
from penstock.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    Endpoint,
    LogPoint,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    Voter,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.node import RaftNode
from penstock.raft.ready import RaftConfig, Ready
from penstock.raft.state import QuorumState, Recovery, decode_quorum_state, encode_quorum_state
from penstock.raft.unanimity import state_without_votes
from penstock.raft.voters import VoterSet
from penstock.records.record import Record, build_batch
from tests.raft.invariants import Invariants, ViolatedInvariant, directory_of
from tests.raft.memory_log import Entry, MemoryLog

__all__ = ["FORGETS", "LOSSES", "SeededRng", "SimulatedNode", "Simulation", "batch", "voter"]


class SeededRng:
    """The core's randomness, from the simulation's seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def voter(node: int) -> Voter:
    return Voter(ReplicaKey(node, directory_of(node)), (Endpoint("INTERNAL", "localhost", 9000 + node),))


def _log_end(log: MemoryLog) -> LogPoint:
    """The end of a log as its disk has it."""
    last = log.durable[-1] if log.durable else None
    return LogPoint(0, 0) if last is None else LogPoint(last.epoch, last.end_offset)


def batch(value: bytes) -> bytearray:
    return bytearray(build_batch([Record(0, 0, None, value)]))


class SimulatedNode:
    """A process and its disk."""

    def __init__(self, node: int) -> None:
        self.id = node
        self.directory_id = directory_of(node)
        self.log = MemoryLog()
        self.quorum_state = encode_quorum_state(QuorumState())
        #: every quorum state that was on the disk
        self.earlier_states = [self.quorum_state]
        #: what the disks have lost, by directory id
        self.lost: dict[bytes, list[Entry]] = {}
        self.core: RaftNode | None = None
        self.flushing = False

    @property
    def is_recovering(self) -> bool:
        state = self.quorum_state
        return not state or decode_quorum_state(state).recovery != Recovery.NONE


class Simulation:
    """`loss` is the share of messages that are lost, and of those that come twice.

    Why it has more than 25 methods: one per fault, and one per invariant that is checked after each event.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        *,
        voters: int | None = None,
        is_new: bool = False,
    ) -> None:
        """`is_new`: disks are formatted, and only the configuration has the voters."""
        self.random = Random(seed)
        self._checkpoints = Random(seed)
        self.now_ms = 0.0
        self.loss = 0.0
        #: how long a message takes that is not lost
        self.latency_ms = (0.2, 8.0)
        #: a batch at a time shows what happens between them
        self.fetch_max_bytes = self.random.choice([1, 300])
        self.cut: set[tuple[int, int]] = set()
        self.static = VoterSet(voter(node) for node in range(1, (voters or nodes) + 1))
        self.nodes = {node: SimulatedNode(node) for node in range(1, nodes + 1)}
        if is_new:
            self.static = VoterSet(Voter(ReplicaKey(each.key.id), each.endpoints) for each in self.static)
            for node in self.nodes.values():
                node.quorum_state = encode_quorum_state(QuorumState(recovery=Recovery.NEW))
        self.invariants = Invariants()
        self.mishaps: tuple[str, ...] = _ANYTHING
        #: whether the disk has a vote before it is sent; a mutation takes that away
        self.saves_first = True
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._tokens = count()
        self._answers: dict[int, Callable[[Response], None]] = {}
        for node in self.nodes.values():
            self.start(node)

    # -- processes

    def start(self, node: SimulatedNode) -> None:
        if node.core is not None:
            return
        config = RaftConfig(ReplicaKey(node.id, node.directory_id), fetch_max_bytes=self.fetch_max_bytes)
        self._check_state(node)
        node.flushing = False
        node.core = RaftNode(
            config,
            node.log,
            decode_quorum_state(node.quorum_state),
            node.log.history(self.static),
            SeededRng(self.random),
            self.now_ms,
        )
        node.core.tick(self.now_ms)
        self.settle(node)

    def _check_state(self, node: SimulatedNode) -> None:
        """As the driver does at the start: a state that is lost, or older than the log, has lost votes."""
        state = decode_quorum_state(node.quorum_state) if node.quorum_state else None
        if state is None or state.epoch < node.log.last_epoch:
            forgotten = state_without_votes(
                state, node.log.last_epoch, ReplicaKey(node.id, node.directory_id)
            )
            node.quorum_state = encode_quorum_state(forgotten)

    def crash(self, node: SimulatedNode) -> None:
        core, node.core = node.core, None
        node.log.crash()
        if core is not None:
            # The disk has what was committed at some time before.
            known = self._checkpoints.choice([0, core.quorum.high_watermark])
            node.log.committed_offset = max(node.log.committed_offset, min(known, node.log.end_offset))

    def damage(self, node: SimulatedNode) -> None:
        """A process ends, and its log is found damaged at the next start."""
        self.crash(node)
        state = decode_quorum_state(node.quorum_state)
        node.quorum_state = encode_quorum_state(state.damaged(node.log.committed_offset))
        self._lose(node)

    def wipe(self, node: SimulatedNode) -> None:
        """A process ends, and comes back on an empty disk."""
        self.crash(node)
        self._lose(node)
        node.directory_id = self.random.randbytes(16)
        node.quorum_state = encode_quorum_state(QuorumState(recovery=Recovery.NEW))

    def forget(self, node: SimulatedNode) -> None:
        """A process ends, and its quorum state is removed, or is older than its log at the next start."""
        self.crash(node)
        older = [s for s in node.earlier_states if decode_quorum_state(s).epoch < node.log.last_epoch]
        node.quorum_state = self.random.choice([b"", *older[-3:]])

    def restore(self, node: SimulatedNode) -> None:
        """A process ends, and an older copy of its log and a still older quorum state take their place."""
        self.forget(node)
        log = node.log
        kept = self.random.randint(1, len(log.durable))
        node.lost.setdefault(node.directory_id, []).extend(log.durable[kept:])
        log.durable = log.durable[:kept]
        log.entries = list(log.durable)
        log.committed_offset = min(log.committed_offset, log.end_offset)
        node.quorum_state = b""

    def may_forget(self, node: SimulatedNode) -> bool:
        """Whether every voter of the longest log is there under its key, so that all can agree."""
        longest = max((other.log for other in self.nodes.values()), key=_log_end)
        voters = longest.history(self.static).latest
        if not voters.names_directories or len(voters) != len(self.static):
            return False
        there = all(voters.has(ReplicaKey(n.id, n.directory_id)) for n in self.nodes.values())
        return there and _log_end(node.log).offset > 0

    def may_restore(self, node: SimulatedNode) -> bool:
        """Whether another voter has the longest log: it has everything that is committed."""
        others = [_log_end(other.log) for other in self.nodes.values() if other is not node]
        return self.may_forget(node) and max(others) >= _log_end(node.log) > LogPoint(0, 0)

    def _lose(self, node: SimulatedNode) -> None:
        node.lost.setdefault(node.directory_id, []).extend(node.log.durable)
        node.log = MemoryLog()

    def may_lose(self, node: SimulatedNode) -> bool:
        """Whether a majority is left that has lost nothing, if `node` loses its log."""
        leader = self.leader()
        if leader is None or leader.core is None or not leader.core.quorum.voters.names_directories:
            return False
        voters = leader.core.quorum.voters
        if leader.core.quorum.history.latest_offset >= leader.core.quorum.high_watermark or len(
            voters
        ) != len(self.static):
            return False
        sound = [
            other
            for other in self.nodes.values()
            if voters.has(ReplicaKey(other.id, other.directory_id)) and not other.is_recovering
        ]
        return len([other for other in sound if other is not node]) >= voters.majority

    def replace_voter(self, leader: SimulatedNode, node: SimulatedNode) -> None:
        """Let a replica on a new disk vote, in two steps: the old key goes, the new one comes."""
        assert leader.core is not None
        voter_ = Voter(ReplicaKey(node.id, node.directory_id), voter(node.id).endpoints)
        old = leader.core.quorum.voters.get(node.id)
        if node.core is not None and node.core.quorum.has_forgotten:
            # As the driver: a broker asks for it that the leader has registered since its start.
            if node.core.quorum.caught_up and old is not None and self._commits(leader):
                self.call(leader, RemoveVoterRequest(old.key), lambda response: None)
        elif old is None:
            self.call(leader, AddVoterRequest(voter_), lambda response: None)
        elif not leader.core.quorum.voters.has(voter_.key):
            self.call(leader, RemoveVoterRequest(old.key), lambda response: None)

    def _commits(self, leader: SimulatedNode) -> bool:
        """Whether a majority of the voters is in contact with the leader, and remembers its votes."""
        assert leader.core is not None and isinstance(leader.core.quorum.role, Leader)
        quorum = leader.core.quorum
        contact_ms = leader.core.quorum.role.majority_contact_ms(quorum.voters, quorum.key, self.now_ms)
        return self.now_ms - contact_ms < quorum.config.fetch_max_wait_ms * 2

    def settle(self, node: SimulatedNode) -> None:
        """Carry out the work of the core, in its order."""
        core = node.core
        assert core is not None
        ready = core.take()
        if ready.save is not None and self.saves_first:
            node.quorum_state = encode_quorum_state(ready.save)
            node.earlier_states.append(node.quorum_state)
            if ready.save.directory_id != NO_DIRECTORY:
                node.directory_id = ready.save.directory_id
        self.invariants.check(node, self.nodes)
        for to, request in ready.messages:
            self._send(node, core, to, request)
        for token, response in ready.replies:
            assert isinstance(token, int)
            self._answers.pop(token)(response)
        if ready.flush and not node.flushing:
            self._flush(node, core)
        self._tick_at(node, core, ready)

    def _tick_at(self, node: SimulatedNode, core: RaftNode, ready: Ready) -> None:
        def tick() -> None:
            if node.core is core and core.next_deadline_ms() <= self.now_ms:
                core.tick(self.now_ms)
                self.settle(node)

        self.at(max(ready.deadline_ms, self.now_ms + 1), tick)

    def _flush(self, node: SimulatedNode, core: RaftNode) -> None:
        """The disk takes a moment; a log that is cut meanwhile is flushed again."""
        entries = list(node.log.entries)
        node.flushing = True

        def done() -> None:
            if node.core is not core:
                return
            node.flushing = False
            if node.log.entries[: len(entries)] == entries and entries:
                node.log.durable = entries
                core.flushed(entries[-1].end_offset, self.now_ms)
            self.settle(node)

        self.at(self.now_ms + self.random.uniform(0.5, 10), done)

    # -- network

    def _send(self, node: SimulatedNode, core: RaftNode, to: int, request: Request) -> None:
        peer = self.nodes[to]
        if peer.core is None:
            self.at(self.now_ms + 1, lambda: self._refused(node, core, to, request))
            return

        def answered(response: Response) -> None:
            self._deliver(to, node.id, lambda: self._response(node, core, to, request, response))

        self._deliver(node.id, to, lambda: self._request(peer, request, answered))
        self.at(self.now_ms + 1500, lambda: self._failed(node, core, to, request))

    def _deliver(self, source: int, to: int, event: Callable[[], None]) -> None:
        def arrive() -> None:
            if (source, to) not in self.cut:
                event()

        for _ in range(1 + (self.random.random() < self.loss)):
            if self.random.random() >= self.loss:
                least, most = self.latency_ms
                most = 300 if self.random.random() < self.loss / 4 else most
                self.at(self.now_ms + self.random.uniform(least, most), arrive)

    def _request(self, node: SimulatedNode, request: Request, answered: Callable[[Response], None]) -> None:
        core = node.core
        if core is None:
            return
        before = (
            core.quorum.state,
            core.quorum.role,
            core.quorum.deadline_ms,
            core.quorum.high_watermark,
            core.quorum.log_end,
        )
        self.call(node, request, answered)
        if isinstance(request, VoteRequest) and request.pre_vote:
            after = (
                core.quorum.state,
                core.quorum.role,
                core.quorum.deadline_ms,
                core.quorum.high_watermark,
                core.quorum.log_end,
            )
            if before != after:
                raise ViolatedInvariant(f"pre-vote changes nothing: {before} {after}")

    def call(self, node: SimulatedNode, request: Request, answered: Callable[[Response], None]) -> None:
        """Hand `request` to a running node; its answer goes to `answered`."""
        core = node.core
        assert core is not None
        token = next(self._tokens)

        def reply(response: Response) -> None:
            match request, response:
                case VoteRequest(pre_vote=False), VoteResponse(granted=True):
                    self.invariants.voted(core.quorum.key, request.epoch, request.candidate)
            answered(response)

        self._answers[token] = reply
        core.request(token, request, self.now_ms)
        self.settle(node)

    def _response(
        self, node: SimulatedNode, core: RaftNode, peer: int, request: Request, response: Response
    ) -> None:
        if node.core is core:
            core.response(peer, request, response, self.now_ms)
            self.settle(node)

    def _failed(self, node: SimulatedNode, core: RaftNode, peer: int, request: Request) -> None:
        if node.core is core:
            core.failure(peer, request, self.now_ms)
            self.settle(node)

    def _refused(self, node: SimulatedNode, core: RaftNode, peer: int, request: Request) -> None:
        if node.core is core:
            core.failure(peer, request, self.now_ms)
            core.peer_gone(peer, self.now_ms)
            self.settle(node)

    # -- time

    def at(self, time_ms: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time_ms, next(self._order), event))

    def run(self, for_ms: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let events happen until something holds, or time is over; whether it holds."""
        end_ms = self.now_ms + for_ms
        while not until():
            if not self._events or self._events[0][0] > end_ms:
                self.now_ms = end_ms
                return until()
            self.now_ms, _, event = heappop(self._events)
            event()
        return True

    # -- what clients and operators do

    @property
    def running(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.core is not None]

    def leader(self) -> SimulatedNode | None:
        """The one that leads the newest epoch."""
        leading = [node for node in self.running if node.core is not None and node.core.quorum.is_leader]
        return max(leading, key=lambda node: node.core.quorum.epoch if node.core else 0, default=None)

    def append(self, node: SimulatedNode, value: bytes) -> int:
        assert node.core is not None
        offset = node.core.append(batch(value))
        self.settle(node)
        return offset

    def take_snapshot(self, node: SimulatedNode) -> None:
        """As a driver does: of what is committed, with the voters of then."""
        core, log = node.core, node.log
        assert core is not None
        last = next((e for e in reversed(log.entries) if e.end_offset <= core.quorum.high_watermark), None)
        if last is not None and last in log.durable:
            snapshot = LogPoint(last.epoch, last.end_offset)
            voters = core.quorum.history.at(snapshot.offset)
            log.keep_snapshot(snapshot, bytes(voters_batch(voters, 0, first=True)))
            core.snapshot_taken(snapshot)
            self.settle(node)

    def change_voters(self, node: SimulatedNode, answered: Callable[[Response], None] | None = None) -> None:
        """Remove a random voter, or add a node that is none."""
        core = node.core
        assert core is not None
        chosen = voter(self.random.choice(sorted(self.nodes)))
        request: Request = AddVoterRequest(chosen)
        if core.quorum.voters.has(chosen.key):
            request = RemoveVoterRequest(chosen.key)
        self.call(node, request, answered or (lambda response: None))

    # -- whole runs

    def misbehave(self) -> None:
        """One random fault, or one random wish."""
        random = self.random
        node = random.choice(list(self.nodes.values()))
        mishap = random.choice(self.mishaps)
        if mishap.endswith(" leader"):
            mishap, node = mishap.removesuffix(" leader"), self.leader() or node
        match mishap:
            case "crash" if node.core is not None and len(self.running) > 1:
                self.crash(node)
            case "start":
                self.start(node)
            case "cut":
                self.cut.add((node.id, random.choice(sorted(self.nodes))))
            case "isolate":
                self.cut |= {(node.id, other) for other in self.nodes}
                self.cut |= {(other, node.id) for other in self.nodes}
            case "heal":
                self.cut.clear()
            case "suspect" if node.core is not None:
                node.core.peer_gone(random.choice(sorted(self.nodes)), self.now_ms)
                self.settle(node)
            case "resign" if node.core is not None:
                node.core.resign(self.now_ms)
                self.settle(node)
            case "snapshot" if node.core is not None:
                self.take_snapshot(node)
            case "voters" if (leader := self.leader()) is not None:
                self.change_voters(leader)
            case "damage" if self.may_lose(node):
                self.damage(node)
                self.start(node)
            case "forget" if self.may_forget(node):
                self.forget(node)
            case "forget all" if self.may_forget(node):
                for each in self.nodes.values():
                    self.forget(each)
            case "restore" if self.may_restore(node):
                self.restore(node)
            case "wipe" if self.may_lose(node):
                self.wipe(node)
                self.start(node)
            case "replace" if (leader := self.leader()) is not None:
                self.replace_voter(leader, node)
            case "append":
                for leader in self.running:
                    if leader.core is not None and leader.core.quorum.is_leader:
                        self.append(leader, random.randbytes(6))

    def run_chaos(self, steps: int, mishaps: tuple[str, ...] | None = None) -> None:
        self.loss = self.random.choice([0.0, 0.02, 0.15])
        self.mishaps = mishaps or self.random.choice([_ANYTHING, _RESTARTS, _CHANGES, _DIVISIONS])
        for _ in range(steps):
            self.run(self.random.choice([1, 5, 20, 100, 600]))
            self.misbehave()

    def heal(self) -> None:
        """No more faults: the quorum must agree, and go on."""
        self.loss = 0.0
        self.cut.clear()
        for node in self.nodes.values():
            self.start(node)
        if self.mishaps in (LOSSES, FORGETS):
            self._complete_voters()
        for _ in range(5):
            # What was on its way before may still end the first leader's epoch, and its write with it.
            if self.run(30_000, self._agrees) and self._writes():
                return
        raise ViolatedInvariant(f"a leader, and writes, after healing: {self.describe()}")

    def _complete_voters(self) -> None:
        def complete() -> bool:
            leader = self.leader()
            if leader is None or leader.core is None:
                return False
            return all(
                leader.core.quorum.voters.has(ReplicaKey(node.id, node.directory_id))
                and not node.is_recovering
                for node in self.nodes.values()
            )

        for _ in range(200):
            if self.run(500, complete):
                return
            for node in self.nodes.values():
                if (leader := self.leader()) is not None:
                    self.replace_voter(leader, node)
        raise ViolatedInvariant(f"all replicas vote again after healing: {self.describe()}")

    def _writes(self) -> bool:
        leader = self.leader()
        assert leader is not None
        offset = self.append(leader, b"after")
        return self.run(5_000, lambda: self._is_everywhere(offset))

    def _agrees(self) -> bool:
        leader = self.leader()
        return leader is not None and all(
            node.core is not None and node.core.quorum.leader_id == leader.id for node in self.running
        )

    def _is_everywhere(self, offset: int) -> bool:
        return all(
            node.core is not None and node.core.quorum.high_watermark > offset for node in self.running
        )

    def describe(self) -> str:
        return "; ".join(
            f"{n.id}: {n.core.quorum.role.name} of {n.core.quorum.state} end {n.core.quorum.log_end} "
            f"hw {n.core.quorum.high_watermark} voters {n.core.quorum.voters}"
            for n in self.running
            if n.core is not None
        )


#: what happens in a run, each as often as it is named
_ANYTHING = (
    *("crash", "start", "start", "cut", "isolate", "heal", "heal", "suspect", "resign"),
    *("snapshot", "voters", "append", "append", "append", "append"),
)
_RESTARTS = ("crash", "start", "crash leader", "start", "append", "append", "append")
_CHANGES = ("voters", "voters", "isolate", "isolate leader", "heal", "crash", "start", "append", "append")
#: disks that lose what they had, a minority at a time
LOSSES = (
    *("damage", "damage", "wipe", "replace", "crash leader", "start", "start", "start"),
    *("isolate", "isolate leader", "heal", "snapshot", "append", "append"),
)
#: quorum states that are lost, or older than the logs, on any number of voters; logs that are older, on all
#: voters but one
FORGETS = (
    *("forget", "forget", "forget", "forget all", "restore", "restore", "replace", "crash leader", "crash"),
    *("start", "start", "start", "start", "isolate", "isolate leader", "heal", "heal", "append", "append"),
)
_DIVISIONS = ("isolate leader", "append", "append", "crash leader", "start", "heal", "heal")
