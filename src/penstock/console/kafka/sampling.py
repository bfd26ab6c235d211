"""Samples a cluster while a page is open, and keeps the history that pages show.

Invariant: sampling costs a bounded share of a core. The pause after a sample is at least `_PAUSE_FACTOR`
times as long as the sample took, so that a cluster of 10,000 topics is sampled less often than a small one.
Time that a sample has waited for a silent broker does not count.
Pages of the same session share one sampler.

While nothing changes, two of three samples leave out what rarely changes: directories, fenced brokers and the
quorum. These are half of the cost of a sample for the brokers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.kafka.committed import fetch_commits, fetch_share_offsets
from penstock.console.kafka.offsets import LATEST, list_offsets
from penstock.console.views.events import Event, changes
from penstock.console.views.samples import GroupSample, History, Key, Sample, partitions_of
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC
from penstock.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponsePartition,
)
from penstock.wire.apis.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest
from penstock.wire.apis.metadata import MetadataResponse

__all__ = ["Sampler"]

#: ten consoles of a cluster of three brokers cost less than 5 % of a core
_PAUSE_S: Final = 3.0
_PAUSE_FACTOR: Final = 20.0
_PAUSE_MAX_S: Final = 60.0
#: samples until directories, brokers and the quorum are described again
_CALM_SAMPLES: Final = 2
_EVENTS_MAX: Final = 200
#: groups in one OffsetFetch request
_GROUPS_AT_ONCE: Final = 200


class Sampler:
    """The history of one cluster as one user sees it. Samples only while there are subscribers."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._subscribers = 0
        self._turn = asyncio.Event()
        self._closed = False
        #: samples without descriptions since the last one with them
        self._calm = 0
        self.history = History()
        self.events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        self.error: str | None = None
        #: seconds that the last sample with all brokers took, and the pause after it
        self.took_s = 0.0
        self.pause_s = _PAUSE_S

    async def current(self) -> Sample:
        """The last sample if it is recent, or a new one."""
        last = self.history.last
        if last is None or self._now() - last.time_s > max(_PAUSE_S, self.pause_s) * 1.5:
            await self._sample()
        assert self.history.last is not None
        return self.history.last

    async def refresh(self) -> Sample:
        """A new sample, after a change that the next page has to show."""
        self._calm = _CALM_SAMPLES
        await self._sample()
        assert self.history.last is not None
        return self.history.last

    async def updates(self) -> AsyncGenerator[None, None]:
        """Yields after each sample, whether it has succeeded or not, until `close`."""
        self._subscribers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            if self.history.last is not None:
                yield
            while True:
                await self._turn.wait()
                if self._closed:
                    return
                yield
        finally:
            self._subscribers -= 1

    def close(self) -> None:
        self._closed = True
        self._turn.set()
        if self._task is not None:
            self._task.cancel()
        self._cluster.close()

    async def _run(self) -> None:
        try:
            while self._subscribers:
                with suppress(PenstockError):
                    await self._sample()
                turn, self._turn = self._turn, asyncio.Event()
                turn.set()
                await asyncio.sleep(self.pause_s)
        finally:
            self._task = None

    async def _sample(self) -> None:
        began = self._monotonic()
        before = self.history.last
        try:
            sample = await self._next(before)
        except PenstockError as error:
            self.error = str(error)
            self._calm = _CALM_SAMPLES
            raise
        self.error = None
        self.history.add(sample)
        if before is not None:
            self.events.extend(changes(before, sample))
        if None in sample.log_dirs.values():
            # It has waited for a broker, which costs nothing. A failover must be seen live.
            return
        self.took_s = self._monotonic() - began
        self.pause_s = min(_PAUSE_MAX_S, max(_PAUSE_S, self.took_s * _PAUSE_FACTOR))

    async def _next(self, before: Sample | None) -> Sample:
        """A sample with the descriptions of the one before, if these are recent and nothing has changed."""
        if before is not None and self._calm < _CALM_SAMPLES:
            sample = await take_sample(self._cluster, self._now(), before)
            if is_calm(before, sample):
                self._calm += 1
                return sample
        self._calm = 0
        return await take_sample(self._cluster, self._now())


def is_calm(before: Sample, after: Sample) -> bool:
    """Whether brokers, leaders and in-sync replicas are the same, and all brokers have responded."""
    leading = sum(p.leader >= 0 for p in after.partitions.values())
    return (
        {b.node_id for b in before.metadata.brokers} == {b.node_id for b in after.metadata.brokers}
        and before.partitions == after.partitions
        and None not in after.log_dirs.values()
        and len(after.ends) == leading
    )


async def take_sample(cluster: Cluster, now_s: float, before: Sample | None = None) -> Sample:
    """One look at all brokers, topics and groups. Parts that brokers refuse are None.

    With the sample `before`, its descriptions of directories, brokers and the quorum are used again.
    """
    metadata = await cluster.metadata()
    partitions = partitions_of(metadata)
    leaders = {key: p.leader for key, p in partitions.items() if p.leader >= 0}
    if before is not None:
        ends, groups = await asyncio.gather(
            list_offsets(cluster, leaders, LATEST),
            _groups(cluster, metadata),
        )
        kept = (before.cluster, before.quorum, before.log_dirs)
        return Sample(now_s, metadata, *kept, ends, groups, sized_s=before.sized_s)
    brokers = {broker.node_id: DescribeLogDirsRequest(topics=None) for broker in metadata.brokers}
    described, quorum, log_dirs, ends, groups = await asyncio.gather(
        _described(cluster),
        _quorum(cluster),
        cluster.send_each(DESCRIBE_LOG_DIRS, brokers),
        list_offsets(cluster, leaders, LATEST),
        _groups(cluster, metadata),
    )
    return Sample(now_s, metadata, described, quorum, log_dirs, ends, groups)


async def _described(cluster: Cluster) -> DescribeClusterResponse | None:
    try:
        response = await cluster.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
    except (Refused, NotReachable):
        return None
    return None if response.error_code else response


async def _quorum(cluster: Cluster) -> DescribeQuorumResponsePartition | None:
    wanted = DescribeQuorumRequestTopic(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartition(partition_index=0)]
    )
    try:
        response = await cluster.send(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[wanted]))
    except (Refused, NotReachable):
        return None
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    (found,) = response.topics[0].partitions
    return None if found.error_code else found


async def _groups(cluster: Cluster, metadata: MetadataResponse) -> list[GroupSample] | None:
    """The groups of all coordinators with their commits; None if no broker lists its groups."""
    requests = {broker.node_id: ListGroupsRequest() for broker in metadata.brokers}
    answers = await cluster.send_each(LIST_GROUPS, requests)
    names = {topic.topic_id: topic.name or "" for topic in metadata.topics}
    listed = {
        broker: answer.groups
        for broker, answer in answers.items()
        if answer is not None and not answer.error_code
    }
    if not listed:
        return None
    found = await asyncio.gather(
        *(_with_commits(cluster, broker, groups, names) for broker, groups in listed.items())
    )
    return sorted((each for groups in found for each in groups), key=lambda group: group.name)


async def _with_commits(
    cluster: Cluster, broker: int, groups: list[ListedGroup], topic_names: Mapping[bytes, str]
) -> list[GroupSample]:
    commits: dict[str, dict[Key, int]] = {}
    lags: dict[str, dict[Key, int]] = {}
    for names in _slices([group.group_id for group in groups if group.group_type.lower() != "share"]):
        commits |= await fetch_commits(cluster, broker, names, topic_names)
    for names in _slices([group.group_id for group in groups if group.group_type.lower() == "share"]):
        for name, (starts, own) in (await fetch_share_offsets(cluster, broker, names)).items():
            commits[name], lags[name] = starts, own
    return [
        GroupSample(
            group.group_id,
            group.group_state or "Unknown",
            group.group_type.lower() or "classic",
            group.protocol_type,
            broker,
            commits.get(group.group_id, {}),
            lags.get(group.group_id, {}),
        )
        for group in groups
    ]


def _slices(names: list[str]) -> list[list[str]]:
    return [names[first : first + _GROUPS_AT_ONCE] for first in range(0, len(names), _GROUPS_AT_ONCE)]
