"""ShareFetch and ShareAcknowledge: sessions, acknowledgements, and acquired records (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker.base.access import Access
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.features import NO_SHARE_GROUPS
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.handlers.share_answers import acknowledge_response, fetch_response
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.shares.acknowledging import (
    Acknowledgements,
    Acknowledging,
    AckOutcome,
    acknowledgements_of,
)
from penstock.broker.shares.reading import AcquiredData
from penstock.broker.shares.share_fetch import FetchResult, FetchWishes, ShareFetch
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.net.deferred import Deferred
from penstock.ports import Workers
from penstock.security.acls import Operation
from penstock.shares.acquisition import AcquireRequest
from penstock.shares.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    TopicIdPartition,
    check_member_id,
)
from penstock.shares.shard import ShareStateKey
from penstock.wire.apis.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.apis.share_fetch import ShareFetchRequest, ShareFetchResponse

__all__ = ["ShareHandlers"]

#: the first version with renewals
_RENEWALS_FROM: Final = 2
_RECORD_LIMIT: Final = 1
#: rejected partitions of a response whose leaders are looked up at once
_HINTS_AT_ONCE: Final = 100
_Find: TypeAlias = Callable[[TopicId, int], Partition | ErrorCode]


class ShareHandlers:
    """The APIs of members of share groups to partition leaders."""

    def __init__(
        self,
        shares: SharePartitions,
        partitions: Partitions,
        workers: Workers,
        hints: LeaderHints,
        access: Access | None,
        is_enabled: Callable[[], bool],
    ) -> None:
        """`is_enabled` returns true while share groups are enabled (share.version)."""
        self._shares = shares
        self._partitions = partitions
        self._workers = workers
        self._hints = hints
        self._access = access
        self._is_enabled = is_enabled

    # -- ShareFetch

    def share_fetch(self, context: Context, request: ShareFetchRequest) -> Any:
        """The response, or a Deferred of it."""
        if context.is_large:
            return context.spawn(self._share_fetch_many(context, request))
        started = at_once(self._started_fetch(context, request))
        return started.response() if isinstance(started, _Exchange) else started

    async def _share_fetch_many(self, context: Context, request: ShareFetchRequest) -> Any:
        started = await context.until_done(self._started_fetch(context, request))
        response = started.response() if isinstance(started, _Exchange) else started
        return await awaited(response) if isinstance(response, Deferred) else response

    def _started_fetch(self, context: Context, request: ShareFetchRequest) -> Generator[None, None, Any]:
        """The parts of a response that may still come, or the response to a request that is refused."""
        acknowledged = yield from acknowledgements_of(request.topics)
        try:
            group_id, member_id = self._identity(request)
            _check_renewal(request)
            session = self._fetch_session(context, request, group_id, member_id, acknowledged)
        except ApiError as e:
            response = ShareFetchResponse(error_code=e.code, error_message=e.message or None)
            if e.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                return response
            return _delayed(response, request.max_wait_ms / 1000)
        find = self._finder(context)
        outcome: AckOutcome | Deferred[AckOutcome] = {}
        batches = {partition: b for partition, b in acknowledged.items() if b}
        if batches:
            may_renew = context.version >= _RENEWALS_FROM
            acks = Acknowledgements(group_id, member_id, batches, may_renew, request.is_renew_ack)
            outcome = yield from Acknowledging(self._shares, find).run(acks)
        found: FetchResult | Deferred[FetchResult] = {}
        is_final = request.share_session_epoch == FINAL_EPOCH
        fetches = not is_final and not request.is_renew_ack
        if fetches:
            if context.meter is not None and context.meter.fetch_bytes_max is not None:
                request.max_bytes = min(request.max_bytes, context.meter.fetch_bytes_max)
            wishes = self._wishes(request, group_id, member_id)
            found = ShareFetch(context, self._shares, find, self._workers, session.partitions, wishes).run()
        is_full = request.share_session_epoch == INITIAL_EPOCH

        def respond(outcome: AckOutcome, found: FetchResult) -> Generator[None, None, ShareFetchResponse]:
            if is_final:
                self._end(group_id, member_id)
            size = yield from self._release_denied(context, session, outcome, found)
            response = yield from fetch_response(session, is_full, outcome, found if fetches else None)
            if context.meter is not None:
                context.meter.charge_delivery(size)
            response.acquisition_lock_timeout_ms = self._shares.settings(group_id).limits.lock_ms
            yield from self._add_hints(context, response)
            return response

        return _Exchange(context, outcome, found, respond)

    def _identity(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[str, str]:
        """Group and member of a request."""
        if not self._is_enabled():
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS)
        if request.group_id is None:
            raise InvalidRequest("Invalid group id in the request.")
        return request.group_id, check_member_id(request.member_id)

    def _fetch_session(
        self,
        context: Context,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        wanted: Mapping[TopicIdPartition, Sequence[object]],
    ) -> ShareSession:
        """The session of a request for partitions with acknowledgements."""
        sessions, epoch = self._shares.sessions, request.share_session_epoch
        if epoch == FINAL_EPOCH:
            return sessions.find(group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if any(wanted.values()):
                raise InvalidRequest
            before = sessions.close(group_id, member_id)
            sessions_max = self._shares.config.sessions_max
            try:
                return sessions.open(group_id, member_id, context.connection, wanted, sessions_max)
            finally:
                # As in Kafka, a member may acknowledge what it has acquired before an error made it open its
                # session again. After a lost connection this is released, also if it is not closed here yet.
                if before is not None and before.connection is not context.connection:
                    self._shares.end_session(before)
        session = sessions.resume(group_id, member_id, epoch)
        session.update(
            wanted,
            [
                TopicIdPartition(t.topic_id, index)
                for t in request.forgotten_topics_data
                for index in t.partitions
            ],
        )
        return session

    def _wishes(self, request: ShareFetchRequest, group_id: str, member_id: str) -> FetchWishes:
        max_bytes = min(request.max_bytes, self._shares.config.fetch_bytes_max)
        is_strict = request.share_acquire_mode == _RECORD_LIMIT
        return FetchWishes(
            group_id,
            AcquireRequest(member_id, request.max_records, max(1, request.batch_size), is_strict),
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_wait_ms / 1000,
        )

    # -- ShareAcknowledge

    def share_acknowledge(self, context: Context, request: ShareAcknowledgeRequest) -> Any:
        """The response, or a Deferred of it."""
        if context.is_large:
            return context.spawn(self._acknowledge_many(context, request))
        started = at_once(self._started_acknowledge(context, request))
        return started.response() if isinstance(started, _Exchange) else started

    async def _acknowledge_many(self, context: Context, request: ShareAcknowledgeRequest) -> Any:
        started = await context.until_done(self._started_acknowledge(context, request))
        response = started.response() if isinstance(started, _Exchange) else started
        return await awaited(response) if isinstance(response, Deferred) else response

    def _started_acknowledge(
        self, context: Context, request: ShareAcknowledgeRequest
    ) -> Generator[None, None, Any]:
        epoch, sessions = request.share_session_epoch, self._shares.sessions
        try:
            group_id, member_id = self._identity(request)
            if epoch == INITIAL_EPOCH:
                raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            if epoch == FINAL_EPOCH:
                session = sessions.find(group_id, member_id)
            else:
                session = sessions.resume(group_id, member_id, epoch)
        except ApiError as e:
            return ShareAcknowledgeResponse(error_code=e.code, error_message=e.message or None)
        batches = yield from acknowledgements_of(request.topics)
        acks = Acknowledgements(
            group_id, member_id, batches, context.version >= _RENEWALS_FROM, request.is_renew_ack
        )
        outcome = yield from Acknowledging(self._shares, self._finder(context)).run(acks)

        def respond(outcome: AckOutcome, _: FetchResult) -> Generator[None, None, ShareAcknowledgeResponse]:
            if epoch == FINAL_EPOCH:
                self._end(group_id, member_id)
            yield from self._release_denied(context, session, outcome, {})
            response = yield from acknowledge_response(outcome)
            response.acquisition_lock_timeout_ms = self._shares.settings(group_id).limits.lock_ms
            yield from self._add_hints(context, response)
            return response

        return _Exchange(context, outcome, {}, respond)

    # -- both

    def _finder(self, context: Context) -> _Find:
        find = self._partitions.find
        return find if self._access is None else self._access.finder(context, Operation.READ, find)

    def _release_denied(
        self, context: Context, session: ShareSession, outcome: AckOutcome, found: FetchResult
    ) -> Generator[None, None, int]:
        """Release what a member has acquired of topics whose right to read was revoked.

        Returns the bytes that were found.
        """
        denied: set[TopicIdPartition] = set()
        size = 0
        for partition, result in found.items():
            if isinstance(result, AcquiredData):
                size += result.size
            elif result is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                denied.add(partition)
            yield
        denied |= {p for p, e in outcome.items() if e and e.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        if session.connection is context.connection:
            group_id, member_id = session.key
            for partition in denied:
                self._shares.release(ShareStateKey(group_id, *partition), member_id)
                yield
        return size

    def _end(self, group_id: str, member_id: str) -> None:
        session = self._shares.sessions.close(group_id, member_id)
        if session is not None:
            self._shares.end_session(session)

    def _add_hints(self, context: Context, response: Any) -> Generator[None, None, None]:
        endpoints: dict[int, NodeEndpoint] = {}
        for topic in response.responses:
            yield
            rejected = [answer for answer in topic.partitions if answer.error_code]
            for start in range(0, len(rejected), _HINTS_AT_ONCE):
                yield
                some = rejected[start : start + _HINTS_AT_ONCE]
                answers = ((TopicId(topic.topic_id), each.partition_index, each) for each in some)
                for endpoint in self._hints.add(
                    answers, context.listener.name, LeaderIdAndEpoch, NodeEndpoint
                ):
                    endpoints[endpoint.node_id] = endpoint
        response.node_endpoints = list(endpoints.values())


def _check_renewal(request: ShareFetchRequest) -> None:
    """A request that renews locks fetches nothing: the fetch could outlast the renewed locks."""
    if not request.is_renew_ack:
        return
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [f"{name} must be set to 0, " for name, value in limits.items() if value]
    if wrong:
        raise InvalidRequest("".join(wrong) + "if isRenewAck is true.")


def _delayed(response: ShareFetchResponse, delay_s: float) -> Any:
    """Answer after a pause: a member without a session would repeat its request at once."""
    deferred: Deferred[Any] = Deferred()
    asyncio.get_running_loop().call_later(max(0.0, delay_s), deferred.resolve, response)
    return deferred


class _Exchange(NamedTuple):
    """A request whose acknowledgements and fetch were begun."""

    context: Context
    outcome: AckOutcome | Deferred[AckOutcome]
    found: FetchResult | Deferred[FetchResult]
    respond: Callable[[AckOutcome, FetchResult], Generator[None, None, Any]]

    def response(self) -> Any:
        """The response once both are done, or a Deferred of it."""
        outcome, found, respond = self.outcome, self.found, self.respond
        if not isinstance(outcome, Deferred) and not isinstance(found, Deferred):
            return self.context.in_turns(respond(outcome, found))
        result: Deferred[Any] = Deferred()
        values: dict[str, Any] = {}

        def arrived(name: str, value: Any) -> None:
            values[name] = value
            if len(values) == 2:
                response = self.context.in_turns(respond(values["outcome"], values["found"]))
                if isinstance(response, Deferred):
                    response.then(result.resolve)
                else:
                    result.resolve(response)

        for name, part in (("outcome", outcome), ("found", found)):
            if isinstance(part, Deferred):
                part.then(lambda value, name=name: arrived(name, value))  # type: ignore[misc]
            else:
                values[name] = part
        if isinstance(found, Deferred):
            result.on_cancel = found.cancel
        return result
