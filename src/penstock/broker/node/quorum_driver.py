"""Runs this node's `RaftNode`: one event at a time, and disk writes before network messages.

`RaftNode` decides (its docstring is the contract). The driver executes the decisions. While a vote is being
written, further events are queued, so this node never sends a message that depends on an unsaved vote.

Owned by: the event loop's thread. Disk work runs in worker threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from math import ceil, inf
from typing import Any, Protocol, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_check import DamagedMetadata
from penstock.broker.node.metadata_log import MetadataLog
from penstock.model.errors import PenstockError, StorageError
from penstock.net.deferred import Deferred
from penstock.net.peer_errors import PeerRefused
from penstock.ports import Clock, Workers
from penstock.raft.messages import LogPoint, Request, Response
from penstock.raft.node import RaftNode
from penstock.raft.quorum import Quorum
from penstock.raft.ready import Message, QuorumViolation, Ready

__all__ = ["QuorumDriver", "QuorumEvents"]

T = TypeVar("T")
log = get_logger("quorum")


class QuorumEvents(Protocol):
    """The callbacks of the driver."""

    def installed(self, snapshot: LogPoint) -> None:
        """A leader's snapshot has replaced the log."""

    def committed(self, end_offset: int) -> None:
        """All records below `end_offset` are committed."""

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        """The epoch or its leader has changed; -1 for no leader."""

    def failed(self, error: PenstockError) -> None:
        """This node has left the quorum after an error."""


class QuorumDriver:
    """Runs a `RaftNode` from `start` to `stop`."""

    def __init__(
        self,
        node: RaftNode,
        metadata_log: MetadataLog,
        clock: Clock,
        workers: Workers,
        send: Callable[[int, Request], Awaitable[Response]],
        events: QuorumEvents,
    ) -> None:
        self.node = node
        self._log = metadata_log
        self._clock = clock
        self._workers = workers
        self._send = send
        self._events = events
        #: events that wait while the quorum state is being written
        self._queue: deque[Callable[[], None]] = deque()
        self._saving = False
        self._flushing = False
        self._stopped = False
        self._led = (-1, -1)
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = inf
        # A dict keeps the order, so that the simulator cancels the tasks in the same order every time.
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: the error after which this node has left the quorum
        self.failure: PenstockError | None = None

    # -- events

    def start(self) -> None:
        self._do(lambda: self.node.tick(self._now_ms()))

    def submit(self, request: Request) -> Deferred[Response]:
        """Pass a peer's request to the Raft node; the response may come much later."""
        answer: Deferred[Response] = Deferred()
        self._do(lambda: self.node.request(answer, request, self._now_ms()))
        return answer

    async def submit_and_wait(self, request: Request) -> Response:
        """Pass a request to the Raft node, and wait for the response."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.submit(request).then(lambda response: None if answer.done() else answer.set_result(response))
        return await answer

    def run(self, event: Callable[[], T]) -> asyncio.Future[T]:
        """Run `event` between two events of the Raft node; returns the future of its result."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def perform() -> None:
            if result.cancelled():
                return
            try:
                result.set_result(event())
            except StorageError as e:
                result.set_exception(e)
                raise
            except Exception as e:  # noqa: BLE001 - raised again where it is awaited
                result.set_exception(e)

        if self.failure is not None:
            result.set_exception(self.failure)
        else:
            self._do(perform)
        return result

    @property
    def kraft_level(self) -> int:
        """The level of kraft.version (KIP-853): 1 if the metadata log contains the voters."""
        return 1 if self.state.history.latest_offset >= 0 else 0

    @property
    def state(self) -> Quorum:
        """The state of the quorum, as this node knows it."""
        return self.node.quorum

    @property
    def is_saving(self) -> bool:
        """Whether the quorum state is not on disk yet, so that no message has been sent with it."""
        return self._saving

    def peer_gone(self, node_id: int) -> None:
        """A hint: the process of `node_id` is probably dead."""
        self._do(lambda: self.node.peer_gone(node_id, self._now_ms()))

    def snapshot_taken(self, snapshot: LogPoint) -> None:
        self._do(lambda: self.node.snapshot_taken(snapshot))

    async def resign(self, wait_s: float) -> None:
        """Resign leadership, if this node has it, and wait up to `wait_s` for the other voters' responses."""
        if self.state.is_leader and len(self.state.voters) > 1:
            self._do(lambda: self.node.resign(self._now_ms()))
            if self._tasks:
                await asyncio.wait(list(self._tasks), timeout=wait_s)

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- consequences

    def _do(self, event: Callable[[], None]) -> None:
        if self._stopped or self.failure is not None:
            return
        if self._saving:
            self._queue.append(event)
            return
        try:
            event()
            self._settle()
        except (QuorumViolation, DamagedMetadata) as e:
            self.fail(e)
        except StorageError as e:
            # The disk is full, or a read has failed. A follower retries a little later. A leader resigns.
            log.error("quorum_storage_failed", error=str(e))
            node = self.node
            if len(node.quorum.voters) > 1:
                node.resign(self._now_ms())
            elif node.quorum.log.end_offset == node.epoch_start_offset:
                # The only voter could not append the first record of its epoch.
                self.fail(e)
                return
            self._tick_at(self._now_ms() + node.quorum.config.retry_ms)

    def _settle(self) -> None:
        ready = self.node.take()
        if ready.save is not None:
            self._saving = True
            self._spawn(self._save(ready))
        else:
            self._carry_out(ready)

    async def _save(self, ready: Ready) -> None:
        assert ready.save is not None
        try:
            await self._workers.in_thread(self._log.save_state, ready.save)
        except StorageError as e:
            self.fail(e)
            return
        self._saving = False
        self._carry_out(ready)
        while self._queue and not self._saving:
            self._do(self._queue.popleft())

    def _carry_out(self, ready: Ready) -> None:
        for message in ready.messages:
            self._spawn(self._exchange(message))
        for token, response in ready.replies:
            assert isinstance(token, Deferred)
            token.resolve(response)
        if ready.flush and not self._flushing:
            self._flushing = True
            self._spawn(self._flush())
        if ready.installed is not None:
            self._events.installed(ready.installed)
        # The checkpoint records the high watermark. After a crash, all records below it must be on disk.
        self._log.log.advance_high_watermark(min(ready.high_watermark, self.state.flushed_offset))
        self._events.committed(ready.high_watermark)
        if (ready.epoch, ready.leader_id) != self._led:
            self._led = (ready.epoch, ready.leader_id)
            log.debug("quorum_led", epoch=ready.epoch, leader=ready.leader_id)
            self._events.leader_changed(*self._led)
        self._tick_at(ready.deadline_ms)

    async def _exchange(self, message: Message) -> None:
        to, request = message
        node = self.node
        try:
            response = await self._send(to, request)
        except PenstockError as e:
            log.debug("quorum_peer_failed", peer=to, request=type(request).__name__, error=str(e))
            self._do(lambda: node.failure(to, request, self._now_ms()))
            if isinstance(e, PeerRefused):
                self.peer_gone(to)
        else:
            self._do(lambda: node.response(to, request, response, self._now_ms()))

    async def _flush(self) -> None:
        metadata_log = self._log.log
        while True:
            plan = metadata_log.flush_plan()
            try:
                await self._workers.in_thread(plan.sync)
                break
            except StorageError as e:
                if metadata_log.health.offline is not None:
                    self.fail(e)
                    return
                # Space for a small file was missing. The records are acknowledged only after the retry.
                log.error("quorum_storage_failed", error=str(e))
                metadata_log.flush_failed(plan)
                await asyncio.sleep(self.state.config.retry_ms / 1000)
        metadata_log.flushed(plan)
        self._flushing = False
        # Not the plan's end: the log may have been truncated meanwhile.
        self._do(lambda: self.node.flushed(self._log.log.recovery_point, self._now_ms()))

    def _tick_at(self, deadline_ms: float) -> None:
        if deadline_ms == self._due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = deadline_ms
        if deadline_ms < inf:
            delay_ms = deadline_ms - self._now_ms()
            # The loop's clock has whole milliseconds: a timer may fire up to one of them early.
            delay_s = (ceil(delay_ms) + 1) / 1000 if delay_ms > 0 else 0.0
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._due_ms = inf
        self._do(lambda: self.node.tick(self._now_ms()))

    def fail(self, error: PenstockError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        log.error("quorum_failed", error=str(error))
        if self._timer is not None:
            self._timer.cancel()
        self._events.failed(error)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
