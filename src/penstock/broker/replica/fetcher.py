"""Fetches from one leader what this broker follows: one connection, one session, one request at a time.

`FetchPlan` says what to ask, each partition's `FollowerState` what an answer means; here both are carried
out. A partition that has trouble pauses by itself and holds up no other. Records are appended as they lie in
the receive buffer. Where acks wait for the disk (`penstock.flush=group`) the next request goes out only after
the sync of what the last one brought: to fetch from an offset says that everything below is safe.

A partition that is new here must not wait until the request that is under way has found something for others:
a request that wants nothing, in the same session, ends its wait.

The usual answer, records and nothing else, is taken in as it arrives, and the next request leaves with it
(`set_result`). Whatever else there is wakes up the fetcher's task (`_run`), which does all that has to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.fetch_requests import ReplicaAsks
from penstock.broker.replica.fetch_responses import cut, told_by
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.net.client import Peer
from penstock.replication.fetch_plan import FetchPlan, PartitionKey, PlannedFetch
from penstock.replication.follower import (
    Append,
    FetchAnswer,
    FetchPosition,
    FollowerState,
    Hold,
    Reset,
    SetAside,
    Step,
)
from penstock.wire.apis.fetch import FetchResponse
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.backoff import Backoff
from penstock.wire.replica_fetch import REPLICA_FETCH, Answer
from penstock.wire.schema import Records

if TYPE_CHECKING:
    from penstock.broker.app.parts import BrokerParts as Broker

__all__ = ["ReplicaFetcher"]

log = get_logger("replica_fetcher")
_EARLIEST: Final = -2
_LATEST: Final = -1
#: answers to take in before others get a turn
_SLICE: Final = 64
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_LIMIT_S: Final = 1.0


class _Followed(NamedTuple):
    partition: Partition
    state: FollowerState


class ReplicaFetcher:
    """One fetcher of this broker to one leader, from its first partition until `stop`."""

    def __init__(self, broker: Broker, leader: int, purpose: str) -> None:
        self._broker = broker
        self._leader = leader
        self._purpose = purpose
        self._plan = FetchPlan()
        self._followed: dict[PartitionKey, _Followed] = {}
        self._throttled: frozenset[PartitionKey] = frozenset()
        #: what was appended and has to be synced before it is fetched on from
        self._unsynced: dict[Flusher, dict[FollowerState, None]] = {}
        self._news = asyncio.Event()
        self._backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LIMIT_S)
        #: the connection, as long as there is no trouble
        self._peer: Peer
        #: the session of the request that waits at the leader, if one does, and requests made since
        self._waiting: PlannedFetch | None = None
        self._nudge: asyncio.Task[None] | None = None
        self._asks = ReplicaAsks(broker)
        #: done when there is something for our task to do
        self._rest: asyncio.Future[Answer | FetchResponse | None]
        self._task: asyncio.Task[None] | None = None

    def follow(self, partition: Partition, state: FollowerState) -> None:
        """Fetch a partition from now on, or in a new leader epoch."""
        key = (partition.topic_id, partition.index)
        self._followed[key] = _Followed(partition, state)
        self._plan.follow(key, state)
        if partition.sync_rest():
            self._unsynced.setdefault(partition.flusher, {})[state] = None
        self._news.set()
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        elif self._waiting is not None and self._nudge is None:
            self._nudge = loop.create_task(self._end_wait(self._waiting))

    def leave(self, key: PartitionKey) -> None:
        """Fetch a partition no longer."""
        if self._followed.pop(key, None) is not None:
            self._plan.leave(key)
            self._news.set()

    def throttle(self, keys: Iterable[PartitionKey]) -> None:
        """These catch up no faster than the broker's rate allows; all others as fast as they can."""
        self._throttled = frozenset(keys) & self._followed.keys()
        self._plan.throttle(self._throttled)
        self._news.set()

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._nudge) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- asking

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except PenstockError as e:
                # The request may have got lost: the leader's session is started over.
                self._plan.failed()
                self._asks.forget()
                log.info("replica_fetch_failed", leader=self._leader, error=str(e))
                await self._pause()
            except Exception as e:
                self._plan.failed()
                self._asks.forget()
                log.error("replica_fetch_broke", leader=self._leader, error=repr(e), exc_info=e)
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff.failed(self._broker.rng.uniform(-1.0, 1.0)))

    async def _fetch_once(self) -> None:
        if self._unsynced:
            await self._sync()
        planned = self._plan.next_request(self._now_ms(), self._budget_used_up())
        if planned is None:
            await self._wait_for_news()
            return
        self._rest = asyncio.get_running_loop().create_future()
        # Looked up anew: since the last time the leader may have moved, and somebody else be where it was.
        self._peer = self._broker.peer(self._leader, self._purpose)
        try:
            self._post(planned)
            answer = await self._rest
        finally:
            self._waiting = None
        if self._nudge is not None:
            await self._nudge
        if answer is not None:
            await self._take(answer)

    def _post(self, planned: PlannedFetch) -> None:
        """Ask; the answer comes to `set_result`."""
        if planned.session_epoch:
            self._waiting = planned
        wake_at_ms = self._wake_at_ms()
        # A pause that ends is worth a request.
        wake_in_ms = None if wake_at_ms is None else wake_at_ms - self._now_ms()
        self._asks.post(self._peer, planned, wake_in_ms, self)

    # -- where answers land

    def done(self) -> bool:
        return self._rest.done()

    def set_exception(self, error: Exception, /) -> None:
        self._rest.set_exception(error)

    def set_result(self, answer: Answer | FetchResponse, /) -> None:
        """Take in what came and ask on, if that is all there is to do; else wake up our task."""
        self._waiting = None
        if not isinstance(answer, tuple) or self._nudge is not None or len(answer[1]) > _SLICE:
            self._rest.set_result(answer)
            return
        try:
            session_id, told = answer
            self._succeeded(session_id)
            remembered = self._plan.remembered
            for topic_id, index, high_watermark, start, records in told:
                key = (topic_id, index)
                followed = self._followed.get(key)
                sent = remembered.get(key)
                if followed is None or sent is None:
                    continue
                if followed.state.continued(sent):
                    self._append(key, followed, high_watermark, start, records)
                else:
                    self._plan.touched(key)
            planned = None
            if not self._unsynced:
                planned = self._plan.next_request(self._now_ms(), self._budget_used_up())
            if planned is None:
                self._rest.set_result(None)
            else:
                self._post(planned)
        except Exception as e:  # noqa: BLE001 - our task tells of it
            self._rest.set_exception(e)

    async def _end_wait(self, waiting: PlannedFetch) -> None:
        """Ask for nothing behind a request that waits: the leader answers both at once."""
        try:
            # After this turn of the loop, with all that it brings.
            await asyncio.sleep(0)
            if self._waiting is waiting:
                self._plan.answered(waiting.session_id)
                planned = PlannedFetch(waiting.session_id, self._plan.session_epoch, {}, [])
                ask = self._asks.ask_of(planned, 0)._replace(max_bytes=0)
                peer = self._broker.peer(self._leader, self._purpose)
                await peer.send(REPLICA_FETCH, ask, self._asks.timeout_s)
        except PenstockError as e:
            log.info("replica_fetch_failed", leader=self._leader, error=str(e))
        finally:
            self._nudge = None

    def _budget_used_up(self) -> bool:
        return bool(self._throttled) and self._broker.replicas.throttles.follower.exhausted(self._now_ms())

    def _wake_at_ms(self) -> int | None:
        """When there is something to ask for that is not to be asked for now."""
        wake_at_ms = self._plan.wake_at_ms()
        if not self._throttled or not self._budget_used_up():
            return wake_at_ms
        open_at_ms = self._broker.replicas.throttles.follower.open_at_ms(self._now_ms())
        return open_at_ms if wake_at_ms is None else min(wake_at_ms, open_at_ms)

    async def _wait_for_news(self) -> None:
        """Return when there may be something to ask for."""
        self._news.clear()
        wake_at_ms = self._wake_at_ms()
        timeout_s = None if wake_at_ms is None else max(0, wake_at_ms - self._now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    # -- answers

    def _succeeded(self, session_id: int) -> None:
        self._backoff.succeeded()
        self._plan.answered(session_id)

    async def _take(self, answer: Answer | FetchResponse) -> None:
        """Carry out what an answer of any form means, partition by partition."""
        if isinstance(answer, FetchResponse):
            if answer.error_code:
                self._plan.failed(session_known=answer.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                log.info("replica_session_over", leader=self._leader, error=ErrorCode(answer.error_code).name)
                await self._pause()
                return
            session_id, told = answer.session_id, told_by(answer)
        else:
            session_id = answer[0]
            told = [
                (topic_id, index, FetchAnswer(ErrorCode.NONE, high_watermark, start), records)
                for topic_id, index, high_watermark, start, records in answer[1]
            ]
        self._succeeded(session_id)
        now_ms = self._now_ms()
        for taken, (topic_id, index, fetched, records) in enumerate(told, 1):
            if taken % _SLICE == 0:
                await asyncio.sleep(0)
            key = (topic_id, index)
            followed = self._followed.get(key)
            sent = self._plan.remembered.get(key)
            if followed is None or sent is None:
                continue
            step = followed.state.answered(sent, fetched, now_ms)
            if step is Hold.ASK_OFFSETS:
                step = await self._ask_offsets(followed, sent)
            if self._followed.get(key) is followed:
                self._carry_out(key, followed, step, records)

    def _carry_out(self, key: PartitionKey, followed: _Followed, step: Step, records: Records | None) -> None:
        """Do to the log what `step` says, and look at the partition again for the next request."""
        if isinstance(step, Append):
            self._append(key, followed, step.high_watermark, step.log_start_offset, records)
            return
        partition = followed.partition
        try:
            if isinstance(step, Reset) and partition.log.has_unexpired(self._broker.clock.now_ms()):
                # Retention here would keep the records: a leader that lost its first segments may be wrong.
                step = SetAside(step.offset)
            if not isinstance(step, SetAside):
                cut(partition, step)
            elif not self._broker.replicas.quarantine.set_aside(partition, self._leader, step.offset):
                followed.state.failed(self._now_ms())
        except ApiError as e:
            self._not_followed(followed, e)
        self._plan.touched(key)

    def _append(
        self, key: PartitionKey, followed: _Followed, high_watermark: int, start: int, records: Records | None
    ) -> None:
        """Append the records, if any; then the high watermark and the start offset follow the leader's."""
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
        self._plan.touched(key, size > 0)
        self._broker.metrics.replication_bytes_in += size
        if key in self._throttled:
            self._broker.replicas.throttles.follower.spent(size, self._now_ms())
        if size and partition.flusher.acks_wait:
            self._unsynced.setdefault(partition.flusher, {})[state] = None

    def _not_followed(self, followed: _Followed, error: ApiError) -> None:
        log.error("replica_not_followed", partition=followed.partition.name, error=str(error))
        followed.state.failed(self._now_ms())

    async def _ask_offsets(self, followed: _Followed, sent: FetchPosition) -> Step:
        """Our offset is not in the leader's log: where that starts and ends decides what to do."""
        partition, state = followed
        try:
            start = await self._list_offset(partition, state.leader_epoch, _EARLIEST)
            end = await self._list_offset(partition, state.leader_epoch, _LATEST)
        except PenstockError as e:
            log.info("leader_offsets_unknown", partition=partition.name, error=str(e))
            return state.failed(self._now_ms())
        return state.offsets_listed(sent, start, end, self._now_ms())

    async def _list_offset(self, partition: Partition, leader_epoch: int, timestamp: int) -> int:
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )
        peer = self._broker.peer(self._leader, self._purpose)
        ((answer,),) = [
            t.partitions for t in (await peer.send(LIST_OFFSETS, request, self._asks.timeout_s)).topics
        ]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return answer.offset

    async def _sync(self) -> None:
        """Return when what was written is safe; what cannot be made safe is not fetched on from."""
        unsafe: dict[Flusher, dict[FollowerState, None]] = {}
        # What comes to be followed while a sync is under way may not be part of it, and needs another.
        while self._unsynced:
            flusher, states = self._unsynced.popitem()
            try:
                await flusher.flush()
            except StorageError as e:
                log.error("replica_not_synced", directory=flusher.directory, error=str(e))
                for state in states:
                    state.failed(self._now_ms())
                unsafe.setdefault(flusher, {}).update(states)
        self._unsynced = unsafe

    def _now_ms(self) -> int:
        return int(self._broker.clock.monotonic() * 1000)
