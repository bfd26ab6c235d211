"""One link on one broker: its connections, the mirrors of the partitions that this broker leads, its rounds.

A round reads the metadata of the source, gives each partition to the fetcher of its leader, and, on the one
broker that is chosen for it, compares topics and configs. Groups are compared by their coordinators. A round
that fails is repeated; fetches go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.links.acl_mirroring import AclMirrorChanges, AclMirroring
from penstock.broker.links.changes import LinkChanges
from penstock.broker.links.group_mirroring import GroupMirroring, HighWatermarks
from penstock.broker.links.mirrored_partition import MirroredPartition
from penstock.broker.links.quota_mirroring import QuotaMirrorChanges, QuotaMirroring
from penstock.broker.links.returning import Returning
from penstock.broker.links.source_cluster import SourceCluster, SourceError
from penstock.broker.links.source_fetcher import SourceFetcher
from penstock.broker.links.topic_mirroring import LINK_CONFIG, TopicMirroring
from penstock.broker.replica.partition import Partition
from penstock.groups.shard import GroupShard
from penstock.linking.access import Places
from penstock.linking.definition import LinkDefinition
from penstock.linking.mirror import Phase
from penstock.metadata.image import ClusterImage
from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.model.errors import ApiError, PenstockError
from penstock.ports import World
from penstock.replication.fetch_plan import PartitionKey

__all__ = ["LinkEnvironment", "LinkWorker"]

log = get_logger("links")
#: the shortest time between two readings of the metadata
_REFRESH_S: Final = 0.2
#: requests to each broker of a far source that are under way at the same time
_LANES: Final = 4
#: a promotion waits for the offsets of topics in these states
_PROMOTED: Final = (MirrorState.FENCING, MirrorState.PROMOTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnvironment:
    """What the links of a broker use of it."""

    node_id: int
    cluster_id: str
    image: ClusterImage
    world: World
    groups: CoordinatorRuntime[GroupShard]
    high_watermarks: HighWatermarks
    changes: LinkChanges
    acl_changes: AclMirrorChanges
    quota_changes: QuotaMirrorChanges
    #: reserves all producer ids up to one, which mirrored records have; returns true once that is done
    reserve_producer_ids: Callable[[int], bool]


class LinkWorker:
    """One link, from `start` to `stop`. A link with other configs gets a new worker."""

    def __init__(self, definition: LinkDefinition, environment: LinkEnvironment) -> None:
        self.definition = definition
        self._environment = environment
        self._source = SourceCluster(definition, environment.world)
        self._returning = Returning(self._source, lambda: self.definition, environment.world.workers)
        self.topics = TopicMirroring(environment.image, environment.changes)
        self.groups = GroupMirroring(environment.groups, environment.image, environment.high_watermarks)
        self.acls = AclMirroring(environment.image, environment.changes, environment.acl_changes)
        self.quotas = QuotaMirroring(environment.image, environment.changes, environment.quota_changes)
        #: why the last round has failed; empty if it has not
        self.error = ""
        self.errors = 0
        #: the comparisons that were completed: not with offsets of promoted topics in open transactions
        self.rounds = 0
        #: the topics that the last one took for promoted, as TOPIC/STATE
        self.promotions: tuple[str, ...] = ()
        #: by topic id and index here
        self._mirrored: dict[PartitionKey, MirroredPartition] = {}
        #: by broker of the source, and lane: from a far source, several requests are under way at a time
        self._fetchers: dict[tuple[int, int], SourceFetcher] = {}
        self._lanes = 1
        #: by the key at the source: the fetcher that has the partition
        self._fetched: dict[PartitionKey, SourceFetcher] = {}
        self._due = asyncio.Event()
        self._is_stale = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def mirrored(self) -> Mapping[PartitionKey, MirroredPartition]:
        return self._mirrored

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._run_rounds()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        await self._returning.stop()
        self._source.close()

    # -- partitions

    def lead(self, partition: Partition, topic: MirroredTopic) -> None:
        """Mirror a partition that this broker leads, or take over the state of its topic."""
        key = (partition.topic_id, partition.index)
        found = self._mirrored.get(key)
        if found is None or found.partition is not partition or not found.is_led:
            self._forget(key)
            found = MirroredPartition(partition, topic, -1, self._environment.world.clock)
            self._mirrored[key] = found
            self._assign(found)
        elif found.topic != topic:
            found.apply(topic)
            self._assign(found)
        if found.awaits_response:
            self._refresh_soon()
        found.settle()
        if topic.state is MirrorState.CLOSING:
            self._close(found)
        elif topic.state is MirrorState.RETURNING:
            self._returning.compare(found)

    def keep(self, keys: Iterable[PartitionKey]) -> None:
        """Forget all partitions but these: this broker does not lead them, or they are not mirrored."""
        for key in self._mirrored.keys() - set(keys):
            self._forget(key)

    def _forget(self, key: PartitionKey) -> None:
        mirrored = self._mirrored.pop(key, None)
        if mirrored is not None:
            self._leave(mirrored)
            self._returning.forget(mirrored)

    def _leave(self, mirrored: MirroredPartition) -> None:
        fetcher = self._fetched.pop(mirrored.key, None)
        if fetcher is not None:
            fetcher.leave(mirrored.key)

    def _close(self, mirrored: MirroredPartition) -> None:
        """End a mirror: no fetches, no open transactions."""
        self._leave(mirrored)
        mirrored.mirror.phase = Phase.STOPPED
        mirrored.has_reserved = self._environment.reserve_producer_ids(mirrored.largest_producer_id)
        if mirrored.is_closed:
            return
        try:
            mirrored.close()
        except ApiError as e:
            # For example without enough in-sync replicas. It is tried again.
            mirrored.mirror.reason = str(e) or e.code.name

    def _assign(self, mirrored: MirroredPartition) -> None:
        """Let the right fetcher fetch a partition, as far as the metadata of the source is known."""
        source, definition = self._source, self.definition
        if not mirrored.fetches or definition.paused or not source.generation:
            self._leave(mirrored)
            mirrored.mirror.reason = "the link is paused" if definition.paused else mirrored.mirror.reason
            return
        topic = source.topics.get(mirrored.topic.source_topic)
        reason = ""
        if topic is None:
            reason = f"the source has no topic {mirrored.topic.source_topic}"
        elif topic.topic_id != mirrored.topic.source_id:
            reason = f"topic {topic.name} was created again at the source"
        elif not definition.mirrors(topic.name):
            reason = f"topic {topic.name} is not one of the topics of the link"
        elif mirrored.partition.index not in topic.partitions:
            reason = f"topic {topic.name} has no partition {mirrored.partition.index} at the source"
        if topic is None or reason:
            self._leave(mirrored)
            mirrored.mirror.refuse(reason)
            return
        leader, epoch = topic.partitions[mirrored.partition.index]
        mirrored.mirror.moved(epoch)
        mirrored.source_leader = leader
        if source.address(leader) is None:
            self._leave(mirrored)
            mirrored.mirror.reason = "the partition has no leader at the source"
            return
        fetcher = self._fetcher(leader, mirrored.partition.index % self._lanes)
        if self._fetched.get(mirrored.key) is not fetcher:
            self._leave(mirrored)
            self._fetched[mirrored.key] = fetcher
        fetcher.follow(mirrored)

    def _fetcher(self, broker: int, lane: int) -> SourceFetcher:
        fetcher = self._fetchers.get((broker, lane))
        if fetcher is None:
            world = self._environment.world
            fetcher = self._fetchers[broker, lane] = SourceFetcher(
                broker,
                self.definition.name,
                self._source,
                world.clock,
                world.rng,
                self._refresh_soon,
                self._environment.reserve_producer_ids,
                follows_log_start=self.definition.follows_log_start,
                is_far=self._source.is_far,
            )
        return fetcher

    async def _spread(self) -> None:
        """Fetch in several lanes from now on: the source is far."""
        fetchers, self._fetchers, self._lanes = self._fetchers, {}, _LANES
        for mirrored in self._mirrored.values():
            self._leave(mirrored)
            # Its connection is lost, as by a failure.
            mirrored.mirror.doubt()
        for fetcher in fetchers.values():
            await fetcher.stop()

    def _refresh_soon(self) -> None:
        self._is_stale = True
        self._due.set()

    # -- rounds

    async def _run_rounds(self) -> None:
        if self.definition.paused:
            return
        loop = asyncio.get_running_loop()
        full_at = loop.time()
        while True:
            self._is_stale = False
            is_full = loop.time() >= full_at
            try:
                await self._round(is_full=is_full)
                self.error = self.acls.problem or self.quotas.problem
            except PenstockError as e:
                self._failed(str(e))
            except Exception as e:
                log.error("link_round_broke", link=self.definition.name, exc_info=e)
                self._failed(repr(e))
            if is_full:
                full_at = loop.time() + self.definition.interval_ms / 1000
            await asyncio.sleep(min(_REFRESH_S, self.definition.interval_ms / 1000))
            self._due.clear()
            if not self._is_stale:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0, full_at - loop.time())):
                        await self._due.wait()

    def _failed(self, reason: str) -> None:
        self.errors += 1
        if self.error != reason:
            log.warning("link_round_failed", link=self.definition.name, error=reason)
        self.error = reason

    async def _round(self, *, is_full: bool) -> None:
        source, definition = self._source, self.definition
        await source.refresh()
        await self._check_source()
        if source.is_far and self._lanes == 1:
            await self._spread()
        for mirrored in list(self._mirrored.values()):
            self._assign(mirrored)
        await self._complete()
        if not is_full:
            return
        if self._is_chosen():
            if definition.has_groups and self._environment.groups.topic.partition_for("") < 0:
                await self._environment.groups.topic.ensure()
            await self.topics.compare(definition, source)
            places = self._places()
            await self.acls.compare(definition, source, places)
            await self.quotas.compare(definition, source, is_active=places.is_active)
        else:
            self.topics.problems = {}
            self.acls.rest()
            self.quotas.rest()
        if definition.has_groups and not await self._compare_groups():
            return
        self.rounds += 1

    async def _compare_groups(self) -> bool:
        """Returns true if the comparison is complete: promotions of these topics may count on it."""
        mirrored = self._mirrored_topics()
        promoted = {
            name: topic.numbered_state for name, topic in mirrored.items() if topic.state in _PROMOTED
        }
        names = {topic.source_topic: name for name, topic in mirrored.items()}
        if not await self.groups.compare(self.definition, self._source, names, promoted):
            return False
        self.promotions = tuple(f"{name}/{state}" for name, state in promoted.items())
        return True

    async def _complete(self) -> None:
        """Have mirrors that are promoted stop at the ends of the source's logs."""
        waiting = [each for each in self._mirrored.values() if each.awaits_response]
        topics = self._source.topics
        wanted = {
            each.source: topics[each.source.topic].partitions[each.source.partition]
            for each in waiting
            if each.key in self._fetched
        }
        if not wanted:
            return
        ends = await self._source.log_ends(wanted)
        for each in waiting:
            if each.source in ends and each.awaits_response:
                each.complete_at(ends[each.source])
                self._assign(each)

    async def _check_source(self) -> None:
        """Refuse a source that is this cluster, or another one than before."""
        found, known = self._source.cluster_id, self.definition.source_cluster_id
        if found == self._environment.cluster_id:
            raise SourceError("the source of the link is this cluster")
        if known and found != known:
            raise SourceError(f"the source is cluster {found}, not {known}: nothing is mirrored from it")
        if not known and self._is_chosen():
            await self._environment.changes.alter_link(self.definition.name, {"source.cluster.id": found})

    def _is_chosen(self) -> bool:
        """Whether this broker compares topics and configs: one of the active brokers, by the link's name."""
        active = sorted(each.id for each in self._environment.image.brokers.values() if not each.fenced)
        if not active:
            return False
        return active[crc32(self.definition.name.encode()) % len(active)] == self._environment.node_id

    def _places(self) -> Places:
        """The topics of this cluster, as ACLs of the source are about them."""
        mirrored, here = self._mirrored_topics().keys(), self._environment.image.topics
        matching = map(self.definition.local_name, filter(self.definition.mirrors, self._source.topics))
        own = [name for name in matching if name in here and name not in mirrored]
        return Places(mirrored, own, here, bool(mirrored))

    def _mirrored_topics(self) -> dict[str, MirroredTopic]:
        """The topics of this link that are mirrored now, by their names here."""
        image, found = self._environment.image, {}
        for topic in self._source.topics:
            name = self.definition.local_name(topic)
            text = image.topic_configs(name).get(LINK_CONFIG)
            mirrored = MirroredTopic.parse(text) if text else None
            if mirrored is not None and mirrored.link == self.definition.name and mirrored.is_fetched:
                found[name] = mirrored
        return found
