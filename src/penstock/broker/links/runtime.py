"""The links of one broker: a worker for each, and the partitions that each mirrors.

A broker of a cluster without links has no worker and no task. Links and mirrored topics are configs, so that
every change of them comes with the metadata. Leaders are compared once a second, too: a log may be opened, or
repaired, after the metadata has named its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.metadata.image import LINK, TOPIC, ClusterImage
from penstock.model.config.mirrored_topics import MirroredTopic
from penstock.model.errors import ApiError, InvalidConfig
from penstock.model.ids import TopicId, format_topic_id
from penstock.replication.fetch_plan import PartitionKey
from penstock.wire.apis.describe_log_dirs import LinkProblem, LinkReport, MirroredLog
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.broker.links.mirrored_partition import MirroredPartition
    from penstock.broker.links.worker import LinkEnvironment, LinkWorker

__all__ = ["LinkState", "Links"]

log = get_logger("links")
#: the config of a mirrored topic
_LINK_CONFIG: Final = "penstock.link"
_SET_BY_BROKERS: Final = ("source.cluster.id", "acls.made", "quotas.made")
_COMPARE_S: Final = 1.0
#: topics between two yields
_SLICE: Final = 32


class LinkState(NamedTuple):
    """A link as this broker sees it."""

    name: str
    #: why the last round failed
    error: str
    errors: int
    rounds: int
    #: topics that cannot be mirrored, and why
    problems: Mapping[str, str]
    #: groups that readers of this cluster have taken over
    foreign_groups: Iterable[str]
    #: the topics that the last comparison of offsets took for promoted, as TOPIC/STATE
    promotions: Sequence[str]


class Links:
    """All links of the cluster, on this broker. Owned by the event loop's thread."""

    def __init__(
        self,
        image: ClusterImage,
        find: Callable[[str | TopicId, int], Slot],
        environment: Callable[[], LinkEnvironment],
    ) -> None:
        """`environment` is called for the first link."""
        self._image = image
        self._find = find
        self._new_environment = environment
        self._environment: LinkEnvironment | None = None
        self._workers: dict[str, LinkWorker] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with the links that there are."""
        if any(kind == LINK for kind, _ in self._image.configs):
            self._begin()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for worker in self._workers.values():
            await worker.stop()
        self._workers.clear()
        self._configs.clear()

    def metadata_changed(self, records: Iterable[Struct]) -> None:
        """Metadata records were applied."""
        if self._task is not None:
            self._changed.set()
        elif any(isinstance(record, ConfigRecord) and record.resource_type == LINK for record in records):
            self._begin()

    def _begin(self) -> None:
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    # -- states

    def state_of(self, partition: Partition) -> MirroredPartition | None:
        """The mirror of a partition; None if it is not one, or is led by another broker."""
        key = (partition.topic_id, partition.index)
        for worker in self._workers.values():
            found = worker.mirrored.get(key)
            if found is not None:
                return found
        return None

    def described(self, partition: Partition, now_ms: int) -> MirroredLog | None:
        """The mirror of a partition, for a description; None if it is not one that this broker leads."""
        found = self.state_of(partition) if self._workers else None
        if found is None:
            return None
        mirror, own = found.mirror, partition.log
        described = MirroredLog(
            link=found.topic.link,
            phase=str(mirror.phase),
            reason=mirror.reason,
            end_offset=own.high_watermark,
            last_timestamp_ms=found.last_timestamp,
            source_end_offset=mirror.source_end,
            lag_ms=found.lag_ms(now_ms),
            missed=mirror.missed,
            errors=mirror.errors,
            bytes=found.bytes,
            open_transactions=len(own.producers.ongoing),
            aborted=found.aborted,
            is_closed=found.is_closed and own.high_watermark == own.end_offset and found.has_reserved,
            topic_state=found.topic.numbered_state,
        )
        if found.comparison is not None:
            described.common_offset = found.comparison.common_offset
            described.divergent_records = found.comparison.divergent_records
            described.leader_epoch = found.comparison.leader_epoch
            described.source_topic_id = format_topic_id(found.comparison.source_topic_id)
        return described

    def reports(self) -> list[LinkReport]:
        """All links, for a description."""
        return [
            LinkReport(
                name=each.name,
                error=each.error,
                errors=each.errors,
                rounds=each.rounds,
                problems=[LinkProblem(topic=topic, reason=reason) for topic, reason in each.problems.items()],
                foreign_groups=sorted(each.foreign_groups),
                promotions=list(each.promotions),
            )
            for each in self.states()
        ]

    def states(self) -> Iterator[LinkState]:
        for name, worker in sorted(self._workers.items()):
            problems, foreign = worker.topics.problems, worker.groups.foreign
            yield LinkState(
                name, worker.error, worker.errors, worker.rounds, problems, foreign, worker.promotions
            )

    def mirrored(self) -> Iterator[tuple[str, MirroredPartition]]:
        """The link and the mirror of each partition that this broker leads."""
        for name, worker in sorted(self._workers.items()):
            for each in worker.mirrored.values():
                yield name, each

    # -- comparison with the metadata

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._compare()
            except Exception as e:
                log.error("links_broke", exc_info=e)
            if not self._workers and not any(kind == LINK for kind, _ in self._image.configs):
                await self._wait(None)
            else:
                await self._wait(_COMPARE_S)

    async def _wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _compare(self) -> None:
        await self._compare_links()
        wanted: dict[str, set[PartitionKey]] = {name: set() for name in self._workers}
        for nth, (name, topic) in enumerate(list(self._mirrored_topics())):
            if nth % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            worker, found = self._workers.get(topic.link), self._image.topics.get(name)
            is_mirror = topic.is_read_only and not topic.is_source
            if worker is None or found is None or not is_mirror:
                continue
            for index in list(found.partitions):
                partition = self._find(name, index)
                if not isinstance(partition, Partition) or not partition.leading:
                    continue
                wanted[topic.link].add((partition.topic_id, index))
                try:
                    worker.lead(partition, topic)
                except (ApiError, OSError) as e:
                    # The end of its log cannot be read. Other partitions go on.
                    log.error("mirror_refused", partition=partition.name, error=str(e))
        for link, keys in wanted.items():
            if link in self._workers:
                self._workers[link].keep(keys)

    def _mirrored_topics(self) -> Iterator[tuple[str, MirroredTopic]]:
        for (kind, name), values in self._image.configs.items():
            if kind == TOPIC and values.get(_LINK_CONFIG):
                yield name, MirroredTopic.parse(values[_LINK_CONFIG])

    async def _compare_links(self) -> None:
        """Start, replace and stop workers."""
        # Imported here, because most clusters have no links.
        from penstock.broker.links.worker import LinkWorker
        from penstock.linking.definition import LinkDefinition

        links = {name: values for (kind, name), values in self._image.configs.items() if kind == LINK}
        for name, values in links.items():
            if name in self._workers and _defining(values) == _defining(self._configs[name]):
                self._configs[name] = dict(values)
                self._workers[name].definition = LinkDefinition.of(name, values)
        for name in [name for name, values in self._configs.items() if links.get(name) != values]:
            del self._configs[name]
            worker = self._workers.pop(name, None)
            if worker is not None:
                await worker.stop()
        for name, values in links.items():
            if name in self._configs:
                continue
            self._configs[name] = dict(values)
            if self._environment is None:
                self._environment = self._new_environment()
            try:
                worker = LinkWorker(LinkDefinition.of(name, values), self._environment)
            except InvalidConfig as e:
                # For example a file with certificates that this broker does not have.
                log.error("link_refused", link=name, error=str(e))
                continue
            self._workers[name] = worker
            worker.start()


def _defining(values: Mapping[str, str]) -> dict[str, str]:
    """The configs of a link without those that its brokers set."""
    return {name: value for name, value in values.items() if name not in _SET_BY_BROKERS}
