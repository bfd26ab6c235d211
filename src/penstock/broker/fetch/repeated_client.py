"""Fetches that a client repeats on a connection, with new offsets only.

At the end of the logs such a fetch is nearly all that a consumer costs: it comes, waits, and is answered with
a batch or two. So the connection keeps its partitions, and a template of its requests and responses. A client
may name its partitions in turns, another one first each time. Each request is then recognised by its
predecessor.

An error, a new leader epoch, an aborted transaction, or bytes that are not in memory go to the general
pipeline.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from penstock.broker.base import repeated
from penstock.broker.base.context import Context
from penstock.broker.base.metrics import TopicStats
from penstock.broker.fetch.client_fetch import ClientEnvironment
from penstock.broker.fetch.partition_read import FetchLimits, read_partition
from penstock.broker.fetch.pipeline import WaitingFetch, newest_within
from penstock.broker.fetch.sessions import FINAL_EPOCH, WantedPartition, wanted_partitions
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.security.acls import Operation
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import FETCH, FetchRequest, names_replica
from penstock.wire.repeated_client_fetch import ClientFetchTemplate, RepeatedFetchResponse
from penstock.wire.schema import Records

__all__ = ["ClientFetchLearner", "RepeatedClientFetch", "RepeatedClientFetches"]

#: a partition, the leader epoch in which it is read, its limit in bytes, and its entry in the template
_Place: TypeAlias = tuple[Partition, int, int, bytes, int]
_ANY_EPOCH: Final = -1
#: requests of one connection: more than there are turns among the partitions of a template
_MOST_KNOWN: Final = 64


class GeneralFetch(Protocol):
    """The general pipeline for clients."""

    def limits(self, context: Context, request: FetchRequest) -> FetchLimits: ...

    def answer_now(self, context: Context, request: FetchRequest) -> Any:
        """The response with the bytes that there are, or a Deferred of it."""
        ...


class RepeatedClientFetch(WaitingFetch):
    """One repeated request; at most one of its occurrences waits."""

    __slots__ = (
        "_access",
        "_answer_general",
        "_epoch",
        "_limits",
        "_max_wait_s",
        "_min_bytes",
        "_offsets",
        "_partitions",
        "_places",
        "_session",
        "_size",
        "_stats",
        "_template",
        "following",
        "route",
    )

    keeps_timer = True

    def __init__(
        self,
        context: Context,
        environment: ClientEnvironment,
        template: ClientFetchTemplate,
        request: FetchRequest,
        places: Sequence[_Place],
        limits: FetchLimits,
        answer_general: Callable[[Context, FetchRequest], Any],
    ) -> None:
        self.context = context
        self.route = (FETCH.key, context.version)
        self._template = template
        self._min_bytes = request.min_bytes
        self._max_wait_s = request.max_wait_ms / 1000
        self._places = places
        self._partitions = [partition for partition, *_ in places]
        self._limits = limits
        #: the counters of the topic; None if there are several
        stats = self._partitions[0].stats
        is_one = all(partition.stats is stats for partition in self._partitions)
        self._stats: TopicStats | None = stats if is_one else None
        #: the rights that `places` were found with hold for this epoch and this session
        self._access = environment.access
        self._epoch = None if self._access is None else self._access.epoch
        self._session = None if self._access is None else context.session
        self._answer_general = answer_general
        self._offsets: Sequence[int] = ()
        #: bytes of the last read
        self._size = 0
        #: the request that came after this one last time; at first this one again
        self.following: RepeatedClientFetch | None = self
        self.prepare_wait(environment.call_soon)

    @property
    def is_stale(self) -> bool:
        """True if a partition has moved or has another leader epoch, or if rights may have changed."""
        return self._rights_changed() or any(
            not p.hosted or p.leader_epoch != epoch for p, epoch, *_ in self._places
        )

    def _rights_changed(self) -> bool:
        access = self._access
        return access is not None and (
            access.epoch is not self._epoch or self.context.session is not self._session
        )

    def matches(self, frame: memoryview) -> bool:
        """Returns true if `frame` holds this request, with any offsets."""
        return self._template.read(frame) is not None

    def take(self, frame: memoryview) -> int | None:
        """The correlation id of a frame that holds this request, whose offsets are kept; None for others."""
        found = None if self.is_waiting else self._template.read(frame)
        if found is None:
            return None
        correlation_id, self._offsets = found
        return correlation_id

    def answer(self) -> Any:
        """(writer, content), or a Deferred of it; None if the general pipeline has to answer."""
        response = self._read()
        if response is None:
            return None
        missing = self._min_bytes - self._size
        if missing <= 0 or self._max_wait_s <= 0:
            self._count(response)
            return self._template.write, response
        if self._size:
            # There are bytes, but too few. The general pipeline decides whether waiting brings more.
            return None
        return self.start_wait(missing, self._max_wait_s)

    def answer_now(self) -> Any:
        response = self._read()
        if response is None:
            return self._answer_general(self.context, self._template.request(self._offsets))
        self._count(response)
        return self._template.write, response

    def subscribe(self) -> None:
        if self._limits.committed:
            # All partitions were read to their end.
            for partition, offset in zip(self._partitions, self._offsets, strict=True):
                partition.readers[self] = offset
        else:
            for partition in self._partitions:
                partition.readers[self] = None

    def unsubscribe(self) -> None:
        for partition in self._partitions:
            partition.readers.pop(self, None)
        if self.following is None:
            self.close_wait()

    def forget(self) -> None:
        """Release the other requests of the connection, and the timer unless a response waits for it."""
        self.following = None
        if not self.is_waiting:
            self.close_wait()

    def _read(self) -> RepeatedFetchResponse | None:
        """Read all partitions; None if anything is out of the ordinary."""
        if self._access is not None and self._rights_changed():
            return None
        max_bytes, committed, _, _ = self._limits
        fields: list[bytes | int] = []
        with_records: list[tuple[int, Records]] = []
        size = 0
        for (partition, leader_epoch, most, before, position), offset in zip(
            self._places, self._offsets, strict=True
        ):
            if (
                partition.leader_epoch != leader_epoch
                or not partition.hosted
                or partition.health.offline is not None
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
            try:
                limit = min(max_bytes - size, most) if size else None
                records: Records | None = newest_within(log, offset, upper, limit)
                if records is None:
                    records = self._read_log(partition, offset, most, size)
            except (ApiError, ColdPages):
                return None
            if records is None:
                return None
            if records:
                size += len(records)
                with_records.append((position, records))
        self._size = size
        return fields, with_records

    def _count(self, response: RepeatedFetchResponse) -> None:
        """Count the bytes of a response by topic."""
        if self._stats is not None:
            self._stats.bytes_out += self._size
            return
        stats = {position: partition.stats for partition, _, _, _, position in self._places}
        for position, records in response[1]:
            stats[position].bytes_out += len(records)

    def _read_log(self, partition: Partition, offset: int, most: int, size: int) -> Records | None:
        """Read more than the newest batch, or none of it, behind `size` bytes of other partitions."""
        limits = self._limits
        want = WantedPartition(partition.topic_id, partition.index, offset, most, -1, -1)
        answer = read_partition(partition, want, max(0, limits.max_bytes - size), limits, not size)
        return None if answer.aborted_transactions else answer.records


class RepeatedClientFetches:
    """The requests that one connection repeats (`penstock.broker.base.repeated.RepeatedRequests`)."""

    __slots__ = ("_known", "context", "last", "route")

    def __init__(self, context: Context) -> None:
        self.route = (FETCH.key, context.version)
        self.context = context
        #: by partitions and size of the request; None for a request that came once
        self._known: dict[tuple[object, ...], RepeatedClientFetch | None] = {}
        #: the last request, if it is known
        self.last: RepeatedClientFetch | None = None

    def __len__(self) -> int:
        """The number of requests that were seen, once or more."""
        return len(self._known)

    def take(self, frame: memoryview) -> tuple[int, Any] | None:
        """Answer a request that follows the last one as it did before."""
        fetch = None if self.last is None else self.last.following
        if fetch is None:
            return None
        correlation_id = fetch.take(frame)
        if correlation_id is None:
            return None
        self.last = fetch
        self.context, self.route = fetch.context, fetch.route
        response = fetch.answer()
        if response is None:
            if fetch.is_stale:
                self.forget()
            return None
        return correlation_id, response

    def forget(self) -> None:
        """Release everything: requests refer to each other in a cycle, and to partitions, which are large."""
        for fetch in self._known.values():
            if fetch is not None:
                fetch.forget()
        self._known.clear()
        self.last = None

    def learn(
        self, request: FetchRequest, frame: memoryview, build: Callable[[], RepeatedClientFetch | None]
    ) -> None:
        """Keep a request that came before; `build` returns None for one that has no template."""
        named = [(topic.topic_id, *(p.partition for p in topic.partitions)) for topic in request.topics]
        key = (len(frame), *named)
        fetch = self._known.get(key)
        if fetch is None or not (fetch.is_waiting or fetch.matches(frame)):
            fetch = build() if key in self._known else None
            if len(self._known) >= _MOST_KNOWN:
                self.forget()
            self._known[key] = fetch
        if self.last is not None:
            self.last.following = fetch
        self.last = fetch


class ClientFetchLearner:
    """Learns the fetches of all client connections of a broker."""

    __slots__ = ("_environment", "_general")

    #: the versions whose requests may be repeated
    versions = ClientFetchTemplate.VERSIONS

    def __init__(self, general: GeneralFetch, environment: ClientEnvironment) -> None:
        self._general = general
        self._environment = environment

    def learn(self, context: Context, request: FetchRequest, frame: memoryview, body_at: int) -> None:
        """See `penstock.broker.base.repeated.Learn`."""
        if request.session_epoch != FINAL_EPOCH or not repeated.ENABLED:
            return
        connection = context.connection
        known = connection.memo
        if not ClientFetchTemplate.may_be_of(context.version, request):
            if isinstance(known, RepeatedClientFetches):
                known.last = None
            return
        if not isinstance(known, RepeatedClientFetches):
            known = connection.memo = RepeatedClientFetches(context)
        known.learn(request, frame, lambda: self._build(context, request, bytes(frame), body_at))

    def _build(
        self, context: Context, request: FetchRequest, frame: bytes, body_at: int
    ) -> RepeatedClientFetch | None:
        limits = self._general.limits(context, request)
        template = ClientFetchTemplate.of(request, frame, body_at)
        if template is None or limits.nearest is not None or names_replica(request):
            # A request that names a replica needs ClusterAction, which the general pipeline checks.
            return None
        places: list[_Place] = []
        find, access = self._environment.partitions.find, self._environment.access
        accesses = self._environment.accesses
        allowed = find if access is None else access.finder(context, Operation.READ, find)
        for want in wanted_partitions(request, by_id=True):
            partition = allowed(want.topic, want.index)
            if isinstance(partition, ErrorCode) or want.last_fetched_epoch >= 0:
                return None
            if accesses is not None and accesses.watches(partition.stats.name):
                # The general pipeline counts reads for the audit.
                return None
            epoch = want.current_leader_epoch
            leader_epoch = partition.leader_epoch if epoch == _ANY_EPOCH else epoch
            places.append((partition, leader_epoch, want.max_bytes, *template.entries[len(places)]))
        return RepeatedClientFetch(
            context, self._environment, template, request, places, limits, self._general.answer_now
        )
