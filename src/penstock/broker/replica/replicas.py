"""The roles of this broker's replicas, as the metadata has them: who leads, who follows whom.

After each batch of metadata records `apply` brings everything in line: replicas that are assigned here are
hosted, others are not; each leads, follows, or stands by. What is hosted takes its role at once, so nothing
may be loaded before this broker has caught up with its own registration: on older metadata nobody may act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.fetcher import ReplicaFetcher
from penstock.broker.replica.follower_quarantine import FollowerQuarantine
from penstock.broker.replica.high_watermark_recovery import Inheritance
from penstock.broker.replica.isr import IsrSender
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.sessions import ReplicaSessions
from penstock.broker.replica.throttles import Throttles
from penstock.metadata.image import BROKER, NO_LEADER, RECOVERING, TOPIC, PartitionImage
from penstock.model.errors import StorageError
from penstock.model.ids import OFFSETS_TOPIC, TopicId
from penstock.replication.fetch_plan import PartitionKey
from penstock.replication.follower import FollowerState
from penstock.replication.leader import LeaderState
from penstock.storage.holes import blocking_damage, holes, uncommitted_damage
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["Replicas"]

log = get_logger("replicas")
#: how long a replica that has caught up may wait until its leader notices that it may join
_JOIN_MS: Final = 500
#: how long clients are still told of a broker that was fenced
_FAREWELL_MS: Final = 10_000


class Replicas:
    """Brings the replicas of one broker into their roles, until `stop`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sessions = ReplicaSessions(lambda: int.from_bytes(broker.rng.token(4), "big") & 0x7FFFFFFF)
        self.isr = IsrSender(broker)
        self.inheritance = Inheritance(broker)
        #: by leader and number
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._following: dict[PartitionKey, tuple[ReplicaFetcher, int]] = {}
        #: the last leader epoch in which each partition was fetched by this process
        self._fetched: dict[PartitionKey, int] = {}
        #: replicated partitions that are led here
        self._led: dict[PartitionKey, Leadership] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._refreshed_at_ms = 0
        self._stopped = False
        self.throttles = Throttles(broker)
        self.quarantine = FollowerQuarantine(
            broker.node_id,
            broker.image,
            broker.partitions,
            self._leave,
            lambda work: broker.node.loader.between_changes(work),
        )
        #: when brokers were fenced, those that were lately
        self._fenced_at_ms: dict[int, int] = {}
        broker.partitions.on_hosted = self._hosted

    async def stop(self) -> None:
        """Fetch no more, propose nothing, and take no more roles."""
        self._stopped = True
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        await self.quarantine.stop()
        await self.isr.stop()
        await self.inheritance.stop()

    # -- metadata

    async def apply(self, records: Sequence[Struct]) -> list[tuple[str, bytes]]:
        """Follow what the controller decided; returns the (name, id) of topics that are gone."""
        partitions, image = self._broker.partitions, self._broker.image
        changed: dict[PartitionKey, None] = {}
        gone: list[TopicId] = []
        reconfigured: dict[str, None] = {}
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed[TopicId(record.topic_id), record.partition_id] = None
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._fenced_at_ms[record.broker_id] = self._now_ms()
            elif isinstance(record, RemoveTopicRecord):
                gone.append(TopicId(record.topic_id))
            elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC:
                reconfigured[record.resource_name] = None
            elif isinstance(record, ConfigRecord) and record.resource_type == BROKER:
                reconfigured.update(dict.fromkeys(image.topics))
            elif isinstance(record, ClearElrRecord):
                changed.update((p.key, None) for p in image.partitions_on(self._broker.node_id))
        if gone:
            self._forget_topics(set(gone))
        removed: list[tuple[str, bytes]] = list(zip(await partitions.remove(gone), gone, strict=True))
        await self._host(changed)
        for name in reconfigured:
            partitions.reconfigure(name, image.topic_configs(name))
        for topic_id, index in changed:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                self._take_role(topic.partitions[index])
        self._apply_throttles(reconfigured)
        return removed

    def _apply_throttles(self, reconfigured: Iterable[str]) -> None:
        """Catching up is throttled, being in sync is not: both may have changed."""
        if self.throttles.reconfigure(reconfigured):
            throttled = [key for key in self._following if self.throttles.holds_follower(*key)]
            for fetcher in self._fetchers.values():
                fetcher.throttle(throttled)

    async def _host(self, changed: Iterable[PartitionKey]) -> None:
        """Host what is assigned here and is not yet, and let go of what no longer is."""
        partitions, image, node = self._broker.partitions, self._broker.image, self._broker.node_id
        added: dict[TopicId, list[int]] = {}
        for topic_id, index in changed:
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            if node in topic.partitions[index].replicas:
                if not partitions.hosts(topic_id, index):
                    added.setdefault(topic_id, []).append(index)
            else:
                self._leave((topic_id, index))
                self._led.pop((topic_id, index), None)
                if topic.name == OFFSETS_TOPIC:
                    self._broker.groups.resigned(index)
                await partitions.release(topic, index)
        if added:
            await partitions.add(added)

    def _forget_topics(self, topic_ids: set[TopicId]) -> None:
        for key in [key for key in self._following if key[0] in topic_ids]:
            self._leave(key)
        for key in [key for key in self._led if key[0] in topic_ids]:
            del self._led[key]
        for key in [key for key in self._fetched if key[0] in topic_ids]:
            del self._fetched[key]

    # -- roles

    def _hosted(self, partition: Partition) -> None:
        topic = self._broker.image.topics_by_id.get(partition.topic_id)
        if topic is not None and partition.index in topic.partitions:
            self._take_role(topic.partitions[partition.index])

    def review(self, partitions: Iterable[Partition]) -> None:
        """Take roles anew: the partitions' data directory has become full, or has room again."""
        for partition in list(partitions):
            self._hosted(partition)

    def _take_role(self, wanted: PartitionImage) -> None:
        partition = self._broker.partitions.find(wanted.topic_id, wanted.index)
        if not isinstance(partition, Partition) or self._stopped:
            return
        if len(wanted.replicas) > 1:
            partition.directory.keep_high_watermark(partition.topic, partition.index)
        if wanted.leader == self._broker.node_id:
            self._lead(partition, wanted)
        elif wanted.leader == NO_LEADER or not partition.directory.health.is_well:
            # One whose disk has failed, or is full, must not seem to keep up.
            self._stand_by(partition, wanted)
        elif not self._may_fetch(partition, wanted):
            self._stand_by(partition, wanted)
            self._broker.scrubber.repair_soon(partition)
        else:
            self._follow(partition, wanted)

    def _lead(self, partition: Partition, wanted: PartitionImage) -> None:
        alone = list(wanted.replicas) == [self._broker.node_id]
        self._leave(wanted.key)
        leadership = partition.leadership
        if partition.leading and partition.leader_epoch == wanted.leader_epoch:
            if leadership is not None:
                leadership.metadata_changed(wanted.partition_epoch, wanted.replicas, wanted.isr)
                self._repair_led(partition)
                return
            if alone:
                return
        leadership = None if alone else self._new_leadership(partition, wanted)
        if not partition.leading and partition.topic == OFFSETS_TOPIC:
            # It may have stepped down by itself: what its coordinator knew then is not what the log has now.
            self._broker.groups.resigned(partition.index)
        if wanted.leader_recovery == RECOVERING:
            # Whatever was acknowledged behind this end is gone: somebody will want to know.
            log.warning("unclean_leader", partition=partition.name, end_offset=partition.log.end_offset)
        partition.lead(wanted.leader_epoch, leadership)
        if leadership is None:
            self._led.pop(wanted.key, None)
        else:
            self._led[wanted.key] = leadership
            self._start_ticking()
            self._repair_led(partition)
        if partition.topic == OFFSETS_TOPIC:
            self._broker.groups.elected(partition.index)

    def _repair_led(self, partition: Partition) -> None:
        """Fill a leader's holes as soon as a replica in sync has what they lack: clients wait for it."""
        if partition.log.recovery.corruption and holes(partition.log):
            self._broker.scrubber.repair_soon(partition)

    def _new_leadership(self, partition: Partition, wanted: PartitionImage) -> Leadership:
        broker = self._broker
        state = LeaderState(
            broker=broker.node_id,
            broker_epoch=broker.broker_epoch,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            min_isr=partition.log.config.min_insync_replicas,
            end_offset=partition.log.end_offset,
            local_end=partition.own_end,
            high_watermark=partition.log.high_watermark,
            # Not the brokers' own `get`: a snapshot that is installed brings the image other ones.
            brokers=lambda node: broker.image.brokers.get(node),
            max_lag_ms=broker.config.replica_lag_time_max_ms,
            now_ms=self._now_ms(),
        )
        return Leadership(partition, state, broker.clock, broker.metrics, self.isr.propose)

    def _follow(self, partition: Partition, wanted: PartitionImage) -> None:
        key, config = wanted.key, self._broker.config
        fetcher = self._fetcher(wanted.leader, partition)
        if self._following.get(key) == (fetcher, wanted.leader_epoch):
            return
        self._resign(partition, wanted)
        self._following[key] = (fetcher, wanted.leader_epoch)
        self._fetched[key] = wanted.leader_epoch
        state = FollowerState(
            wanted.leader,
            wanted.leader_epoch,
            partition.log,
            config.replica_fetch_backoff_ms,
            recovering=wanted.leader_recovery == RECOVERING,
            may_lose=self._broker.node.duties.policy.unclean(self._broker.image, partition.topic),
        )
        fetcher.follow(partition, state)

    def _may_fetch(self, partition: Partition, wanted: PartitionImage) -> bool:
        """Whether a follower's log has no damage that has to be repaired first.

        A replica in sync goes on with damage that is repaired in place, but not with a hole. Any other one
        has all of it repaired first, so that it does not join the ISR with damage. Damage behind which
        nothing is known to be committed is truncated and fetched again. That is done only where nobody counts
        on this replica: one in sync, or eligible to lead, would be elected without what it has cut. And only
        before its first fetch in a leader epoch: the leader may be about to add it to the ISR by what it
        fetched.
        """
        opened, node = partition.log, self._broker.node_id
        if not opened.recovery.corruption:
            return True
        if node in wanted.isr or node in wanted.elr:
            return not holes(opened)
        offset = uncommitted_damage(opened)
        if offset is not None and self._fetched.get(wanted.key) != wanted.leader_epoch:
            self._truncate_damaged(partition, wanted, offset)
        return not blocking_damage(opened)

    def _truncate_damaged(self, partition: Partition, wanted: PartitionImage, offset: int) -> None:
        log.error(
            "corruption_replaced",
            partition=partition.name,
            leader=wanted.leader,
            offset=offset,
            end_offset=partition.log.end_offset,
        )
        try:
            partition.log.truncate_to(offset)
        except StorageError as e:
            # The others that the metadata speaks of must have their roles all the same.
            log.error("corruption_not_cut", partition=partition.name, error=str(e))

    def _stand_by(self, partition: Partition, wanted: PartitionImage) -> None:
        """Nobody leads, or cannot be followed: keep what is here for whoever will."""
        self._resign(partition, wanted)

    def _resign(self, partition: Partition, wanted: PartitionImage) -> None:
        self._leave(wanted.key)
        self._led.pop(wanted.key, None)
        partition.follow(wanted.leader_epoch)
        if partition.topic == OFFSETS_TOPIC:
            self._broker.groups.resigned(partition.index)

    def _leave(self, key: PartitionKey) -> None:
        following = self._following.pop(key, None)
        if following is not None:
            following[0].leave(key)

    def _fetcher(self, leader: int, partition: Partition) -> ReplicaFetcher:
        """The same for a partition each time, so that its requests keep their order."""
        nth = (partition.topic_id[-1] + partition.index) % self._broker.config.num_replica_fetchers
        fetcher = self._fetchers.get((leader, nth))
        if fetcher is None:
            fetcher = self._fetchers[leader, nth] = ReplicaFetcher(self._broker, leader, f"replica-{nth}")
        return fetcher

    # -- time

    def _start_ticking(self) -> None:
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        """Have leaders look for followers that lag, and for those that may be in sync again.

        Often enough that none lags half as long again, and that none waits long to join.
        """
        while True:
            lag_ms = self._broker.config.replica_lag_time_max_ms
            await asyncio.sleep(min(lag_ms / 2, _JOIN_MS) / 1000)
            now_ms = self._now_ms()
            if now_ms - self._refreshed_at_ms >= lag_ms // 2:
                self._refresh(self._refreshed_at_ms, absent_only=False)
                self._refreshed_at_ms = now_ms
                for leadership in list(self._led.values()):
                    leadership.tick()
            elif self.under_replicated:
                self._refresh(self._refreshed_at_ms, absent_only=True)
            else:
                continue
            self.inheritance.look(self._led.values())

    def _refresh(self, since_ms: int, *, absent_only: bool) -> None:
        for session in self.sessions:
            session.refresh(since_ms, absent_only=absent_only)

    def _now_ms(self) -> int:
        return int(self._broker.clock.monotonic() * 1000)

    # -- what is shown

    @property
    def fetchers(self) -> Iterable[ReplicaFetcher]:
        return self._fetchers.values()

    def is_leaving(self, broker: int) -> bool:
        """Whether a fenced broker is one to go on telling clients of for a moment.

        librdkafka ends its handle of a broker that metadata no longer has, and partitions that are just
        moving away from it then wait for a second.
        """
        fenced_at_ms = self._fenced_at_ms.get(broker)
        if fenced_at_ms is None or self._now_ms() - fenced_at_ms < _FAREWELL_MS:
            return fenced_at_ms is not None
        del self._fenced_at_ms[broker]
        return False

    @property
    def under_replicated(self) -> int:
        """Partitions led here of which not all replicas are in sync."""
        return sum(
            len(leadership.state.isr) <= len(leadership.state.followers) for leadership in self._led.values()
        )
