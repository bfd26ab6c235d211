"""The roles of this broker's replicas as the metadata assigns them: leader, follower, or neither.

`apply` runs after each batch of metadata records. Replicas that are assigned to this broker are hosted, all
others are released. A hosted replica takes its role at once.

Invariant: no replica is hosted before the broker has applied its own registration. Older metadata must not
assign roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.directory_moves import DirectoryMoves
from penstock.broker.replica.fenced_brokers import FencedBrokers
from penstock.broker.replica.fetcher import ReplicaFetcher
from penstock.broker.replica.follower_quarantine import FollowerQuarantine
from penstock.broker.replica.high_watermark_recovery import HighWatermarkRecovery
from penstock.broker.replica.isr import IsrSender
from penstock.broker.replica.lag_checks import LagChecks
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.links import ClusterLinks, PartitionCoordinator
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.replica.sessions import ReplicaSessions
from penstock.broker.replica.tail_cuts import TailCuts
from penstock.broker.replica.throttles import Throttles
from penstock.metadata.image import BROKER, NO_LEADER, RECOVERING, TOPIC, ClusterImage, PartitionImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import StorageError
from penstock.model.ids import TopicId
from penstock.model.steps import is_slice_over
from penstock.ports import World
from penstock.replication.fetch_plan import PartitionKey
from penstock.replication.follower import FollowerState
from penstock.replication.leader import LeaderState
from penstock.storage.holes import blocking_damage, holes, sound_behind, uncommitted_damage
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from penstock.wire.schema import Struct

__all__ = ["Replicas"]

log = get_logger("replicas")
NewFetcher: TypeAlias = Callable[[int, str, Throttles, FollowerQuarantine], ReplicaFetcher]


class Replicas:
    """Assigns roles to the replicas of one broker, until `stop`.

    Why it has more than 25 methods: all transitions between the roles are here.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        image: ClusterImage,
        partitions: Partitions,
        metrics: Metrics,
        *,
        cluster: ClusterLinks,
        coordinators: Mapping[str, PartitionCoordinator],
        repair_soon: Callable[[Partition], None],
        new_fetcher: NewFetcher,
    ) -> None:
        """`coordinators` are by topic. `new_fetcher` gets the leader and the name of the connection."""
        self._config = config
        self._node_id = config.node_id
        self._clock = world.clock
        self._image = image
        self._partitions = partitions
        self._metrics = metrics
        self._cluster = cluster
        self._coordinators = coordinators
        self._repair_soon = repair_soon
        self._new_fetcher = new_fetcher
        self.sessions = ReplicaSessions(lambda: int.from_bytes(world.rng.token(4), "big") & 0x7FFFFFFF)
        self.isr = IsrSender(config.node_id, image, world.rng, cluster.to_controller)
        self.high_watermark_recovery = HighWatermarkRecovery(image, cluster.peer)
        #: by leader and number of the fetcher
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._following: dict[PartitionKey, tuple[ReplicaFetcher, int]] = {}
        #: the last leader epoch in which each partition was fetched by this process
        self._fetched: dict[PartitionKey, int] = {}
        #: replicated partitions that are led here
        self._led: dict[PartitionKey, Leadership] = {}
        self._lag_checks = LagChecks(
            config,
            world.clock,
            cluster.awake_clock,
            self.sessions,
            self._led,
            self.high_watermark_recovery.check,
        )
        self._stopped = False
        self.throttles = Throttles(config, image, world.clock)
        self.quarantine = FollowerQuarantine(
            config.node_id, image, partitions, self._leave, cluster.between_changes
        )
        self.directory_moves = DirectoryMoves(config, world, image, partitions, self._withdraw, cluster)
        self.tail_cuts = TailCuts(partitions, world, cluster.between_changes, self.hosted)
        self.fenced_brokers = FencedBrokers(world.clock)

    async def stop(self) -> None:
        """Stop fetching, proposing ISR changes, and assigning roles."""
        self._stopped = True
        await self._lag_checks.stop()
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        await self.directory_moves.stop()
        await self.quarantine.stop()
        await self.tail_cuts.stop()
        await self.isr.stop()
        await self.high_watermark_recovery.stop()

    # -- metadata

    async def apply(self, records: Sequence[Struct]) -> list[tuple[str, bytes]]:
        """Apply metadata records; returns the (name, id) of deleted topics."""
        partitions, image, gone = self._partitions, self._image, list[TopicId]()
        changed: dict[PartitionKey, None] = {}
        reconfigured: dict[str, None] = {}
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed[TopicId(record.topic_id), record.partition_id] = None
            elif isinstance(record, ConfigRecord):
                if record.resource_type == TOPIC:
                    reconfigured[record.resource_name] = None
                elif record.resource_type == BROKER:
                    reconfigured.update(dict.fromkeys(image.topics))
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0:
                self.fenced_brokers.fenced(record.broker_id)
            elif isinstance(record, RemoveTopicRecord):
                gone.append(TopicId(record.topic_id))
            elif isinstance(record, ClearElrRecord):
                changed.update((p.key, None) for p in image.partitions_on(self._node_id))
        for topic_id in gone:
            await self._forget_topic(topic_id)
        removed: list[tuple[str, bytes]] = list(zip(await partitions.remove(gone), gone, strict=True))
        await self._host(changed)
        await partitions.reconfigure(reconfigured)
        for number, (topic_id, index) in enumerate(changed, 1):
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                self._take_role(topic.partitions[index])
            if is_slice_over(number):
                await asyncio.sleep(0)
        self._apply_throttles(reconfigured)
        return removed

    def _apply_throttles(self, reconfigured: Iterable[str]) -> None:
        """Update the followers that are throttled: configs or the ISR may have changed."""
        if self.throttles.reconfigure(reconfigured):
            throttled = [key for key in self._following if self.throttles.holds_follower(*key)]
            for fetcher in self._fetchers.values():
                fetcher.throttle(throttled)

    async def _host(self, changed: Iterable[PartitionKey]) -> None:
        """Host replicas that are newly assigned to this broker, and release those that no longer are."""
        partitions, image, node = self._partitions, self._image, self._node_id
        added: dict[TopicId, list[int]] = {}
        for number, (topic_id, index) in enumerate(changed, 1):
            if is_slice_over(number):
                await asyncio.sleep(0)
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            if node in topic.partitions[index].replicas:
                if not partitions.hosts(topic_id, index):
                    added.setdefault(topic_id, []).append(index)
            else:
                self._leave((topic_id, index))
                self._led.pop((topic_id, index), None)
                self._coordinator_resigned(topic.name, index)
                await partitions.release(topic, index)
        if added:
            await partitions.add(added)

    async def _forget_topic(self, topic_id: TopicId) -> None:
        for number, index in enumerate(self._partitions.indexes(topic_id), 1):
            key = (topic_id, index)
            self._leave(key)
            self._led.pop(key, None)
            self._fetched.pop(key, None)
            if is_slice_over(number):
                await asyncio.sleep(0)

    # -- roles

    def hosted(self, partition: Partition) -> None:
        topic = self._image.topics_by_id.get(partition.topic_id)
        if topic is not None and partition.index in topic.partitions:
            self._take_role(topic.partitions[partition.index])

    def review(self, partitions: Iterable[Partition]) -> None:
        """Assign roles again: the partitions' data directory has become full, or has free space again."""
        for partition in list(partitions):
            self.hosted(partition)

    def _take_role(self, wanted: PartitionImage) -> None:
        partition = self._partitions.find(wanted.topic_id, wanted.index)
        if not isinstance(partition, Partition) or self._stopped:
            return
        if len(wanted.replicas) > 1:
            partition.directory.keep_high_watermark(partition.topic, partition.index)
        if self.tail_cuts.begin(partition, wanted):
            self._resign(partition, wanted)
        elif wanted.leader == self._node_id:
            self._lead(partition, wanted)
        elif wanted.leader == NO_LEADER or not partition.health.is_well:
            # A replica on a failed or full disk must not look like a follower that keeps up.
            self._resign(partition, wanted)
        elif not self._may_fetch(partition, wanted):
            self._resign(partition, wanted)
            self._repair_soon(partition)
        else:
            self._follow(partition, wanted)

    def _lead(self, partition: Partition, wanted: PartitionImage) -> None:
        alone = list(wanted.replicas) == [self._node_id]
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
        if not partition.leading:
            # The leader may have stepped down by itself: the coordinator has to load the log again.
            self._coordinator_resigned(partition.topic, partition.index)
        if wanted.leader_recovery == RECOVERING:
            # Acknowledged records behind this end are lost: the operator has to know.
            log.warning("unclean_leader", partition=partition.name, end_offset=partition.log.end_offset)
        self._partitions.begins_to_lead(partition, wanted.leader_epoch)
        partition.lead(wanted.leader_epoch, leadership)
        if leadership is None:
            self._led.pop(wanted.key, None)
        else:
            self._led[wanted.key] = leadership
            self._lag_checks.start()
            self._repair_led(partition)
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.elected(partition.index)

    def _repair_led(self, partition: Partition) -> None:
        """Fill holes in a leader's log once an in-sync replica has the records: clients wait for them."""
        if partition.log.recovery.corruption and holes(partition.log):
            self._repair_soon(partition)

    def _new_leadership(self, partition: Partition, wanted: PartitionImage) -> Leadership:
        image = self._image
        state = LeaderState(
            broker=self._node_id,
            broker_epoch=self._cluster.broker_epoch(),
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            min_isr=partition.log.config.min_insync_replicas,
            end_offset=partition.log.end_offset,
            local_end=partition.sync.end_offset,
            high_watermark=partition.log.high_watermark,
            # Not bound to `image.brokers`: an installed snapshot replaces that mapping.
            brokers=lambda node: image.brokers.get(node),
            max_lag_ms=self._config.replica_lag_time_max_ms,
            now_ms=self._now_ms(),
        )
        return Leadership(partition, state, self._clock, self._metrics, self.isr.propose)

    def _follow(self, partition: Partition, wanted: PartitionImage) -> None:
        key = wanted.key
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
            self._config.replica_fetch_backoff_ms,
            recovering=wanted.leader_recovery == RECOVERING,
            may_lose=self._cluster.unclean_allowed(partition.topic),
        )
        fetcher.follow(partition, state)

    def _may_fetch(self, partition: Partition, wanted: PartitionImage) -> bool:
        """Returns true if a follower's log has no damage that has to be repaired before it fetches.

        An in-sync replica fetches with damage that can be repaired in place, but not with a hole. All damage
        of any other replica is repaired first, so that it does not join the ISR with damage. Damage above the
        high watermark is truncated and fetched again, under two conditions. The replica is neither in sync
        nor eligible to lead: it would be elected without the truncated records. And it has not fetched in
        this leader epoch yet: the leader may be about to add it to the ISR because of an earlier fetch.
        If sound records lie behind the damage, the log is quarantined instead: the last high watermark may
        be above them, and the leader may lack them if it loses its role before it is ever fetched from.
        """
        opened, node = partition.log, self._node_id
        if not opened.recovery.corruption:
            return True
        if node in wanted.isr or node in wanted.elr:
            return not holes(opened)
        offset = uncommitted_damage(opened)
        if offset is not None and self._fetched.get(wanted.key) != wanted.leader_epoch:
            if sound_behind(opened, offset) and not self._cluster.unclean_allowed(partition.topic):
                self._resign(partition, wanted)
                self.quarantine.set_aside(partition, wanted.leader, offset, damaged=True)
                return False
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
            # Other partitions of the same metadata records still have to take their roles.
            log.error("corruption_not_cut", partition=partition.name, error=str(e))

    def _resign(self, partition: Partition, wanted: PartitionImage) -> None:
        """Neither lead nor follow: there is no leader, or this replica must not fetch from it."""
        self._leave(wanted.key)
        self._led.pop(wanted.key, None)
        partition.follow(wanted.leader_epoch)
        self._coordinator_resigned(partition.topic, partition.index)

    def _coordinator_resigned(self, topic: str, index: int) -> None:
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            coordinator.resigned(index)

    def _withdraw(self, partition: Partition) -> None:
        """End the role of a replica that is about to be closed; `hosted` gives it its role again."""
        key = (partition.topic_id, partition.index)
        self._leave(key)
        self._led.pop(key, None)
        self._coordinator_resigned(partition.topic, partition.index)

    def _leave(self, key: PartitionKey) -> None:
        following = self._following.pop(key, None)
        if following is not None:
            following[0].leave(key)

    def _fetcher(self, leader: int, partition: Partition) -> ReplicaFetcher:
        """The fetcher of a partition: always the same one, so that its requests keep their order."""
        nth = (partition.topic_id[-1] + partition.index) % self._config.num_replica_fetchers
        fetcher = self._fetchers.get((leader, nth))
        if fetcher is None:
            fetcher = self._new_fetcher(leader, f"replica-{nth}", self.throttles, self.quarantine)
            self._fetchers[leader, nth] = fetcher
        return fetcher

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # -- state

    @property
    def fetchers(self) -> Iterable[ReplicaFetcher]:
        return self._fetchers.values()

    @property
    def under_replicated(self) -> int:
        """The number of partitions led by this broker whose replicas are not all in sync."""
        return self._lag_checks.under_replicated
