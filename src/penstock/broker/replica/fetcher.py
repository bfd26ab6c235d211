"""A fetcher: follows partitions of one leader with one connection, one session, one request at a time.

`FetchPlan` plans the requests, and each partition's `FollowerState` decides on the responses; the fetcher
carries out both. A partition that fails pauses by itself and delays no other. Records are appended from the
receive buffer. Where acks wait for the disk (`penstock.flush=group`) the next request is sent only after the
sync of the appended records: to fetch from an offset reports that everything below it is durable.

A new partition must not wait until a request in flight has found bytes for others. A request without
partitions, in the same session, ends that wait.

A response without errors is taken in as it arrives, and the next request is sent at once (`set_result`). All
other responses go to the fetcher's task (`_run`), which may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.base.retry import RetryPause
from penstock.broker.replica.archived_restart import ArchivedRestarts, Restart
from penstock.broker.replica.fetch_requests import ReplicaFetchRequests
from penstock.broker.replica.fetch_responses import check_reset, cut_log, split_response
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.follower_quarantine import FollowerQuarantine
from penstock.broker.replica.leader_offsets import log_bounds
from penstock.broker.replica.links import ClusterLinks
from penstock.broker.replica.offset_gaps import OffsetGaps
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_sync import sync_followers
from penstock.broker.replica.throttles import Throttles
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.net.client import Peer
from penstock.ports import Clock, Rng
from penstock.replication.fetch_plan import FetchPlan, PartitionKey, PlannedFetch
from penstock.replication.follower import (
    FetchAnswer,
    FetchPosition,
    FollowerState,
    Hold,
    Reset,
    SetAside,
    Step,
)
from penstock.storage.appending import OffsetGap
from penstock.wire.apis.fetch import FetchResponse
from penstock.wire.replica_fetch import REPLICA_FETCH, FetchedPartition, ReplicaFetchResponse
from penstock.wire.schema import Records

__all__ = ["ReplicaFetcher"]

log = get_logger("replica_fetcher")
#: partitions to advance before other work of the event loop gets a turn
_SLICE: Final = 64
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_LIMIT_S: Final = 1.0


class _Followed(NamedTuple):
    partition: Partition
    state: FollowerState


class ReplicaFetcher:
    """The fetcher to one leader, until `stop`. Why more than 25 methods: one per step of the fetch cycle."""

    def __init__(
        self,
        leader: int,
        purpose: str,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        *,
        cluster: ClusterLinks,
        throttles: Throttles,
        quarantine: FollowerQuarantine,
        restarts: ArchivedRestarts,
    ) -> None:
        """`purpose` names the connection to the leader."""
        self._leader = leader
        self._purpose = purpose
        self._node_id = config.node_id
        self._clock = clock
        self._metrics = metrics
        self._cluster = cluster
        self._throttle = throttles.follower
        self._quarantine = quarantine
        self._gaps = OffsetGaps()
        self._restarts = restarts
        self._plan = FetchPlan()
        self._followed: dict[PartitionKey, _Followed] = {}
        self._throttled: frozenset[PartitionKey] = frozenset()
        #: appended records to sync before the next request
        self._unsynced: dict[Flusher, dict[FollowerState, None]] = {}
        self._news = asyncio.Event()
        self._pause = RetryPause(rng, _PAUSE_FIRST_S, _PAUSE_LIMIT_S)
        #: the request that waits at the leader, if any
        self._waiting: PlannedFetch | None = None
        self._nudge: asyncio.Task[None] | None = None
        self._requests = ReplicaFetchRequests(config, cluster.broker_epoch)
        #: the connection of the requests in flight, and the future that the task waits for
        self._peer: Peer | None = None
        self._response: asyncio.Future[ReplicaFetchResponse | FetchResponse | None]
        self._response = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    def follow(self, partition: Partition, state: FollowerState) -> None:
        """Fetch a partition from now on, or in a new leader epoch."""
        key = (partition.topic_id, partition.index)
        self._followed[key] = _Followed(partition, state)
        self._plan.follow(key, state)
        if partition.sync.sync_rest():
            self._unsynced.setdefault(partition.sync.flusher, {})[state] = None
        if partition.log.lacks_history:
            self._restart(key, self._followed[key])
        self._news.set()
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        elif self._waiting is not None and self._nudge is None:
            self._nudge = loop.create_task(self._end_wait(self._waiting))

    def leave(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        if self._followed.pop(key, None) is not None:
            self._plan.leave(key)
            self._news.set()

    def throttle(self, keys: Iterable[PartitionKey]) -> None:
        """Fetch these partitions, which catch up, no faster than the replication quota allows."""
        self._throttled = frozenset(keys) & self._followed.keys()
        self._plan.throttle(self._throttled)
        self._news.set()

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._nudge) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._gaps.stop(), self._restarts.stop(), return_exceptions=True)

    # -- requests

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except PenstockError as e:
                # The request may have been lost: start a new session.
                self._plan.failed()
                self._requests.forget()
                log.info("replica_fetch_failed", leader=self._leader, error=str(e))
                await self._pause.wait()
            except Exception as e:
                self._plan.failed()
                self._requests.forget()
                log.error("replica_fetch_broke", leader=self._leader, error=repr(e), exc_info=e)
                await self._pause.wait()

    async def _fetch_once(self) -> None:
        if self._unsynced:
            # A partition whose sync fails is not fetched on.
            self._unsynced = await sync_followers(self._unsynced, self._now_ms)
        planned = self._plan.next_request(self._now_ms(), self._budget_used_up())
        if planned is None:
            await self._wait_for_news()
            return
        self._response = asyncio.get_running_loop().create_future()
        # The leader may have another address than last time.
        self._peer = peer = self._cluster.peer(self._leader, self._purpose)
        try:
            self._post(peer, planned)
            response = await self._response
        finally:
            self._waiting = None
        if self._nudge is not None:
            await self._nudge
        if response is not None:
            await self._take(response)

    def _post(self, peer: Peer, planned: PlannedFetch) -> None:
        """Send a request; its response comes to `set_result`."""
        if planned.session_epoch:
            self._waiting = planned
        wake_at_ms = self._wake_at_ms() if self._throttled else self._plan.wake_at_ms()
        # The end of a partition's pause is worth a request.
        wake_in_ms = None if wake_at_ms is None else wake_at_ms - self._now_ms()
        self._requests.post(peer, planned, wake_in_ms, self)

    # -- the landing of responses

    def done(self) -> bool:
        return self._response.done()

    def set_exception(self, error: Exception, /) -> None:
        self._response.set_exception(error)

    def set_result(self, response: ReplicaFetchResponse | FetchResponse, /) -> None:
        """Take in a response and send the next request; wake up the task for work that has to wait."""
        self._waiting = None
        if not isinstance(response, tuple) or self._nudge is not None or len(response[1]) > _SLICE:
            self._response.set_result(response)
            return
        try:
            session_id, fetched = response
            self._succeeded(session_id)
            self._advance(fetched)
            planned = None
            if not self._unsynced:
                used_up = bool(self._throttled) and self._budget_used_up()
                planned = self._plan.next_request(self._now_ms(), used_up)
            peer = self._peer
            if planned is None or peer is None:
                self._response.set_result(None)
            else:
                self._post(peer, planned)
        except Exception as e:  # noqa: BLE001 - the task logs it
            self._response.set_exception(e)

    async def _end_wait(self, waiting: PlannedFetch) -> None:
        """Send a request without partitions behind one that waits: the leader answers both at once."""
        try:
            # Other partitions may be added in this turn of the event loop.
            await asyncio.sleep(0)
            if self._waiting is waiting:
                self._plan.answered(waiting.session_id)
                planned = PlannedFetch(waiting.session_id, self._plan.session_epoch, {}, [])
                request = self._requests.request(planned, 0)
                request.max_bytes = 0
                peer = self._cluster.peer(self._leader, self._purpose)
                await peer.send(REPLICA_FETCH, request, self._requests.timeout_s)
        except PenstockError as e:
            log.info("replica_fetch_failed", leader=self._leader, error=str(e))
        finally:
            self._nudge = None

    def _budget_used_up(self) -> bool:
        return bool(self._throttled) and self._throttle.exhausted(self._now_ms())

    def _wake_at_ms(self) -> int | None:
        """When a partition may be fetched that may not be fetched now; None if there is none."""
        wake_at_ms = self._plan.wake_at_ms()
        if not self._throttled or not self._budget_used_up():
            return wake_at_ms
        open_at_ms = self._throttle.open_at_ms(self._now_ms())
        return open_at_ms if wake_at_ms is None else min(wake_at_ms, open_at_ms)

    async def _wait_for_news(self) -> None:
        """Wait until there may be a partition to fetch."""
        self._news.clear()
        wake_at_ms = self._wake_at_ms()
        timeout_s = None if wake_at_ms is None else max(0, wake_at_ms - self._now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    # -- responses

    def _succeeded(self, session_id: int) -> None:
        self._pause.reset()
        self._plan.answered(session_id)

    async def _take(self, response: ReplicaFetchResponse | FetchResponse) -> None:
        """Take in any response, partition by partition."""
        refused: Sequence[tuple[PartitionKey, FetchAnswer]] = ()
        if isinstance(response, FetchResponse):
            if response.error_code:
                error = ErrorCode(response.error_code)
                self._plan.failed(session_known=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                log.info("replica_session_over", leader=self._leader, error=error.name)
                await self._pause.wait()
                return
            session_id = response.session_id
            fetched: Sequence[FetchedPartition]
            fetched, refused = split_response(response)
        else:
            session_id, fetched = response
        self._succeeded(session_id)
        for start in range(0, len(fetched), _SLICE):
            if start:
                await asyncio.sleep(0)
            self._advance(fetched[start : start + _SLICE])
        for taken, (key, answer) in enumerate(refused, 1):
            if taken % _SLICE == 0:
                await asyncio.sleep(0)
            await self._take_refused(key, answer)

    def _advance(self, fetched: Iterable[FetchedPartition]) -> None:
        """Append the records of partitions whose response continues their logs."""
        sent_positions = self._plan.remembered
        for topic_id, index, high_watermark, start, records in fetched:
            key = (topic_id, index)
            followed = self._followed.get(key)
            sent = sent_positions.get(key)
            if followed is None or sent is None:
                continue
            if followed.state.continued(sent):
                self._append(key, followed, high_watermark, start, records)
            else:
                self._plan.touched(key)

    async def _take_refused(self, key: PartitionKey, answer: FetchAnswer) -> None:
        """Carry out the step that an error or a divergence of a partition leads to."""
        followed = self._followed.get(key)
        sent = self._plan.remembered.get(key)
        if followed is None or sent is None:
            return
        step = followed.state.answered(sent, answer, self._now_ms())
        if step is Hold.LIST_OFFSETS:
            step = await self._list_offsets(followed, sent)
        elif step is Hold.RESTART_BEHIND_ARCHIVE:
            self._restart(key, followed)
        if self._followed.get(key) is followed:
            self._carry_out(key, followed, step)

    def _restart(self, key: PartitionKey, followed: _Followed) -> None:
        """Have a follower start over behind what only the archive has; its fetch is repeated meanwhile."""

        def is_current() -> bool:
            return self._followed.get(key) is followed

        def done() -> None:
            self._plan.touched(key)
            self._news.set()

        followed.state.failed(self._now_ms())
        peer = self._cluster.peer(self._leader, self._purpose)
        self._restarts.begin(Restart(*followed, peer, is_current, done))

    def _carry_out(self, key: PartitionKey, followed: _Followed, step: Step) -> None:
        """Apply `step` to the log, and plan the partition anew."""
        partition = followed.partition
        try:
            if isinstance(step, Reset):
                step = check_reset(partition, followed.state, step, self._cluster, self._now_ms())
            if not isinstance(step, SetAside):
                cut_log(partition, step)
            elif not self._quarantine.set_aside(partition, self._leader, step.offset):
                followed.state.failed(self._now_ms())
        except ApiError as e:
            self._not_followed(followed, e)
        self._plan.touched(key)

    def _append(
        self, key: PartitionKey, followed: _Followed, high_watermark: int, start: int, records: Records
    ) -> None:
        """Append the records, if any, then take over the leader's high watermark and log start offset."""
        partition, state = followed
        size = 0
        try:
            if records:
                assert isinstance(records, memoryview)
                size = partition.append_replicated(records, state.leader_epoch)
            partition.follow_watermarks(high_watermark, start, size)
            state.succeeded()
        except ApiError as e:
            self._not_followed(followed, e)
            if isinstance(e, OffsetGap):
                self._gaps.ask(self._cluster.peer(self._leader, self._purpose), partition, e)
        self._plan.touched(key, size > 0)
        self._metrics.replication_bytes_in += size
        if key in self._throttled:
            self._throttle.spent(size, self._now_ms())
        if size and partition.sync.flusher.acks_wait:
            self._unsynced.setdefault(partition.sync.flusher, {})[state] = None

    def _not_followed(self, followed: _Followed, error: ApiError) -> None:
        log.error("replica_not_followed", partition=followed.partition.name, error=str(error))
        self._metrics.replication_errors += 1
        followed.state.failed(self._now_ms())

    async def _list_offsets(self, followed: _Followed, sent: FetchPosition) -> Step:
        """Query the bounds of the leader's log for a follower outside of them; returns its next step."""
        partition, state = followed
        try:
            peer = self._cluster.peer(self._leader, self._purpose)
            start, end = await log_bounds(
                peer, self._node_id, partition, state.leader_epoch, self._requests.timeout_s
            )
        except PenstockError as e:
            log.info("leader_offsets_unknown", partition=partition.name, error=str(e))
            return state.failed(self._now_ms())
        return state.offsets_listed(sent, start, end, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
