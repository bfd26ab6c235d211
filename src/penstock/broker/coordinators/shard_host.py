"""Hosts the shard of one partition of an internal topic: appends its records, sends its replies.

A request is one turn of the shard: the shard decides and leaves records, replies and effects in its outbox.
All records of one turn of the event loop are appended together, unless an append is enough to commit them:
then those of the first request are appended and answered at once. A reply is sent, and an effect is run, when
everything decided before it is committed (below the high watermark). So no client and no other broker sees
a decision that a crash could take back. The same holds for decisions of an earlier coordinator: the shard
is loaded with all records of the log, and until they are committed replies and effects wait for them.

Later turns see records that are not committed yet. If an append or a flush fails, the host discards the
shard and its effects, replays the log into a new shard, and answers all waiting requests with an error, as
Kafka does: NOT_COORDINATOR if the partition or its disk is gone, COORDINATOR_NOT_AVAILABLE if too few
replicas are in sync. If appends go on failing, as on a full disk, the host retries with growing pauses.

A request that arrives during a load waits for it, for a limited time. `Loader` repairs a damaged log first;
if the repair has to wait, the host retries the load with the same pauses.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.decisions import RECORDS_AT_ONCE, Decisions
from penstock.broker.coordinators.effects import UncommittedEffects
from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.replies import PendingReply, ReplySender, UncommittedReplies
from penstock.broker.coordinators.shard_log import append_records, largest_record, request_error
from penstock.broker.replica.partition import Partition
from penstock.coordination.outbox import Effect, LogRecord, Outbox
from penstock.coordination.shard import CoordinatorShard
from penstock.model.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.net.deferred import Deferred
from penstock.wire.schema import Struct

__all__ = ["CoordinatorShardHost", "Operation"]

log = get_logger("coordinator")
#: The time for which a request waits for a load. Nearly all loads take less, and clients pause after
#: COORDINATOR_LOAD_IN_PROGRESS.
_LOAD_TIMEOUT_S: Final = 1.0
#: The pause before the next load after a second failed append in a row, or for a damaged log. It doubles
#: each time up to a limit.
_RELOAD_S: Final = 0.05
_RELOAD_LIMIT_S: Final = 5.0
_DOUBLINGS: Final = 10
#: Expired timers per turn of the event loop. When a machine with a thousand members fails, their sessions
#: expire together.
_TIMERS_PER_TURN: Final = 16

S = TypeVar("S", bound=CoordinatorShard)
#: One turn of a shard. Returns the response, or None if the shard replies to the pending request in a later
#: turn.
Operation: TypeAlias = Callable[[S, PendingReply], Struct | None]


class CoordinatorShardHost(Generic[S]):
    """One partition's shard, its records that are not appended yet, and its replies and effects that wait.

    Why more than 25 methods: load, turns, append and release share the shard and its order of decisions. Each
    method is one transition.
    """

    __slots__ = (
        "_decided_end",
        "_failures",
        "_flush_due",
        "_load_timeout",
        "_reload",
        "_sender",
        "_settings",
        "_task",
        "_timer",
        "_timer_ms",
        "_uncommitted",
        "_uncommitted_effects",
        "_waiting_for_load",
        "decisions",
        "parked",
        "partition",
        "shard",
    )

    def __init__(self, partition: Partition, settings: HostSettings[S]) -> None:
        self.partition = partition
        self._settings = settings
        self._uncommitted = UncommittedReplies(settings.commit_timeout_s)
        self._uncommitted_effects = UncommittedEffects()
        #: None during a load, and after a load that failed
        self.shard: S | None = None
        self._task: asyncio.Task[None] | None = None
        #: requests that wait for the load
        self._waiting_for_load: list[tuple[Operation[S], PendingReply]] = []
        #: ends their wait; None if no load is running, or if it takes longer than the timeout
        self._load_timeout: asyncio.TimerHandle | None = None
        #: failed appends since the last successful one
        self._failures = 0
        self._reload: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        #: output of the turns since the last flush
        self.decisions = Decisions()
        #: the end offset of the appended records that the shard's state is based on
        self._decided_end = 0
        self._sender = ReplySender()
        #: requests to which the shard replies in a later turn: an insertion-ordered set
        self.parked: dict[PendingReply, None] = {}
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # -- load and unload

    def load(self) -> None:
        """Replay the log: an empty log at once, any other one piece by piece in a task."""
        self.shard = self._reload = None
        partition = self.partition
        if partition.log.end_offset == partition.log.log_start_offset:
            self._loaded(self._settings.make_shard())
        else:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._load())
            late = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._load_timeout = loop.call_later(_LOAD_TIMEOUT_S, self._fail_waiting_for_load, late)

    async def _load(self) -> None:
        try:
            shard = await self._settings.loader.load(self.partition, self._settings.make_shard)
        except PenstockError as e:
            log.error("coordinator_not_loaded", partition=self.partition.name, error=str(e))
            self._fail_waiting_for_load(ErrorCode.NOT_COORDINATOR)
            return
        if shard is None:
            self._fail_waiting_for_load(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._load_later()
        else:
            log.info("coordinator_loaded", partition=self.partition.name)
            self._loaded(shard)

    def _load_later(self) -> None:
        """Load after a pause: a loaded shard may have records to append at once, which may fail again."""
        self._failures += 1
        pause_s = min(_RELOAD_S * 2 ** min(self._failures, _DOUBLINGS), _RELOAD_LIMIT_S)
        self._reload = asyncio.get_running_loop().call_later(pause_s, self.load)

    def _loaded(self, shard: S) -> None:
        self.shard = shard
        shard.outbox.record_bytes_max = lambda: largest_record(self.partition)
        self._decided_end = self.partition.log.end_offset
        self._begin(shard)
        shard.on_loaded()
        self._end_turn(shard)
        self._gather()
        for operation, pending in self._take_waiting_for_load():
            if not pending.response.done:  # its connection is still open
                response = self._run(shard, operation, pending)
                if not isinstance(response, Deferred):
                    pending.response.resolve(response)

    def _take_waiting_for_load(self) -> list[tuple[Operation[S], PendingReply]]:
        """End the wait for the load: remove and return the requests that wait for it."""
        if self._load_timeout is not None:
            self._load_timeout.cancel()
            self._load_timeout = None
        waiting, self._waiting_for_load = self._waiting_for_load, []
        return waiting

    def _fail_waiting_for_load(self, code: ErrorCode) -> None:
        for _, pending in self._take_waiting_for_load():
            pending.fail(ApiError(code))

    def unload(self, error: ApiError) -> None:
        """Discard the shard and its effects. Send committed replies and fail all other requests."""
        self.shard = None
        self._sender.send_all()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._reload is not None:
            self._reload.cancel()
            self._reload = None
        self.partition.readers.pop(self, None)
        self._uncommitted_effects.drop()
        failed = self.decisions.pending()
        failed += self._uncommitted.take_all()
        failed += self.parked
        failed += [pending for _, pending in self._take_waiting_for_load()]
        self._reset()
        for pending in failed:
            pending.fail(error)

    def _append_failed(self, error: Exception) -> ApiError:
        """Discard the shard, which is ahead of the log, and load it again. Returns its requests' error."""
        failure = request_error(error)
        log.error("coordinator_append_failed", partition=self.partition.name, error=str(failure))
        self.unload(failure)
        if self._failures:
            self._load_later()
        else:
            self._failures = 1
            self.load()
        return failure

    # -- turns

    def submit(
        self, operation: Operation[S], error_response: Callable[[ApiError], Struct]
    ) -> Struct | Deferred[Struct]:
        """Run `operation`. Returns its response, or a Deferred if it waits for the log or for later turns."""
        if not self.partition.leading or self.partition.log.health.offline is not None:
            # Another broker may lead the partition and have newer state. If the failed disk holds the
            # metadata log too, this broker does not learn of its own resignation.
            return error_response(ApiError(ErrorCode.NOT_COORDINATOR))
        pending = PendingReply(error_response)
        if self.shard is not None:
            return self._run(self.shard, operation, pending)
        if self._load_timeout is None:
            return error_response(self._not_loaded())
        self._waiting_for_load.append((operation, pending))
        return pending.response

    def _run(self, shard: S, operation: Operation[S], pending: PendingReply) -> Struct | Deferred[Struct]:
        """One turn. Returns the response, or that of `pending` if it waits for a commit or a later turn."""
        self._begin(shard)
        try:
            response = operation(shard, pending)
        except ApiError as e:
            response = pending.error_response(e)
        outbox = shard.outbox
        # A reply must not overtake the commit of records that it is based on.
        if response is not None and not (self.decisions.records or self._uncommitted or self._is_ahead):
            if outbox.records and self._commits_at_once(outbox):
                error = self._append(outbox.records)
                if error is not None:
                    return pending.error_response(error)
                outbox.records.clear()
                self._gather()
                assert not self._is_ahead, "an append without followers and flushes has to commit"
            if not outbox.records:
                self._end_turn(shard)
                return response
        if response is not None:
            outbox.replies.append((pending, response))
        else:
            pending.is_parked = True
            self.parked[pending] = None
            pending.response.on_cancel = lambda: self.parked.pop(pending, None)
        self._end_turn(shard)
        return pending.response

    def notify(self, event: Callable[[S], None]) -> None:
        """Run a turn that no request waits for. A shard that is being loaded does not get the event."""
        if self.shard is not None:
            self._begin(self.shard)
            event(self.shard)
            self._end_turn(self.shard)

    def _not_loaded(self) -> ApiError:
        if self._reload is not None or (self._task is not None and not self._task.done()):
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ApiError(ErrorCode.NOT_COORDINATOR)

    def _begin(self, shard: S) -> None:
        clock = self._settings.clock
        shard.begin(clock.now_ms(), int(clock.monotonic() * 1000))

    def _commits_at_once(self, outbox: Outbox) -> bool:
        """Returns true if an append in this turn commits its records: there are no followers and no flushes.

        Only the first request in a turn of the event loop has its own append. The output of the others is
        gathered, because there may be many.
        """
        partition = self.partition
        return not (
            self._flush_due
            or outbox.replies
            or outbox.effects
            or len(outbox.records) > RECORDS_AT_ONCE
            or partition.leadership is not None
            or partition.sync.flusher.acks_wait
        )

    @property
    def _is_ahead(self) -> bool:
        """Returns true if the shard's state is based on records that are not committed."""
        return self.partition.log.high_watermark < self._decided_end

    def _end_turn(self, shard: S) -> None:
        outbox = shard.outbox
        if outbox:
            self._take(outbox)
        next_ms = shard.timers.next_ms
        if next_ms is not None and (self._timer is None or next_ms < self._timer_ms):
            self._set_timer(next_ms, shard.timers.now_ms)

    def _take(self, outbox: Outbox) -> None:
        for pending, _ in self.decisions.add(outbox):
            self.parked.pop(pending, None)
        outbox.clear()
        self._gather()

    # -- the log

    def _gather(self) -> None:
        """Gather the output of turns until the event loop's next turn, which flushes it."""
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _append(self, records: Sequence[LogRecord]) -> ApiError | None:
        """Append records. If that fails, discards the shard and returns the error of its requests."""
        try:
            append_records(self.partition, records, self._settings.clock.now_ms())
        except Exception as e:  # noqa: BLE001 - a record that cannot be encoded fails its requests
            return self._append_failed(e)
        self._failures = 0
        self._decided_end = self.partition.log.end_offset
        return None

    def _flush(self) -> None:
        """Append the records of the last turns together; many of them in several turns of the event loop."""
        self._flush_due = False
        if not self.decisions.units:
            return
        records, replies, effects = self.decisions.take()
        partition = self.partition
        error = self._append(records) if records else None
        if error is not None:
            for pending, _ in replies:
                pending.fail(error)
            return
        if self.decisions.units:
            self._gather()
        self._decided_end = partition.log.end_offset
        self._uncommitted.add(self._decided_end, replies)
        if effects:
            self._uncommitted_effects.add(self._decided_end, effects)
        partition.readers[self] = None
        if records and partition.sync.flusher.acks_wait:
            partition.sync.flusher.when_flushed(self._flushed)
        self._release()

    def _flushed(self, error: StorageError | None) -> None:
        if error is not None and (self._uncommitted or self._is_ahead):
            self._append_failed(error)

    def more(self, size: int) -> None:
        """The high watermark has advanced, or the broker no longer leads the partition."""
        if self.partition.leading:
            self._release()
        else:
            self.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def _release(self) -> None:
        """Send the replies and run the effects whose records are committed."""
        high_watermark = self.partition.log.high_watermark
        replies = self._uncommitted.take_committed(high_watermark)
        effects = self._uncommitted_effects.take_committed(high_watermark)
        if not self._uncommitted and not self._uncommitted_effects:
            self.partition.readers.pop(self, None)
        if self.partition.leading:  # not so if a turn without records was the last before the resignation
            for effect in effects:
                self._run_effect(effect)
        self._sender.send(replies)

    def _run_effect(self, effect: Effect) -> None:
        try:
            self._settings.run_effect(self.partition.index, effect)
        except Exception as e:
            log.error("coordinator_effect_failed", partition=self.partition.name, error=repr(e), exc_info=e)

    # -- timers

    def _set_timer(self, due_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire_timers)

    def _expire_timers(self) -> None:
        self._timer = None
        shard = self.shard
        assert shard is not None
        self._begin(shard)
        for _ in range(_TIMERS_PER_TURN):
            key = shard.timers.pop_expired()
            if key is None:
                break
            shard.timer_expired(key)
        self._end_turn(shard)
