"""The fetches that a client repeats on a connection, with nothing new in them but offsets.

At the end of the logs such a fetch is nearly all that a reader costs: it comes, waits, and is answered with a
batch or two. So what a connection asks for is kept (`Connection.memo`), with its partitions at hand and most
of its answer written. A client may name its partitions in turns, a different one first each time: then each
request is known by the one that came before it.

Whatever is out of the ordinary, be it an error, a leader that has changed, an aborted transaction or bytes
that are not in memory, is left to the fetch that knows of all that.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.fetch.reading import FetchLimits, WaitingFetch, read_partition
from penstock.broker.fetch.sessions import WantedPartition, wanted_partitions
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import FetchRequest, FetchResponse
from penstock.wire.fetch_form import FetchForm, Told
from penstock.wire.schema import Records

__all__ = ["SteadyFetch", "SteadyReader"]

#: answers a request with what there is, at once
_General: TypeAlias = Callable[[Context, FetchRequest], FetchResponse | Deferred[FetchResponse | None]]
#: a partition, the leader epoch in which it is read, most bytes, and its entry in the form
_Place: TypeAlias = tuple[Partition, int, int, bytes, int]
_ANY_EPOCH: Final = -1
#: requests of one connection: more than there are turns among the partitions of a form
_MOST_KNOWN: Final = 64


class SteadyFetch:
    """A request that comes again and again, and the one of them that may be waiting."""

    __slots__ = (
        "_context",
        "_deferred",
        "_form",
        "_general",
        "_limits",
        "_max_wait_ms",
        "_min_bytes",
        "_offsets",
        "_partitions",
        "_places",
        "_size",
        "following",
    )

    def __init__(
        self,
        form: FetchForm,
        request: FetchRequest,
        places: Sequence[_Place],
        limits: FetchLimits,
        general: _General,
    ) -> None:
        self._form = form
        self._min_bytes = request.min_bytes
        self._max_wait_ms = request.max_wait_ms
        self._places = places
        self._partitions = [partition for partition, *_ in places]
        self._limits = limits
        self._general = general
        self._offsets: Sequence[int] = ()
        #: of what was read last
        self._size = 0
        self._context: Context | None = None
        self._deferred: Deferred[Any] | None = None
        #: what came after this one last time, at first the same again
        self.following: SteadyFetch | None = self

    @property
    def is_busy(self) -> bool:
        """Whether one waits: another that comes before it is answered is none of ours."""
        return self._deferred is not None

    @property
    def is_stale(self) -> bool:
        """Whether a partition is not what it was any more."""
        return any(not p.hosted or p.leader_epoch != epoch for p, epoch, *_ in self._places)

    def takes(self, context: Context, frame: memoryview, start: int) -> bool:
        """Whether this is what a request asks for, which is then to be answered here."""
        offsets = None if self._deferred is not None else self._form.offsets(context.version, frame, start)
        if offsets is None:
            return False
        self._offsets = offsets
        return True

    def answer(self, context: Context) -> Any:
        """What goes back, as (writer, content), or a Deferred of it; None if that is for others to say."""
        told = self._read()
        if told is None:
            return None
        missing = self._min_bytes - self._size
        if missing <= 0 or self._max_wait_ms <= 0:
            context.broker.metrics.bytes_out += self._size
            return self._form.write, told
        if self._size:
            # Some, but less than the minimum: whether waiting brings more is for the general fetch to judge.
            return None
        self._context = context
        deferred = self._deferred = Deferred()
        server, wait_s = context.broker.server, self._max_wait_ms / 1000
        deferred.on_cancel = WaitingFetch(server, self._partitions, missing, wait_s, self._wait_over).cancel
        return deferred

    def _wait_over(self) -> None:
        """Enough bytes came, or the time is up: answer with what there is now."""
        deferred, self._deferred = self._deferred, None
        context, self._context = self._context, None
        assert deferred is not None and context is not None
        try:
            told = self._read()
            answer: Any
            if told is not None:
                context.broker.metrics.bytes_out += self._size
                answer = self._form.write, told
            else:
                answer = self._general(context, self._form.request(self._offsets))
        except Exception as e:  # noqa: BLE001 - nobody else would tell the client that waits
            context.failed(e)
            return
        if isinstance(answer, Deferred):
            answer.then(deferred.resolve)
        else:
            deferred.resolve(answer)

    def _read(self) -> Told | None:
        """What to tell of each partition; None where anything is out of the ordinary."""
        max_bytes, committed, _, _ = self._limits
        fields: list[bytes | int] = []
        news: list[tuple[int, Records]] = []
        size = 0
        for (partition, leader_epoch, most, before, position), offset in zip(
            self._places, self._offsets, strict=True
        ):
            if (
                partition.leader_epoch != leader_epoch
                or not partition.hosted
                or partition.flusher.health.offline is not None
            ):
                return None
            log = partition.log
            high_watermark = stable = log.high_watermark
            if log.producers.first_unstable is not None:
                stable = log.last_stable_offset
            fields += (before, high_watermark, stable, log.log_start_offset)
            upper = stable if committed else high_watermark
            if offset == upper:
                continue
            records: Records | None = None
            try:
                if upper == log.end_offset:
                    records = log.newest(offset)
                if records is None or (size and len(records) > min(max_bytes - size, most)):
                    records = self._read_log(partition, offset, most, size)
            except (ApiError, ColdPages):
                return None
            if records is None:
                return None
            if records:
                size += len(records)
                news.append((position, records))
        self._size = size
        return fields, news

    def _read_log(self, partition: Partition, offset: int, most: int, size: int) -> Records | None:
        """More than what was appended last, or none of it, behind `size` bytes of others."""
        limits = self._limits
        want = WantedPartition(partition.topic_id, partition.index, offset, most, -1, -1)
        answer = read_partition(partition, want, max(0, limits.max_bytes - size), limits, not size)
        return None if answer.aborted_transactions else answer.records


class SteadyReader:
    """The requests that a connection repeats."""

    __slots__ = ("_general", "_known", "last")

    def __init__(self, general: _General) -> None:
        self._general = general
        #: by what they ask for; None where that has been asked for once
        self._known: dict[tuple[object, ...], SteadyFetch | None] = {}
        #: what the last request asked for, if it was one of them
        self.last: SteadyFetch | None = None

    def __len__(self) -> int:
        """How many requests are known, be it that they came once."""
        return len(self._known)

    def answer(self, context: Context, frame: memoryview, start: int) -> Any:
        """The answer to a request that follows the last one as it did before; None to any other."""
        fetch = None if self.last is None else self.last.following
        if fetch is None or not fetch.takes(context, frame, start):
            return None
        self.last = fetch
        answer = fetch.answer(context)
        if answer is None and fetch.is_stale:
            self.forget()
        return answer

    def forget(self) -> None:
        """Let go of everything: what follows each other leads back to itself, and partitions are large."""
        for fetch in self._known.values():
            if fetch is not None:
                fetch.following = None
        self._known.clear()
        self.last = None

    def learn(self, context: Context, request: FetchRequest, body: bytes, limits: FetchLimits) -> None:
        """Keep what a request asks for, if it has asked for that before."""
        if not FetchForm.may_be_of(context.version, request):
            self.last = None
            return
        named = [(topic.topic_id, *(p.partition for p in topic.partitions)) for topic in request.topics]
        key = (len(body), *named)
        fetch = self._known.get(key)
        if fetch is None or not (fetch.is_busy or fetch.takes(context, memoryview(body), 0)):
            fetch = self._made(context, request, body, limits) if key in self._known else None
            if len(self._known) >= _MOST_KNOWN:
                self.forget()
            self._known[key] = fetch
        if self.last is not None:
            self.last.following = fetch
        self.last = fetch

    def _made(
        self, context: Context, request: FetchRequest, body: bytes, limits: FetchLimits
    ) -> SteadyFetch | None:
        form = FetchForm.of(context.version, request, body)
        if form is None or limits.nearest is not None:
            return None
        places: list[_Place] = []
        for want in wanted_partitions(request, by_id=True):
            partition = context.broker.partitions.find(want.topic, want.index)
            if isinstance(partition, ErrorCode) or want.last_fetched_epoch >= 0:
                return None
            epoch = want.current_leader_epoch
            leader_epoch = partition.leader_epoch if epoch == _ANY_EPOCH else epoch
            places.append((partition, leader_epoch, want.max_bytes, *form.entries[len(places)]))
        return SteadyFetch(form, request, places, limits, self._general)
