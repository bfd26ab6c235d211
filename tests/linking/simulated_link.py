"""Two simulated clusters, the network between them, a link in one direction, and an operator.

The mirror of a partition, the comparison of a returning log and the rules of committed offsets are the
product's. The operator fails over, promotes with a fence, and has the old source return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from penstock.linking.committed import Committed, GroupMirror
from penstock.linking.common_point import CommonPoint, Range
from penstock.linking.mirror import Answer, Hold, LastBatch, PartitionMirror, Phase, Take
from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from penstock.replication.follower import FetchPosition
from tests.linking.simulated_clusters import Batch, Log, Replica, SimulatedCluster

__all__ = ["LinkSimulation", "Violation"]

_KEY = TopicPartition("t", 0)
_TIMEOUT = 40
#: the end of a log that is not known: nothing reaches it
_NEVER = 1 << 62


class Violation(AssertionError):
    """A broken invariant."""


class _Message(NamedTuple):
    arrives: int
    deliver: Callable[[], None]


@dataclass
class _Fetch:
    """A request of a leader to the source; a response after its timeout does not count."""

    mirror: PartitionMirror
    sent: FetchPosition
    expires: int


class LinkSimulation:
    """`source` is mirrored by `here`; both change places when a topic returns."""

    #: a rule of the worker: a lost request makes the mirror compare again
    doubts_lost_requests: ClassVar[bool] = True
    #: a rule of the worker: another topic id at the source stops the mirror
    checks_topic_ids: ClassVar[bool] = True
    fences: ClassVar[bool] = True
    #: a promotion behind a fence waits for records that are not committed yet
    waits_for_log_end: ClassVar[bool] = True
    #: a rule of the worker: the source of a topic that is mirrored again takes records again
    lifts_fences: ClassVar[bool] = True
    #: a rule of the command: a leader has stopped for this promotion, and not for one before
    checks_states: ClassVar[bool] = True
    #: a rule of the controller: cuts are those of the current leader
    checks_leaders: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now = 0
        self.source, self.here = SimulatedCluster("a", random), SimulatedCluster("b", random)
        self.here.set_topic(MirroredTopic("l", MirrorState.MIRRORING, self.source.topic_id, "t"))
        for index in range(3):
            self.here.apply(index)
        self._messages: list[_Message] = []
        self._loss = random.choice([0.0, 0.02, 0.2])
        self._delay = random.choice([1, 5, 30])
        #: the directions that are cut: to the source, from the source
        self.cut: set[str] = set()
        self._mirror: PartitionMirror | None = None
        self._owner: tuple[Replica, int] | None = None
        #: the promotion that the mirror knows
        self._promotion = 0
        self._pending: _Fetch | None = None
        self._content = 0
        self._group = GroupMirror()
        self.committed_here = -1
        self._compared: tuple[Cut, int] | None = None
        self.failovers = 0
        #: the faults that this run has more of
        self.theme = random.choice(["", "", "unclean", "recreated"])
        #: whether the operator gives promotions up, and begins others, while requests are under way
        self.is_hasty = seed % 7 == 3
        #: whether half of the promotions are without a fence, and fences of others may come late
        self.is_plain = seed % 11 == 5
        #: what happened, for a seed that fails, and how often
        self.trace: list[str] = []

    # -- the network

    def _send(self, direction: str, deliver: Callable[[], None]) -> None:
        if direction in self.cut or self.random.random() < self._loss:
            return
        arrives = self.now + 1 + self.random.randrange(self._delay)
        self._messages.append(_Message(arrives, deliver))

    def _deliver(self) -> None:
        due = [each for each in self._messages if each.arrives <= self.now]
        self._messages = [each for each in self._messages if each.arrives > self.now]
        for each in sorted(due, key=lambda message: message.arrives):
            each.deliver()

    # -- the link

    def _fetches(self) -> bool:
        leader = self.here.led()
        return leader is not None and leader.topic is not None and leader.topic.is_fetched

    def work(self) -> None:
        """The leader of the mirror sends its next request, or gives up the last one."""
        leader = self.here.led()
        if self.is_plain and leader is not None and leader.topic is not None:
            self._lift_fence(leader.topic)
        if leader is None or not self._fetches():
            self._mirror = self._owner = self._pending = None
            return
        topic = leader.topic
        assert topic is not None, "it is fetched"
        if self._mirror is None or self._owner != (leader, leader.epoch):
            last = leader.log.batches[-1].seen if leader.log.batches else None
            self._mirror = PartitionMirror(leader.log, last, self.source.epoch, compacted=False)
            self._owner, self._pending = (leader, leader.epoch), None
        mirror = self._mirror
        if self.checks_states and topic.fence != self._promotion:
            mirror.stop_when_complete(False)
        self._promotion = topic.fence
        there = self.source.led()
        least_end = _NEVER if there is None else there.log.end_offset
        if not self.waits_for_log_end:
            least_end = 0
        mirror.stop_when_complete(topic.state is MirrorState.PROMOTING, least_end)
        if self._pending is not None:
            if self.now < self._pending.expires:
                return
            self._lost("timed out")
        if self.checks_topic_ids and topic.source_id != self.source.topic_id:
            mirror.refuse("the topic was created again")
            return
        if not self.is_plain:
            self._lift_fence(topic)
        mirror.moved(self.source.epoch)
        sent = mirror.next_fetch(self.now)
        if sent is not None:
            self._pending = _Fetch(mirror, sent, self.now + _TIMEOUT)
            fetch = self._pending
            self._send("to", lambda: self._at_source(fetch))

    def _lift_fence(self, topic: MirroredTopic) -> None:
        """The broker may have old metadata, and its request may come late."""
        source, fence = self.source, self.source.fence
        if fence is None or not source.is_fenced or not topic.lifts_fence:
            return
        if self.lifts_fences and topic.source_id == source.topic_id and fence.fence <= topic.fence:
            self._send("to", lambda: source.set_fence(fence._replace(state=MirrorState.LIFTED)))

    def _lost(self, reason: str) -> None:
        self._pending = None
        if self._mirror is not None:
            self._mirror.failed(reason, self.now)
            if self.doubts_lost_requests:
                self._mirror.doubt()

    def _at_source(self, fetch: _Fetch) -> None:
        leader, sent = self.source.led(), fetch.sent
        batches: list[Batch] = []
        if leader is None or sent.leader_epoch != self.source.epoch:
            answer = Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not leader.log.log_start_offset <= sent.fetch_offset <= leader.log.end_offset:
            answer = Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            log = leader.log
            batches = log.from_offset(sent.fetch_offset, log.high_watermark)[: self.random.randrange(1, 4)]
            first = batches[0].seen if batches else None
            answer = Answer(ErrorCode.NONE, log.high_watermark, log.log_start_offset, first=first)
        self._send("from", lambda: self._answered(fetch, answer, batches))

    def _answered(self, fetch: _Fetch, answer: Answer, batches: list[Batch]) -> None:
        if fetch is not self._pending:
            return
        self._pending = None
        mirror, leader = fetch.mirror, self.here.led()
        if leader is None or self._owner != (leader, leader.epoch) or not self._fetches():
            return
        step = mirror.answered(fetch.sent, answer, self.now)
        if isinstance(step, Take):
            log = leader.log
            for batch in batches:
                if batch.last < step.offset:
                    continue
                if batch.base < log.end_offset and log.batches:
                    # As the broker's append does: the source has another history.
                    mirror.failed("a batch overlaps the mirror", self.now)
                    return
                if not log.batches and not log.end_offset:
                    log.reset(batch.base)
                log.append(batch.base, batch.last, batch.crc, leader.epoch, batch.parent, batch.transaction)
                mirror.appended(batch.seen, fetch.sent.leader_epoch)
            mirror.progressed(self.now)
            self.here.commit()
        elif step is Hold.LIST_OFFSETS and self.source.led() is not None:
            there = self.source.led()
            assert there is not None
            end = there.log.high_watermark
            mirror.listed(fetch.sent, there.log.log_start_offset, end, self.now)

    def take_over_offsets(self) -> None:
        """A group reads at the source to its end; its committed offset is taken over."""
        source, here = self.source.led(), self.here.led()
        if source is None or here is None or not self._fetches():
            return
        due = self._group.due(
            {_KEY: Committed(source.log.high_watermark)},
            {_KEY: self.committed_here} if self.committed_here >= 0 else {},
            {_KEY: here.log.high_watermark},
        )
        for each in due.values():
            self.committed_here = each.offset
            if each.offset > here.log.high_watermark:
                raise Violation(f"offset {each.offset} is committed beyond the mirror")
        self._group.committed(due)

    # -- producers

    def produce(self) -> None:
        """A producer writes to a cluster that takes it; some repeat a batch that the other cluster has."""
        cluster = self.random.choice([self.source, self.here])
        self._content += 1
        content, size = self._content, self.random.choice([1, 3])
        other = (self.here if cluster is self.source else self.source).led()
        own = cluster.led()
        topic = self.here.topic
        is_apart = topic is not None and topic.state is MirrorState.PROMOTED
        # While it is mirrored, what the mirror has was acknowledged, and is not written again.
        if is_apart and other is not None and own is not None and self.random.random() < 0.3:
            twins = [each for each in other.log.batches if each.base == own.log.end_offset]
            if twins:
                content, size = twins[0].crc, twins[0].last - twins[0].base + 1
        cluster.produce(content, size, content if self.random.random() < 0.1 else 0)

    def end_transactions(self) -> None:
        self._content += 1
        self.random.choice([self.source, self.here]).end_transactions(self._content)

    # -- the operator

    def fail_over(self) -> None:
        topic = self.here.topic
        if topic is None or not topic.is_fetched:
            return
        leader = self.here.led()
        if leader is None:
            return
        self.failovers += 1
        self._promoted(leader.log.end_offset)
        self.trace.append(f"{self.now} failover at {leader.log.end_offset}")

    def _promoted(self, end: int) -> None:
        topic = self.here.topic
        assert topic is not None
        self.here.set_topic(topic._replace(state=MirrorState.PROMOTED, ends=(end,), cuts=()))

    def promote(self) -> None:
        """Fence the source, and open the mirror once it has everything."""
        topic, leader, source = self.here.topic, self.here.led(), self.source.led()
        source_of_fence = self.source
        if topic is None or leader is None or source is None:
            return
        if topic.state is MirrorState.MIRRORING and self.is_plain and self.now % 2:
            self.failovers += 1
            self.here.set_topic(topic.behind(MirrorState.PROMOTING))
        elif topic.state is MirrorState.MIRRORING and "to" not in self.cut:
            fence = MirroredTopic("l", MirrorState.FENCED, self.here.topic_id, "t", fence=self.now)
            if self.fences:
                self.source.set_fence(fence)
            if self.is_plain:
                # Another broker has asked for it, too.
                self._send("to", lambda: source_of_fence.set_fence(fence))
            self.here.set_topic(topic._replace(state=MirrorState.PROMOTING, fence=self.now))
        elif topic.state is MirrorState.PROMOTING and self._owner == (leader, leader.epoch):
            done = self._mirror is not None and self._mirror.phase is Phase.STOPPED
            knows = leader.topic is not None and leader.topic.numbered_state == topic.numbered_state
            if self.checks_states and not (knows and self._promotion == topic.fence):
                return
            if not done or leader.log.high_watermark < leader.log.end_offset:
                return
            if topic.source_id == self.source.topic_id:
                missing = source.log.high_watermark - leader.log.high_watermark
                if missing > 0 and self.source.is_fenced:
                    raise Violation(f"promoted, and {missing} records are missing")
                if leader.log.transactions:
                    raise Violation("promoted, and the source may commit a transaction that is open here")
            self._promoted(leader.log.end_offset)
            if self.source.is_writable and topic.fence and not topic.is_lifted:
                raise Violation("promoted with a fence, and both copies are writable")
            self.trace.append(f"{self.now} promoted at {leader.log.end_offset}")

    def give_promotion_up(self) -> None:
        """The command has waited for long enough, or the user resumes the link."""
        topic = self.here.topic
        if topic is not None and topic.state is MirrorState.PROMOTING:
            self.here.set_topic(topic._replace(state=MirrorState.MIRRORING, is_lifted=False))
            self.trace.append(f"{self.now} resumed")

    def begin_return(self) -> None:
        """The old source becomes a returning topic, if the mirror was opened."""
        topic = self.here.topic
        if topic is None or topic.state is not MirrorState.PROMOTED or self.cut:
            return
        old = self.source.topic
        if old is None or not old.is_read_only:
            self.source.set_topic(MirroredTopic("l", MirrorState.RETURNING, NO_TOPIC_ID, "t"))
            self._compared = None

    def compare(self) -> None:
        old, leader, there = self.source.topic, self.source.led(), self.here.led()
        if old is None or old.state is not MirrorState.RETURNING or leader is None or there is None:
            return
        own, applied = leader.log, leader.topic
        if own.high_watermark < own.end_offset or applied is None or not applied.is_read_only:
            return
        link = self.here.topic
        assert link is not None, "it was a mirror"
        known = link.ends[0] if link.ends and link.source_id == self.source.topic_id else None
        point = CommonPoint(
            Range(own.log_start_offset, own.end_offset),
            Range(there.log.log_start_offset, there.log.high_watermark),
            own.epoch_starts,
            known,
        )
        while (probe := point.next) is not None:
            mine = own.from_offset(probe.offset, own.end_offset)[:3]
            at = max(there.log.log_start_offset, probe.offset)
            point.compared(_seen(mine), _seen(there.log.from_offset(at, there.log.high_watermark)[:3]))
        self._compared = Cut(point.offset, leader.epoch), own.end_offset

    def cut_logs(self) -> None:
        """The metadata of the old source cuts its logs, and the link mirrors the other way."""
        if self._compared is None:
            return
        (cut, _), self._compared = self._compared, None
        if self.checks_leaders and (cut.leader_epoch != self.source.epoch or self.source.led() is None):
            return
        id_there = self.here.topic_id
        self.source.set_topic(MirroredTopic("l", MirrorState.MIRRORING, TopicId(id_there), "t", cuts=(cut,)))
        self.source.fence = None
        there = self.here.led()
        if there is not None:
            behind = [each for each in there.log.batches if each.base >= cut.offset]
            self.source.chain_at_cut = behind[0].parent if behind else there.log.chain
        self.source, self.here = self.here, self.source
        self._mirror = self._owner = self._pending = None
        self._messages.clear()
        self._group, self.committed_here = GroupMirror(), -1
        self.trace.append(f"{self.now} returned at {cut}")

    def recreate(self) -> None:
        """The topic is deleted at the source, and created again under its name."""
        topic = self.here.topic
        if topic is None or not topic.is_fetched or self.source.topic is not None:
            return
        fresh = SimulatedCluster(self.source.name, self.random)
        self._content += 1
        fresh.topic_id = TopicId(self._content.to_bytes(16, "big"))
        fresh.epoch = self.source.epoch
        for index in range(len(fresh.replicas)):
            fresh.apply(index)
        self.source = fresh


def _seen(batches: list[Batch]) -> list[LastBatch]:
    return [each.seen for each in batches]


def check_history(log: Log, where: str) -> None:
    """Raise unless each batch is behind the one that it was written behind, but for gaps."""
    before: Batch | None = None
    for batch in log.batches:
        if before is not None and batch.base == before.last + 1 and batch.parent != before.chain:
            raise Violation(f"{where}: the batch at {batch.base} has another history than what is before it")
        if before is not None and batch.base <= before.last:
            raise Violation(f"{where}: the batch at {batch.base} overlaps")
        before = batch
