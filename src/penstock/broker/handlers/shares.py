"""ShareFetch and ShareAcknowledge: sessions, acknowledgements, and acquired records (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.metering import MeteredContext
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
        acknowledged = acknowledgements_of(request.topics)
        try:
            group_id, member_id = self._identity(request)
            _check_renewal(request)
            session = self._fetch_session(context, request, group_id, member_id, any(acknowledged.values()))
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
            outcome = Acknowledging(self._shares, find).run(acks)
        found: FetchResult | Deferred[FetchResult] = {}
        is_final = request.share_session_epoch == FINAL_EPOCH
        fetches = not is_final and not request.is_renew_ack
        if fetches:
            if isinstance(context, MeteredContext) and context.meter.fetch_bytes_max is not None:
                request.max_bytes = min(request.max_bytes, context.meter.fetch_bytes_max)
            wishes = self._wishes(request, group_id, member_id)
            found = ShareFetch(context, self._shares, find, self._workers, session.partitions, wishes).run()
        is_full = request.share_session_epoch == INITIAL_EPOCH

        def respond(outcome: AckOutcome, found: FetchResult) -> ShareFetchResponse:
            if is_final:
                self._end(group_id, member_id)
            self._release_denied(context, session, outcome, found)
            response = fetch_response(session, is_full, outcome, found if fetches else None)
            if isinstance(context, MeteredContext):
                context.meter.charge_delivery(_size_of(found))
            response.acquisition_lock_timeout_ms = self._shares.settings(group_id).limits.lock_ms
            self._add_hints(context, response)
            return response

        return _both(outcome, found, respond)

    def _identity(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[str, str]:
        """Group and member of a request."""
        if not self._is_enabled():
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.group_id is None:
            raise InvalidRequest("Invalid group id in the request.")
        return request.group_id, check_member_id(request.member_id)

    def _fetch_session(
        self,
        context: Context,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        has_acknowledgements: bool,
    ) -> ShareSession:
        sessions, epoch = self._shares.sessions, request.share_session_epoch
        wanted = [
            TopicIdPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        if epoch == FINAL_EPOCH:
            return sessions.find(group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
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
        acks = Acknowledgements(
            group_id,
            member_id,
            acknowledgements_of(request.topics),
            context.version >= _RENEWALS_FROM,
            request.is_renew_ack,
        )

        def respond(outcome: AckOutcome, _: FetchResult) -> ShareAcknowledgeResponse:
            if epoch == FINAL_EPOCH:
                self._end(group_id, member_id)
            self._release_denied(context, session, outcome, {})
            response = acknowledge_response(outcome)
            response.acquisition_lock_timeout_ms = self._shares.settings(group_id).limits.lock_ms
            self._add_hints(context, response)
            return response

        return _both(Acknowledging(self._shares, self._finder(context)).run(acks), {}, respond)

    # -- both

    def _finder(self, context: Context) -> _Find:
        find = self._partitions.find
        return find if self._access is None else self._access.finder(context, Operation.READ, find)

    def _release_denied(
        self, context: Context, session: ShareSession, outcome: AckOutcome, found: FetchResult
    ) -> None:
        """Release what a member has acquired of topics whose right to read was revoked."""
        denied = {p for p, result in found.items() if result is ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        denied |= {p for p, e in outcome.items() if e and e.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        if denied and session.connection is context.connection:
            group_id, member_id = session.key
            for partition in denied:
                self._shares.release(ShareStateKey(group_id, *partition), member_id)

    def _end(self, group_id: str, member_id: str) -> None:
        session = self._shares.sessions.close(group_id, member_id)
        if session is not None:
            self._shares.end_session(session)

    def _add_hints(self, context: Context, response: Any) -> None:
        answers = (
            (TopicId(topic.topic_id), answer.partition_index, answer)
            for topic in response.responses
            for answer in topic.partitions
            if answer.error_code
        )
        response.node_endpoints = self._hints.add(
            answers, context.listener.name, LeaderIdAndEpoch, NodeEndpoint
        )


def _size_of(found: FetchResult) -> int:
    return sum(result.size for result in found.values() if isinstance(result, AcquiredData))


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


def _both(
    outcome: AckOutcome | Deferred[AckOutcome],
    found: FetchResult | Deferred[FetchResult],
    respond: Callable[[AckOutcome, FetchResult], Any],
) -> Any:
    """Respond once both the acknowledgements and the fetch are done."""
    if not isinstance(outcome, Deferred) and not isinstance(found, Deferred):
        return respond(outcome, found)
    result: Deferred[Any] = Deferred()
    values: dict[str, Any] = {}

    def arrived(name: str, value: Any) -> None:
        values[name] = value
        if len(values) == 2:
            result.resolve(respond(values["outcome"], values["found"]))

    for name, part in (("outcome", outcome), ("found", found)):
        if isinstance(part, Deferred):
            part.then(lambda value, name=name: arrived(name, value))  # type: ignore[misc]
        else:
            values[name] = part
    if isinstance(found, Deferred):
        result.on_cancel = found.cancel
    return result
