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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.kafka.group_samples import sampled_groups
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.views.alerts import Alerts
from penstock.console.views.events import Event, changes
from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap, gap_of_brokers, gap_of_code
from penstock.console.views.samples import GroupSample, History, Key, Sample, partitions_of
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC
from penstock.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponsePartition,
)

__all__ = ["Sampler"]

T = TypeVar("T")

#: ten consoles of a cluster of three brokers cost less than 5 % of a core
_PAUSE_S: Final = 3.0
_PAUSE_FACTOR: Final = 20.0
_PAUSE_MAX_S: Final = 60.0
#: a sample that takes longer waits for brokers that do not respond
_SILENCE_S: Final = 10.0
_LOOK_S: Final = 5.0
#: samples until directories, brokers and the quorum are described again
_CALM_SAMPLES: Final = 2
_EVENTS_MAX: Final = 200
#: Brokers leave out what a user may not describe, without a word. That a user may describe the cluster is the
#: only sign of whether anything is left out.
_PARTLY: Final = Gap(REFUSED, "this user sees only what it may describe")


class Sampler:
    """The history of one cluster as one user sees it. Samples only while there are subscribers."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        """`on_sample` gets each sample that has succeeded."""
        self._cluster = cluster
        self._on_sample = on_sample
        self._now = now
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._subscribers = 0
        self._turn = asyncio.Event()
        self._closed = False
        #: samples without descriptions since the last one with them
        self._calm = 0
        self.history = History()
        self.alerts = Alerts()
        self.events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        self.error: str | None = None
        #: when the oldest sample that is not finished has begun, and how many there are
        self._began_s = 0.0
        self._unfinished = 0
        #: whether the running task took the last sample, and so takes the next one, too
        self._is_watched = False
        #: seconds that the last sample with all brokers took, and the pause after it
        self.took_s = 0.0
        self.pause_s = _PAUSE_S

    @property
    def age_s(self) -> float | None:
        """Seconds since the last sample that has succeeded; None if none has."""
        last = self.history.last
        return None if last is None else round(max(0.0, self._now() - last.time_s), 1)

    @property
    def doubt(self) -> str | None:
        """Why the last sample need not be the present state; None if it is."""
        if self.error is not None:
            return f"the last request failed: {self.error}"
        silent_s = self._monotonic() - self._began_s
        if self._unfinished and silent_s > _SILENCE_S:
            return f"the brokers have not responded for {silent_s:.0f} s"
        return None

    async def current(self) -> Sample:
        """The last sample if it is recent, or a new one.

        While a page watches, the next sample is on its way: a page shows the last known state at once.
        """
        last = self.history.last
        if last is not None and self._is_watched and self.error is None:
            return last
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
        """Yields after each sample, also one that has failed, and while brokers are silent, until `close`."""
        self._subscribers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            if self.history.last is not None:
                yield
            while True:
                turn = self._turn
                with suppress(TimeoutError):
                    await asyncio.wait_for(turn.wait(), _LOOK_S)
                if self._closed:
                    return
                if turn.is_set() or self.doubt is not None:
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
                    self._is_watched = True
                turn, self._turn = self._turn, asyncio.Event()
                turn.set()
                await asyncio.sleep(self.pause_s)
        finally:
            self._task = None
            self._is_watched = False

    async def _sample(self) -> None:
        began = self._monotonic()
        if not self._unfinished:
            self._began_s = began
        self._unfinished += 1
        try:
            await self._take(began)
        finally:
            self._unfinished -= 1

    async def _take(self, began: float) -> None:
        before = self.history.last
        try:
            sample = await self._next(before)
        except PenstockError as error:
            self.error = str(error)
            self._calm = _CALM_SAMPLES
            raise
        self.error = None
        self.history.add(sample)
        self.alerts.update(self.history)
        if self._on_sample is not None:
            self._on_sample(sample)
        if before is not None:
            self.events.extend(changes(before, sample))
        if None in sample.log_dirs.values():
            # It has waited for a broker, which costs nothing. A failover must be seen live.
            return
        self.took_s = self._monotonic() - began
        self.pause_s = min(_PAUSE_MAX_S, max(_PAUSE_S, self.took_s * _PAUSE_FACTOR))
        if self.history.bytes_per_s is None:
            # Rates need a second sample: a page that was just opened must not wait for them.
            self.pause_s = _PAUSE_S

    async def _next(self, before: Sample | None) -> Sample:
        """A sample with the descriptions of the one before, if these are recent and nothing has changed."""
        if before is not None and self._calm < _CALM_SAMPLES and self.history.bytes_per_s is not None:
            sample = await take_sample(self._cluster, self._now, before)
            if is_calm(before, sample):
                self._calm += 1
                return sample
        self._calm = 0
        return await take_sample(self._cluster, self._now)


def is_calm(before: Sample, after: Sample) -> bool:
    """Whether brokers, leaders and in-sync replicas are the same, and all brokers have responded."""
    leading = sum(p.leader >= 0 for p in after.partitions.values())
    return (
        {b.node_id for b in before.metadata.brokers} == {b.node_id for b in after.metadata.brokers}
        and before.partitions == after.partitions
        and None not in after.log_dirs.values()
        and len(after.ends) == leading
    )


async def take_sample(cluster: Cluster, now: Callable[[], float], before: Sample | None = None) -> Sample:
    """One look at all brokers, topics and groups. Parts that brokers refuse are None.

    With the sample `before`, its descriptions of directories, brokers and the quorum are used again.
    """
    metadata = await cluster.metadata()
    partitions = partitions_of(metadata)
    leaders = {key: p.leader for key, p in partitions.items() if p.leader >= 0}
    sized_s = -1.0 if before is None else before.sized_s
    kept = ("sizes", "topics")
    gaps = {} if before is None else {name: gap for name, gap in before.gaps.items() if name in kept}
    if before is not None:
        (ends, ended_s), (groups, unlisted) = await asyncio.gather(
            _timed(list_offsets(cluster, leaders, LATEST), now), sampled_groups(cluster, metadata)
        )
        described, quorum, log_dirs = before.cluster, before.quorum, before.log_dirs
    else:
        request = DescribeLogDirsRequest(topics=None, include_health=True)
        brokers = {broker.node_id: request for broker in metadata.brokers}
        described, (log_dirs, sized_s), (ends, ended_s), (groups, unlisted) = await asyncio.gather(
            _described(cluster),
            _timed(cluster.send_each(DESCRIBE_LOG_DIRS, brokers), now),
            _timed(list_offsets(cluster, leaders, LATEST), now),
            sampled_groups(cluster, metadata),
        )
        # Last: without a controller its response takes long, and responses of one connection come in order.
        quorum = await _quorum(cluster)
        gaps |= _unsized(log_dirs)
        if log_dirs and all(is_refused(answer) for answer in log_dirs.values()):
            gaps["topics"] = _PARTLY
    if unlisted is not None or "topics" in gaps:
        gaps["groups"] = unlisted or _PARTLY
    return Sample(
        now(),
        metadata,
        cluster=described,
        quorum=quorum,
        log_dirs=log_dirs,
        ends=ends,
        groups=groups,
        starts=await _uncommitted_starts(cluster, leaders, groups or []),
        gaps=gaps,
        ended_s=ended_s,
        sized_s=sized_s,
    )


async def _timed(answer: Awaitable[T], now: Callable[[], float]) -> tuple[T, float]:
    """An answer, and the time when it came."""
    return await answer, now()


def is_refused(answer: DescribeLogDirsResponse | None) -> bool:
    """Whether a broker does not describe its directories to this user, who may not describe the cluster."""
    gap = None if answer is None else gap_of_code(answer.error_code)
    return gap is not None and gap.state == REFUSED


def _unsized(log_dirs: Mapping[int, DescribeLogDirsResponse | None]) -> dict[str, Gap]:
    """Why some sizes are not known."""
    gaps = {}
    for broker, answer in log_dirs.items():
        gap = Gap(UNKNOWN, "no response") if answer is None else gap_of_code(answer.error_code)
        if gap is not None:
            gaps[broker] = gap
    found = gap_of_brokers(gaps)
    return {} if found is None else {"sizes": found}


async def _uncommitted_starts(
    cluster: Cluster, leaders: Mapping[Key, int], groups: list[GroupSample]
) -> dict[Key, int]:
    """First offsets of the partitions that some group has not committed in topics that it reads."""
    by_topic: dict[str, list[Key]] = {}
    for key in leaders:
        by_topic.setdefault(key[0], []).append(key)
    wanted: dict[Key, int] = {}
    for group in groups:
        if group.kind == "share":
            continue
        for topic in {key[0] for key in group.commits}:
            missing = [key for key in by_topic.get(topic, ()) if key not in group.commits]
            wanted.update((key, leaders[key]) for key in missing)
    return await list_offsets(cluster, wanted, EARLIEST) if wanted else {}


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
