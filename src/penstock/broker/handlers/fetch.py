"""Fetch: sessions, reading, and waiting for enough bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.fetch.reading import (
    FetchLimits,
    FetchRead,
    WaitingFetch,
    available_bytes,
    read_partitions,
)
from penstock.broker.fetch.repeated_client import SteadyReader
from penstock.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    WantedPartition,
    wanted_partitions,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.replication.leader import LeaderState
from penstock.replication.selector import preferred_read_replica
from penstock.wire.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.wire.compiler import Decoder

if TYPE_CHECKING:
    from penstock.broker.app.parts import BrokerParts as Broker

__all__ = ["client_fetch", "fetch"]

_BY_TOPIC_ID: Final = 13
_STORAGE_ERROR_FROM: Final = 6
_READ_COMMITTED: Final = 1
_RACKS_FROM: Final = 11
#: Kafka's class for it, with or without its package
_RACK_AWARE: Final = "RackAwareReplicaSelector"
_WARM_TRIES: Final = 3
#: `FetchLimits(…)` without the call of a Python function, for what every Fetch makes
_new_limits: Final = tuple.__new__


def client_fetch(context: Context, came: tuple[memoryview, int, Decoder[FetchRequest]]) -> Any:
    """As clients ask: one that asks for the same again has its partitions, and its answer's form, ready."""
    frame, start, decode = came
    if context.version < _BY_TOPIC_ID:
        return fetch(context, decode(frame, start))
    reader = context.connection.memo
    if isinstance(reader, SteadyReader):
        answer = reader.answer(context, frame, start)
        if answer is not None:
            return answer
    request = decode(frame, start)
    if request.session_epoch == FINAL_EPOCH:
        if not isinstance(reader, SteadyReader):
            reader = context.connection.memo = SteadyReader(_now)
        reader.learn(context, request, bytes(frame[start:]), _limits(context, request))
    return fetch(context, request)


def _now(context: Context, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse | None]:
    """Answer at once, with what there is."""
    return _Fetch(context, request, None, False, list(wanted_partitions(request, by_id=True))).now()


def _limits(context: Context, request: FetchRequest) -> FetchLimits:
    broker = context.broker
    limits = (
        min(request.max_bytes, broker.config.fetch_max_bytes),
        request.isolation_level == _READ_COMMITTED,
        context.version < _RACKS_FROM,
        _nearest(broker, request.rack_id) if request.rack_id else None,
    )
    return _new_limits(FetchLimits, limits)


def fetch(context: Context, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse | None]:
    by_id = context.version >= _BY_TOPIC_ID
    sessions = context.broker.fetch_sessions
    session: FetchSession | None = None
    incremental = False
    if request.session_epoch == FINAL_EPOCH:
        sessions.close(request.session_id)
    elif request.session_epoch == INITIAL_EPOCH:
        session = sessions.start(request, by_id)
    else:
        try:
            session = sessions.resume(request, by_id)
        except ApiError as e:
            return FetchResponse(error_code=e.code)
        incremental = session is not None
    if session is not None:
        wanted: Sequence[WantedPartition] = list(session.partitions.values())
    else:
        wanted = list(wanted_partitions(request, by_id))
    return _Fetch(context, request, session, incremental, wanted).run()


class _Fetch:
    """One fetch on its way: read, perhaps wait and read again, perhaps load what is cold, answer."""

    __slots__ = ("_context", "_deferred", "_incremental", "_limits", "_request", "_session", "_wanted")

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        session: FetchSession | None,
        incremental: bool,
        wanted: Sequence[WantedPartition],
    ) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._incremental = incremental
        self._wanted = wanted
        self._limits = _limits(context, request)
        self._deferred: Deferred[FetchResponse | None] | None = None

    def run(self) -> FetchResponse | Deferred[FetchResponse | None]:
        request = self._request
        may_wait = request.max_wait_ms > 0
        read = read_partitions(self._context.broker.partitions, self._wanted, self._limits, may_wait=may_wait)
        missing = request.min_bytes - read.size
        if missing <= 0 or not may_wait or read.has_news or read.cold:
            return self._answer(read)
        partitions = self._context.broker.partitions
        if read.size:
            available = available_bytes(partitions, self._wanted, self._limits.committed)
            if available is None or available >= request.min_bytes:
                return self._answer(read)
            missing = min(missing, request.min_bytes - available)
        found = [p for w in self._wanted if not isinstance(p := partitions.find(w.topic, w.index), ErrorCode)]
        if not found:
            return self._answer(read)
        self._deferred = Deferred()
        server, wait_s = self._context.broker.server, request.max_wait_ms / 1000
        waiting = WaitingFetch(server, found, missing, wait_s, self._wait_over)
        self._deferred.on_cancel = waiting.cancel
        return self._deferred

    def _wait_over(self) -> None:
        """Enough bytes came, or the time is up: answer with what there is now."""
        assert self._deferred is not None
        try:
            answer = self.now()
        except Exception as e:  # noqa: BLE001 - nobody else would tell the client that waits
            self._context.failed(e)
            return
        if isinstance(answer, FetchResponse):
            self._deferred.resolve(answer)
        else:
            answer.then(self._deferred.resolve)

    def now(self) -> FetchResponse | Deferred[FetchResponse | None]:
        """Answer with what there is, be it nothing."""
        return self._answer(read_partitions(self._context.broker.partitions, self._wanted, self._limits))

    def _answer(self, read: FetchRead) -> FetchResponse | Deferred[FetchResponse | None]:
        if read.cold:
            return self._context.spawn(self._warm(read))
        return self._build(read)

    async def _warm(self, read: FetchRead) -> FetchResponse | None:
        """Have a worker thread bring in what the page cache lacks, then read again.

        Pages may go again before we read: then we answer with what there is, and the client comes back.
        """
        broker = self._context.broker
        for _ in range(_WARM_TRIES):
            await warm_pages(broker.workers, read.cold)
            read = read_partitions(broker.partitions, self._wanted, self._limits)
            if not read.cold:
                break
        return self._build(read)

    def _build(self, read: FetchRead) -> FetchResponse:
        if read.quiet:
            read.tell_quiet(self._limits.committed)
        if read.errors and self._context.version < _STORAGE_ERROR_FROM:
            _rename_storage_errors(read.answers)
        session = self._session
        self._context.broker.metrics.bytes_out += read.size
        told: Iterable[tuple[WantedPartition, PartitionData]] = zip(self._wanted, read.answers, strict=True)
        if session is not None:
            told = [pair for pair in told if pair[0].is_news(pair[1]) or not self._incremental]
            if self._incremental:
                for want, answer in told:
                    if answer.records:
                        session.served_last(want)
        response = FetchResponse(session_id=session.id if session is not None else 0)
        topics = response.responses
        last_key: object = None
        for want, answer in told:
            if want.topic != last_key:
                last_key = want.topic
                if isinstance(want.topic, str):
                    topics.append(FetchableTopicResponse(topic=want.topic))
                else:
                    topics.append(FetchableTopicResponse(topic_id=want.topic))
            topics[-1].partitions.append(answer)
        if read.errors:
            self._context.broker.metrics.fetch_errors += read.errors
            self._add_leader_hints(response)
        return response

    def _add_leader_hints(self, response: FetchResponse) -> None:
        answers = (
            (topic.topic or TopicId(topic.topic_id), answer.partition_index, answer)
            for topic in response.responses
            for answer in topic.partitions
        )
        listener = self._context.listener.name
        response.node_endpoints = LeaderHints(self._context.broker.image).add(
            answers, listener, LeaderIdAndEpoch, NodeEndpoint
        )


def _nearest(broker: Broker, rack: str) -> Callable[[LeaderState, int], int | None] | None:
    """How to find the replica in a client's rack, if this broker is to look for one."""
    selector = broker.config.replica_selector_class
    if selector is None or not selector.endswith(_RACK_AWARE):
        return None
    brokers = broker.image.brokers

    def rack_of(node: int) -> str | None:
        known = brokers.get(node)
        return known.rack if known is not None and not known.fenced else None

    return lambda leader, offset: preferred_read_replica(leader, rack, offset, rack_of)


def _rename_storage_errors(answers: Iterable[PartitionData]) -> None:
    """Have clients of versions without this error look for another leader, as Kafka does."""
    for answer in answers:
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
