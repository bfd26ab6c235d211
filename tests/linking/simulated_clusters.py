"""A cluster with one replicated partition, in a simulation: no I/O, no time of its own.

The rules are the product's: what a follower does, where logs diverge, which replica cuts its log. The records
of a batch are a number, its checksum. For the checks, each batch has the digest of its history.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple

from penstock.linking.mirror import LastBatch
from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState, check_order
from penstock.model.errors import PolicyViolation
from penstock.model.ids import TopicId
from penstock.replication.epochs import diverging_epoch
from penstock.replication.follower import (
    Append,
    FetchAnswer,
    FollowerState,
    Reset,
    SetAside,
    Truncate,
)

__all__ = ["Batch", "Log", "Replica", "SimulatedCluster"]


class Batch(NamedTuple):
    base: int
    last: int
    crc: int
    epoch: int
    #: the digest of all batches before it, and of those and itself
    parent: int
    chain: int
    #: the transaction whose records it has, or, if negative, that it ends; 0 for none
    transaction: int = 0

    @property
    def seen(self) -> LastBatch:
        return LastBatch(self.base, self.last, self.crc, 7, 0, self.crc)


class _Epochs:
    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def latest(self) -> int:
        return self._log.batches[-1].epoch if self._log.batches else -1


class Log:
    """The log of a replica, as `penstock.replication` sees it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        #: where an empty log ends, and the digest of what it had before
        self._empty_at = self._empty_chain = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self._empty_at

    @property
    def chain(self) -> int:
        return self.batches[-1].chain if self.batches else self._empty_chain

    @property
    def leader_epochs(self) -> _Epochs:
        return _Epochs(self)

    @property
    def epoch_starts(self) -> list[int]:
        found: dict[int, int] = {}
        for batch in self.batches:
            found.setdefault(batch.epoch, batch.base)
        return list(found.values())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [each.epoch for each in self.batches]
        following = bisect_right(known, epoch)
        if not following:
            return (epoch, self.batches[0].base) if self.batches else (-1, -1)
        return known[following - 1], self.batches[following - 1].last + 1

    def from_offset(self, offset: int, upper: int) -> list[Batch]:
        return [each for each in self.batches if each.last >= offset and each.last < upper]

    def truncate(self, offset: int) -> list[Batch]:
        removed = [each for each in self.batches if each.last >= offset]
        self.batches = [each for each in self.batches if each.last < offset]
        if not self.batches:
            self._empty_at = min(offset, removed[0].base) if removed else offset
            is_behind = removed and removed[0].base <= offset
            self._empty_chain = removed[0].parent if is_behind else 0
            self.log_start_offset = self._empty_at
        self.high_watermark = min(self.high_watermark, self.end_offset)
        return removed

    def reset(self, offset: int, chain: int = 0) -> list[Batch]:
        removed, self.batches = self.batches, []
        self._empty_chain = chain
        self._empty_at = self.log_start_offset = self.high_watermark = offset
        return removed

    @property
    def transactions(self) -> list[int]:
        """The transactions that are open."""
        opened: dict[int, None] = {}
        for batch in self.batches:
            if batch.transaction > 0:
                opened[batch.transaction] = None
            else:
                opened.pop(-batch.transaction, None)
        return list(opened)

    @property
    def open_transactions(self) -> int:
        return len(self.transactions)

    def append(
        self, base: int, last: int, crc: int, epoch: int, parent: int | None = None, transaction: int = 0
    ) -> Batch:
        parent = self.chain if parent is None else parent
        batch = Batch(base, last, crc, epoch, parent, hash((parent, base, last, crc)), transaction)
        self.batches.append(batch)
        return batch

    def expire(self, offset: int) -> list[Batch]:
        self.log_start_offset = max(self.log_start_offset, offset)
        gone = [each for each in self.batches if each.last < offset]
        if gone:
            end = self.end_offset
            self.batches = self.batches[len(gone) :]
            self._empty_at, self._empty_chain = end, gone[-1].chain
        return gone


@dataclass
class Replica:
    log: Log = field(default_factory=Log)
    is_alive: bool = True
    #: the leader epoch and the state of the topic that it has applied
    epoch: int = -1
    topic: MirroredTopic | None = None
    follower: FollowerState | None = None
    #: of a leader: the ends of replicas that have fetched in this epoch
    ends: dict[int, int] = field(default_factory=dict)


class SimulatedCluster:
    """One partition of one topic, on some brokers."""

    #: `metadata.mirror_cuts`: the record with the cuts begins a leader epoch
    cuts_begin_epochs: ClassVar[bool] = True
    #: `model.config.mirrored_topics.check_order`: a request of an older promotion changes no fence
    orders_fences: ClassVar[bool] = True
    #: `replica.tail_cuts`: what is cut is copied first
    cuts_are_copied: ClassVar[bool] = True

    def __init__(self, name: str, random: Random, replicas: int = 3) -> None:
        self.name = name
        self.random = random
        self.topic_id = TopicId(name.encode() * 16)
        self.replicas = [Replica() for _ in range(replicas)]
        self.leader = 0
        self.epoch = 0
        self.isr = set(range(replicas))
        self.topic: MirroredTopic | None = None
        #: what a link in another cluster has set
        self.fence: MirroredTopic | None = None
        #: what replicas have set aside, and what may be gone: lost by unclean elections, or expired
        self.quarantine: set[int] = set()
        self.lost: set[int] = set()
        self.committed: dict[int, Batch] = {}
        #: the digest of what the source has before the cut: an empty log goes on from there
        self.chain_at_cut = 0
        for index in range(replicas):
            self.apply(index)

    # -- metadata

    def apply(self, index: int) -> None:
        """A broker reads the metadata to its end. A log that is to be cut is cut before it has a role."""
        replica = self.replicas[index]
        if not replica.is_alive:
            return
        replica.topic = self.topic
        log, cut = replica.log, self._cut()
        if cut is not None and cut.is_due(log.end_offset, log.leader_epochs.latest, self.epoch):
            removed = log.truncate(cut.offset)
            if not log.batches:
                log.reset(log.end_offset, self.chain_at_cut)
            self.set_aside(removed if self.cuts_are_copied else [])
        if replica.epoch == self.epoch:
            return
        replica.epoch, replica.ends, replica.follower = self.epoch, {}, None
        if index != self.leader:
            replica.follower = FollowerState(self.leader, self.epoch, log, 0)

    def _cut(self) -> Cut | None:
        return self.topic.cuts[0] if self.topic is not None and self.topic.cuts else None

    def set_topic(self, topic: MirroredTopic) -> None:
        """A new state of the topic; cuts begin a leader epoch."""
        before, self.topic = self.topic, topic
        if topic.cuts and (before is None or before.cuts != topic.cuts) and self.cuts_begin_epochs:
            self.epoch += 1

    @property
    def is_fenced(self) -> bool:
        return self.fence is not None and self.fence.is_read_only

    def set_fence(self, state: MirroredTopic) -> None:
        """A request of the other cluster."""
        try:
            if self.orders_fences:
                check_order(str(self.fence or ""), str(state))
        except PolicyViolation:
            return
        self.fence = state

    def set_aside(self, batches: Iterable[Batch]) -> None:
        self.quarantine.update(each.chain for each in batches)

    def crash(self, index: int) -> None:
        self.replicas[index].is_alive = False
        if len(self.isr) > 1:
            self.isr.discard(index)
        if index == self.leader:
            self.elect()

    def start(self, index: int) -> None:
        replica = self.replicas[index]
        if not replica.is_alive:
            replica.is_alive, replica.epoch = True, -1
            self.apply(index)

    def elect(self, *, unclean: bool = False) -> None:
        alive = [n for n, each in enumerate(self.replicas) if each.is_alive]
        candidates = alive if unclean else [n for n in alive if n in self.isr]
        if not candidates:
            self.leader = -1
            return
        behind = [n for n in candidates if n not in self.isr]
        chosen = self.random.choice(behind or candidates)
        if chosen not in self.isr:
            # Records that this replica lacks are lost, and the topic has accepted that.
            has = {each.chain for each in self.replicas[chosen].log.batches}
            self.lost.update(self.committed.keys() - has)
            self.isr = {chosen}
        self.leader = chosen
        self.epoch += 1

    # -- replication

    def led(self) -> Replica | None:
        """The replica that leads, if it has applied that."""
        if self.leader < 0:
            return None
        leader = self.replicas[self.leader]
        return leader if leader.is_alive and leader.epoch == self.epoch else None

    def replicate(self, index: int) -> None:
        leader, follower = self.led(), self.replicas[index]
        if leader is None or leader is follower or not follower.is_alive or follower.epoch != self.epoch:
            return
        state = follower.follower
        assert state is not None, "it follows in this epoch"
        sent = state.next_fetch(0)
        assert sent is not None
        own = leader.log
        if not own.log_start_offset <= sent.fetch_offset <= own.end_offset:
            step = state.offsets_listed(sent, own.log_start_offset, own.end_offset, 0)
        else:
            diverging = diverging_epoch(own, self.epoch, sent.fetch_offset, sent.last_fetched_epoch)
            answer = FetchAnswer(
                high_watermark=own.high_watermark, log_start_offset=own.log_start_offset, diverging=diverging
            )
            step = state.answered(sent, answer, 0)
        log = follower.log
        if isinstance(step, Append):
            for batch in own.from_offset(log.end_offset, own.end_offset + 1)[: self.random.randrange(1, 4)]:
                log.batches.append(batch)
            log.expire(own.log_start_offset)
            leader.ends[index] = log.end_offset
            log.high_watermark = max(log.high_watermark, min(own.high_watermark, log.end_offset))
            epoch_start = next((b.base for b in own.batches if b.epoch == self.epoch), own.end_offset)
            if log.end_offset >= max(own.high_watermark, epoch_start):
                self.isr.add(index)
        elif isinstance(step, Truncate):
            log.truncate(step.offset)
        elif isinstance(step, SetAside):
            if self.isr != {index}:
                self.isr.discard(index)
                self.set_aside(log.reset(0))
        elif isinstance(step, Reset):
            log.reset(step.offset, own.batches[0].parent if own.batches else own.chain)
        self.commit()

    def commit(self) -> None:
        """Advance the high watermark of the leader."""
        leader = self.led()
        if leader is None:
            return
        ends = [leader.ends.get(n, 0) for n in self.isr if n != self.leader]
        end = min([leader.log.end_offset, *ends])
        leader.log.high_watermark = max(leader.log.high_watermark, end)
        for batch in leader.log.batches:
            if batch.last < leader.log.high_watermark:
                self.committed[batch.chain] = batch

    # -- producers

    @property
    def is_writable(self) -> bool:
        leader = self.led()
        if leader is None or self.is_fenced:
            return False
        return leader.topic is None or not leader.topic.is_read_only

    def produce(self, crc: int, size: int, transaction: int = 0) -> bool:
        leader = self.led()
        if leader is None or not self.is_writable:
            return False
        base = leader.log.end_offset
        leader.log.append(base, base + size - 1, crc, self.epoch, transaction=transaction)
        self.commit()
        return True

    def end_transactions(self, crc: int) -> None:
        """The coordinator ends the open transactions, also in a topic that takes no records of producers."""
        leader = self.led()
        if leader is None or (leader.topic is not None and leader.topic.state is not MirrorState.PROMOTED):
            return
        for transaction in leader.log.transactions:
            base = leader.log.end_offset
            leader.log.append(base, base, -crc, self.epoch, transaction=-transaction)
        self.commit()

    def expire(self, offset: int) -> None:
        leader = self.led()
        if leader is not None:
            gone = leader.log.expire(min(offset, leader.log.high_watermark))
            self.lost.update(each.chain for each in gone)
