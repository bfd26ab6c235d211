"""A coordinator's seat: the state machine of one partition of an internal topic, and its log.

A request is one turn of a shard: it decides, which leaves records and answers in the shard's outbox. All
records of one turn of the event loop are appended together, and an answer goes out when everything that was
decided before it is committed (below the high watermark), so nobody learns what a crash could take back. That
holds for what an earlier coordinator has decided, too: it is replayed to the log's end, committed or not.

Later turns see records that are not committed yet. If the log refuses them, or the disk does, the shard is
thrown away and replayed from the log, and everyone who waits is told to try again: with NOT_COORDINATOR
where the partition or its disk is gone, COORDINATOR_NOT_AVAILABLE where the cluster is short of replicas,
as in Kafka. Who asks while it is being loaded waits for that, but not for long. A log that goes on refusing,
as a full disk does, is tried again with growing pauses.

A log that is damaged is mended first (`Loader`); where that has to wait, it is tried again like that, too.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.replies import Answers, Question, Uncommitted
from penstock.broker.coordinators.shard_log import Loader, append_records
from penstock.broker.replica.partition import Partition
from penstock.groups.ledger import Answer, LogRecord, Outbox, bytes_of
from penstock.groups.timers import TimerKey, Timers
from penstock.model.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.net.deferred import Deferred
from penstock.ports import Clock
from penstock.wire.schema import Struct

__all__ = ["Question", "Seat", "Shard"]

log = get_logger("coordinator")
#: what a failed append means to whoever waits for it; any other error speaks for itself
_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
#: how long a question waits for a shard that is being loaded: nearly all are there at once, and clients take
#: COORDINATOR_LOAD_IN_PROGRESS as a reason to pause
_LOAD_PATIENCE_S: Final = 1.0
#: how long a log that has refused twice in a row, or is damaged, is left alone, doubled with each time, up
#: to a limit
_RELOAD_S: Final = 0.05
_RELOAD_LIMIT_S: Final = 5.0
_DOUBLINGS: Final = 10


#: timers that are up and go into one turn of the event loop: when a machine with a thousand members dies,
#: they come all together
_TIMERS_PER_TURN: Final = 16


class Shard(Protocol):
    """The state machine of one partition; pure."""

    @property
    def outbox(self) -> Outbox: ...

    @property
    def timers(self) -> Timers: ...

    def begin(self, now_ms: int, timer_ms: int) -> None:
        """A turn begins: the time of the calendar, and of a clock that never goes back."""
        ...

    def replay(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self) -> None: ...

    def time_is_up(self, key: TimerKey) -> None: ...


S = TypeVar("S", bound=Shard)


#: one turn of a shard: the response, or None where the shard answers the question in a later turn
Decision: TypeAlias = Callable[[S, Question], Struct | None]


class Seat(Generic[S]):
    """One partition's shard, what it has not written yet, and who waits for what it wrote."""

    __slots__ = (
        "_answers",
        "_clock",
        "_decided_end",
        "_early",
        "_flush_due",
        "_load_patience",
        "_loader",
        "_refusals",
        "_reload",
        "_replies",
        "_timer",
        "_timer_ms",
        "_uncommitted",
        "_unwritten",
        "make_shard",
        "parked",
        "partition",
        "shard",
        "task",
    )

    def __init__(
        self,
        partition: Partition,
        make_shard: Callable[[], S],
        clock: Clock,
        loader: Loader,
        commit_patience_s: float,
    ) -> None:
        self.partition = partition
        self.make_shard = make_shard
        self._uncommitted = Uncommitted(commit_patience_s)
        self._clock = clock
        self._loader = loader
        #: None while it is being loaded, or where it cannot be
        self.shard: S | None = None
        self.task: asyncio.Task[None] | None = None
        #: questions that wait for the load, and when that has taken too long; None when it has
        self._early: list[tuple[Decision[S], Question]] = []
        self._load_patience: asyncio.TimerHandle | None = None
        #: how often the log has refused since it last took something, and when it is replayed after that
        self._refusals = 0
        self._reload: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        self._unwritten: list[LogRecord] = []
        #: answers to what is not written yet
        self._replies: list[tuple[Question, Answer]] = []
        #: behind the last record that the shard's state is based on, of those that are written
        self._decided_end = 0
        self._answers = Answers()
        #: questions that the shard keeps for later: an insertion-ordered set
        self.parked: dict[Question, None] = {}
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # -- coming and going

    def load(self) -> None:
        """Replay the log; an empty one at once, any other piece by piece beside the broker's other work."""
        self.shard = self._reload = None
        partition = self.partition
        if partition.log.end_offset == partition.log.log_start_offset:
            self._loaded(self.make_shard())
        else:
            loop = asyncio.get_running_loop()
            self.task = loop.create_task(self._load())
            self._load_patience = loop.call_later(_LOAD_PATIENCE_S, self._load_takes_long)

    async def _load(self) -> None:
        try:
            shard = await self._loader.load(self.partition, self.make_shard)
        except PenstockError as e:
            log.error("coordinator_not_loaded", partition=self.partition.name, error=str(e))
            self._refuse_early(ErrorCode.NOT_COORDINATOR)
            return
        if shard is None:
            self._refuse_early(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._load_later()
        else:
            log.info("coordinator_loaded", partition=self.partition.name)
            self._loaded(shard)

    def _load_later(self) -> None:
        """Not in a busy loop: what is loaded may have something to write at once, and be refused again."""
        self._refusals += 1
        pause_s = min(_RELOAD_S * 2 ** min(self._refusals, _DOUBLINGS), _RELOAD_LIMIT_S)
        self._reload = asyncio.get_running_loop().call_later(pause_s, self.load)

    def _loaded(self, shard: S) -> None:
        self.shard = shard
        self._decided_end = self.partition.log.end_offset
        self._begin(shard)
        shard.loaded()
        self._end_turn(shard)
        for decide, question in self._end_patience():
            if not question.answer.done:  # whoever is gone asks nothing
                self._decide(shard, decide, question)

    def _end_patience(self) -> list[tuple[Decision[S], Question]]:
        """Whoever waits for the load; from now on nobody else does."""
        if self._load_patience is not None:
            self._load_patience.cancel()
            self._load_patience = None
        early, self._early = self._early, []
        return early

    def _load_takes_long(self) -> None:
        self._refuse_early(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _refuse_early(self, code: ErrorCode) -> None:
        for _, question in self._end_patience():
            question.refuse(ApiError(code))

    def unload(self, error: ApiError) -> None:
        """Forget everything; whoever waits for more than its turn is refused."""
        self.shard = None
        self._answers.give_all()
        if self.task is not None:
            self.task.cancel()
            self.task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._reload is not None:
            self._reload.cancel()
            self._reload = None
        self.partition.waiters.pop(self, None)
        refused = [question for question, _ in self._replies]
        refused += self._uncommitted.take_all()
        refused += self.parked
        refused += [question for _, question in self._end_patience()]
        self._reset()
        for question in refused:
            question.refuse(error)

    def _fail(self, error: ApiError) -> None:
        """What was decided is not in the log: start again from what is."""
        log.error("coordinator_append_failed", partition=self.partition.name, error=str(error))
        code = _APPEND_ERRORS.get(error.code, error.code)
        self.unload(ApiError(code, str(error)))
        if self._refusals:
            self._load_later()
        else:
            self._refusals = 1
            self.load()

    # -- turns

    def ask(self, decide: Decision[S], refusal: Callable[[ApiError], Struct]) -> Struct | Deferred[Struct]:
        """The shard's answer, or a promise of it where it has to wait: for others, or for the log."""
        question = Question(refusal)
        if not self.partition.leading or self.partition.log.health.offline is not None:
            # Others lead by now, and know more; where the metadata was on that disk, too, nobody tells us.
            return refusal(ApiError(ErrorCode.NOT_COORDINATOR))
        if self.shard is not None:
            return self._decide(self.shard, decide, question)
        if self._load_patience is None:
            return refusal(self._why_not())
        self._early.append((decide, question))
        return question.answer

    def _decide(self, shard: S, decide: Decision[S], question: Question) -> Struct | Deferred[Struct]:
        """One turn. What it returns is also the question's answer: at once, or when it may be told."""
        self._begin(shard)
        try:
            response = decide(shard, question)
        except ApiError as e:
            response = question.refusal(e)
        if response is not None and not self._must_wait(shard):
            self._end_turn(shard)
            question.answer.resolve(response)
            return response
        if response is not None:
            shard.outbox.replies.append((question, response))
        else:
            question.is_parked = True
            self.parked[question] = None
            question.answer.on_cancel = lambda: self.parked.pop(question, None)
        self._end_turn(shard)
        return question.answer

    def tell(self, event: Callable[[S], None]) -> None:
        """Something happened that nobody waits for."""
        if self.shard is not None:
            self._begin(self.shard)
            event(self.shard)
            self._end_turn(self.shard)

    def _why_not(self) -> ApiError:
        if self._reload is not None or (self.task is not None and not self.task.done()):
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ApiError(ErrorCode.NOT_COORDINATOR)

    def _begin(self, shard: S) -> None:
        shard.begin(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _must_wait(self, shard: S) -> bool:
        """Whether an answer would overtake what it is based on."""
        return bool(shard.outbox.records or self._unwritten or self._uncommitted or self._is_ahead)

    @property
    def _is_ahead(self) -> bool:
        """Whether the shard's state is based on records that are not committed."""
        return self.partition.log.high_watermark < self._decided_end

    def _end_turn(self, shard: S) -> None:
        outbox = shard.outbox
        if outbox.records or outbox.replies:
            self._take(outbox)
        next_ms = shard.timers.next_ms
        if next_ms is not None and (self._timer is None or next_ms < self._timer_ms):
            self._set_timer(next_ms, shard.timers.now_ms)

    def _take(self, outbox: Outbox) -> None:
        for question, answer in outbox.replies:
            assert isinstance(question, Question)
            self.parked.pop(question, None)
            self._replies.append((question, answer))
        self._unwritten += outbox.records
        outbox.records.clear()
        outbox.replies.clear()
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    # -- the log

    def _flush(self) -> None:
        """Append what the last turns decided, all at once."""
        self._flush_due = False
        records, self._unwritten = self._unwritten, []
        partition = self.partition
        if records:
            try:
                append_records(partition, [bytes_of(record) for record in records], self._clock.now_ms())
            except ApiError as e:
                self._fail(e)
                return
            except Exception as e:  # noqa: BLE001 - what cannot be written must not be told either
                self._fail(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(e)))
                return
            self._refusals = 0
        replies, self._replies = self._replies, []
        self._decided_end = partition.log.end_offset
        self._uncommitted.add(self._decided_end, replies)
        partition.waiters[self] = None
        if records and partition.flusher.acks_wait:
            partition.flusher.when_flushed(self._flushed)
        self._release()

    def _flushed(self, error: StorageError | None) -> None:
        if error is not None and (self._uncommitted or self._is_ahead):
            self._fail(error)

    def more(self, size: int) -> None:
        """The high watermark has moved, or the partition is no longer ours."""
        if self.partition.leading:
            self._release()
        else:
            self.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def _release(self) -> None:
        decided = self._uncommitted.committed(self.partition.log.high_watermark)
        if not self._uncommitted:
            self.partition.waiters.pop(self, None)
        self._answers.give(decided)

    # -- time

    def _set_timer(self, due_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        shard = self.shard
        assert shard is not None
        self._begin(shard)
        for _ in range(_TIMERS_PER_TURN):
            key = shard.timers.pop_expired()
            if key is None:
                break
            shard.time_is_up(key)
        self._end_turn(shard)
