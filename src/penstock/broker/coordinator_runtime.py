"""Runs coordinators: state machines whose state is an internal topic, one shard per partition of it.

A request is one turn of a shard: it decides, which leaves records and answers in the shard's outbox. All
records of one turn of the event loop are appended together, and an answer goes out when everything that was
decided before it is committed (below the high watermark), so nobody learns what a crash could take back.

Later turns see records that are not committed yet. If the log refuses them, or the disk does, the shard is
thrown away and replayed from the log, and everyone who waits is told to try again: with NOT_COORDINATOR
where the partition or its disk is gone, COORDINATOR_NOT_AVAILABLE where the cluster is short of replicas,
as in Kafka.

Groups run here; transactions and share groups bring shards of their own. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from penstock.broker.coordinator_log import append_records, load_records
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.groups.ledger import Outbox
from penstock.groups.timers import TimerKey, Timers
from penstock.model.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.net.deferred import Deferred
from penstock.ports import Clock, Workers
from penstock.wire.schema import Struct

__all__ = ["CoordinatorRuntime", "Question", "Shard"]

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
#: answers of a shard that go out in one turn of the event loop: when a group of a thousand ends a round, no
#: other request waits for a thousand answers, and the members do not all come with their next one at once
_ANSWERS_PER_TURN: Final = 4


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


class Question:
    """Someone who waits for a shard's answer."""

    __slots__ = ("answer", "refusal")

    def __init__(self, refusal: Callable[[ApiError], Struct]) -> None:
        self.answer: Deferred[Struct] = Deferred()
        #: makes the response of an error
        self.refusal = refusal

    def refuse(self, error: ApiError) -> None:
        self.answer.resolve(self.refusal(error))


class _Seat(Generic[S]):
    """One partition's shard, what it has not written yet, and who waits for what it wrote."""

    __slots__ = (
        "_answering",
        "_clock",
        "_committed",
        "_flush_due",
        "_replies",
        "_timer",
        "_timer_ms",
        "_unwritten",
        "_waiting",
        "_workers",
        "make_shard",
        "parked",
        "partition",
        "shard",
        "task",
    )

    def __init__(
        self, partition: Partition, make_shard: Callable[[], S], clock: Clock, workers: Workers
    ) -> None:
        self.partition = partition
        self.make_shard = make_shard
        self._clock = clock
        self._workers = workers
        #: None while it is being loaded, or where it cannot be
        self.shard: S | None = None
        self.task: asyncio.Task[None] | None = None
        self._reset()

    def _reset(self) -> None:
        self._unwritten: list[tuple[bytes, bytes | None]] = []
        #: answers to what is not written yet
        self._replies: list[tuple[Question, Struct]] = []
        #: (end offset, answers that may go out when it is committed), by offset
        self._waiting: deque[tuple[int, list[tuple[Question, Struct]]]] = deque()
        #: answers that may go out
        self._committed: deque[tuple[Question, Struct]] = deque()
        self._answering = False
        #: questions that the shard keeps for later: an insertion-ordered set
        self.parked: dict[Question, None] = {}
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # -- coming and going

    def load(self) -> None:
        """Replay the log; an empty one at once, any other piece by piece beside the broker's other work."""
        self.shard = None
        partition = self.partition
        if partition.log.end_offset == partition.log.log_start_offset:
            self._loaded(self.make_shard())
        else:
            self.task = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        shard = self.make_shard()
        try:
            await load_records(self.partition, shard.replay, self._workers)
        except PenstockError as e:
            log.error("coordinator_not_loaded", partition=self.partition.name, error=str(e))
            return
        log.info("coordinator_loaded", partition=self.partition.name)
        self._loaded(shard)

    def _loaded(self, shard: S) -> None:
        self.shard = shard
        self._begin(shard)
        shard.loaded()
        self._end_turn(shard)

    def unload(self, error: ApiError) -> None:
        """Forget everything; whoever waits for more than its turn is refused."""
        self.shard = None
        for question, response in self._committed:
            question.answer.resolve(response)
        if self.task is not None:
            self.task.cancel()
            self.task = None
        if self._timer is not None:
            self._timer.cancel()
        self.partition.waiters.pop(self, None)
        refused = [question for question, _ in self._replies]
        refused += [question for _, replies in self._waiting for question, _ in replies]
        refused += self.parked
        self._reset()
        for question in refused:
            question.refuse(error)

    def _fail(self, error: ApiError) -> None:
        """What was decided is not in the log: start again from what is."""
        log.error("coordinator_append_failed", partition=self.partition.name, error=str(error))
        code = _APPEND_ERRORS.get(error.code, error.code)
        self.unload(ApiError(code, str(error)))
        self.load()

    # -- turns

    def ask(
        self, decide: Callable[[S, Question], Struct | None], refusal: Callable[[ApiError], Struct]
    ) -> Struct | Deferred[Struct]:
        """The shard's answer, or a promise of it where it has to wait: for others, or for the log."""
        shard = self.shard
        if shard is None:
            return refusal(self._why_not())
        question = Question(refusal)
        self._begin(shard)
        try:
            response = decide(shard, question)
        except ApiError as e:
            response = refusal(e)
        if response is not None and not self._must_wait(shard):
            self._end_turn(shard)
            return response
        if response is not None:
            shard.outbox.replies.append((question, response))
        else:
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
        if self.task is not None and not self.task.done():
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ApiError(ErrorCode.NOT_COORDINATOR)

    def _begin(self, shard: S) -> None:
        shard.begin(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _must_wait(self, shard: S) -> bool:
        """Whether an answer would overtake what it is based on."""
        return bool(shard.outbox.records or self._unwritten or self._waiting)

    def _end_turn(self, shard: S) -> None:
        outbox = shard.outbox
        if outbox.records or outbox.replies:
            self._take(outbox)
        next_ms = shard.timers.next_ms
        if next_ms is not None and (self._timer is None or next_ms < self._timer_ms):
            self._set_timer(next_ms, shard.timers.now_ms)

    def _take(self, outbox: Outbox) -> None:
        for question, _ in outbox.replies:
            assert isinstance(question, Question)
            self.parked.pop(question, None)
            self._replies.append((question, _))
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
                append_records(partition, records, self._clock.now_ms())
            except ApiError as e:
                self._fail(e)
                return
        replies, self._replies = self._replies, []
        self._waiting.append((partition.log.end_offset, replies))
        partition.waiters[self] = None
        if records and partition.flusher.acks_wait:
            partition.flusher.when_flushed(self._flushed)
        self._release()

    def _flushed(self, error: StorageError | None) -> None:
        if error is not None and self._waiting:
            self._fail(error)

    def more(self, size: int) -> None:
        """The high watermark has moved, or the partition is no longer ours."""
        if self.partition.leading:
            self._release()
        else:
            self.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def _release(self) -> None:
        waiting = self._waiting
        committed = self.partition.log.high_watermark
        while waiting and waiting[0][0] <= committed:
            self._committed += waiting.popleft()[1]
        if not waiting:
            self.partition.waiters.pop(self, None)
        if not self._answering:
            self._answer_some()

    def _answer_some(self) -> None:
        answers = self._committed
        self._answering = True
        for _ in range(min(len(answers), _ANSWERS_PER_TURN)):
            question, response = answers.popleft()
            question.answer.resolve(response)
        self._answering = bool(answers)
        if answers:
            asyncio.get_running_loop().call_soon(self._answer_some)

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
        while (key := shard.timers.pop_expired()) is not None:
            shard.time_is_up(key)
        self._end_turn(shard)


class CoordinatorRuntime(Generic[S]):
    """The coordinators of one internal topic that are this broker's, by partition."""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], S],
        partitions: Partitions,
        clock: Clock,
        workers: Workers,
    ) -> None:
        self.topic = topic
        self._make_shard = make_shard
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._seats: dict[int, _Seat[S]] = {}

    def elected(self, index: int) -> None:
        """The partition is ours: load it."""
        partition = self._partitions.find(self.topic, index)
        if isinstance(partition, Partition) and index not in self._seats:
            seat = self._seats[index] = _Seat(partition, self._make_shard, self._clock, self._workers)
            seat.load()

    def resigned(self, index: int) -> None:
        """The partition is someone else's, or gone."""
        seat = self._seats.pop(index, None)
        if seat is not None:
            seat.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def resign_all(self) -> None:
        for index in list(self._seats):
            self.resigned(index)

    def ask(
        self,
        index: int,
        decide: Callable[[S, Question], Struct | None],
        refusal: Callable[[ApiError], Struct],
    ) -> Struct | Deferred[Struct]:
        """What the shard of partition `index` decides, once it may be told."""
        seat = self._seats.get(index)
        if seat is None:
            return refusal(ApiError(ErrorCode.NOT_COORDINATOR))
        return seat.ask(decide, refusal)

    def tell_all(self, event: Callable[[S], None]) -> None:
        for seat in self._seats.values():
            seat.tell(event)

    def indexes(self) -> Iterator[int]:
        return iter(self._seats)
