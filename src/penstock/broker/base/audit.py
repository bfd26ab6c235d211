"""Audit events: denied requests, administrative changes, deleted data, failed authentications.

Events have the fields of OCSF: class 3002 (authentication) or 6003 (API activity). They go to the logger
`audit`, one line each, to the topic `__audit`, or to both.

A denied request has one event, whatever number of names it has. The event has the number of denials by
operation and resource type, and the first names of each.

Policy: a denial or a failed authentication is never waited for. Equal events within a window are one event
with a count. A broker writes `penstock.audit.events.per.second.max` events per second, with a second's worth
at once, and drops the others, so a client that is denied many times cannot fill the disk or slow the broker
down. Executed changes of metadata, and those of data, have as many events per second of their own, so no
client can hide a change behind denials. Texts that clients choose are cut, so an event has a few kilobytes at
most. Events that find the queue of the topic full are dropped, too. The next event that is written has the
number of dropped events. With `penstock.audit.overflow=block` an administrative request reserves room in the
queue before it is executed, and is refused if there is none in time. Its event is never dropped.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.broker.base.audit_details import Details, cut, details_of, shown
from penstock.broker.base.audit_output import (
    ACCESSES,
    ATTEMPTS,
    CHANGES,
    DATA_CHANGES,
    SESSIONS,
    AuditOutput,
    AuditSink,
    CallLater,
)
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.context import AsyncHandler, Context, Handler
from penstock.broker.base.data_access import READ, Access, DataAccess
from penstock.broker.base.denials import Denials, DeniedKind
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ProtocolError
from penstock.model.ids import AUDIT_TOPIC
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import Session

__all__ = ["Audit"]

_AUTHENTICATION: Final = 3002
_API_ACTIVITY: Final = 6003
_FAILURE: Final = 2
_SUCCESS: Final = 1
#: OCSF's activities: log on and off; create, read, and what is neither create, read, update nor delete
_LOGON: Final = 1
_LOGOFF: Final = 2
_CREATE: Final = 1
_READ: Final = 2
_OTHER: Final = 99


#: how long an administrative request waits for room in the queue
_ROOM_S: Final = 30.0
#: how long denials wait for the response of their request
_PENDING_S: Final = 10.0


class Audit:
    """Writes audit events, up to a number per second."""

    def __init__(
        self,
        events_per_s: int,
        now: Callable[[], float],
        *,
        to_log: bool = True,
        queue: AuditQueue | None = None,
        sinks: Sequence[AuditSink] = (),
        blocks: bool = False,
        aggregation_s: float = 0.0,
        call_later: CallLater | None = None,
        internal: str | None = None,
        has_sessions: bool = True,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """With `events_per_s` of 0 no events are written. `queue` leads to the audit topic.

        Equal events within `aggregation_s` are counted; `call_later` reports the count at its end.
        With `has_sessions`, logins and the ends of sessions are written. `internal` is the name of the
        internal listener, `wall_ms` the time of events in the topic.
        """
        self._output = AuditOutput(
            events_per_s,
            now,
            to_log=to_log,
            queue=queue,
            sinks=sinks,
            blocks=blocks,
            aggregation_s=aggregation_s,
            call_later=call_later,
            wall_ms=wall_ms,
        )
        self._has_sessions = has_sessions
        self._internal = internal
        #: the denials of requests that have no response yet, in the order of the first ones
        self._open: dict[Denials, None] = {}
        self._is_watching = False
        #: None if no topic's reads and writes are audited
        self.accesses: DataAccess | None = None
        #: denied operations by operation and type of the resource
        self.denials: Counter[tuple[str, str]] = Counter()

    def watch_data(self, patterns: Sequence[str], window_s: float, image: ClusterImage) -> None:
        """Audit reads and writes of topics, by name or by prefix and star."""
        assert self._output.call_later is not None
        self.accesses = DataAccess(
            patterns, window_s, image, self._accessed, self._output.count_dropped, self._output.call_later
        )

    def _accessed(self, access: Access) -> None:
        hosts = {"hosts": access.hosts} if len(access.hosts) > 1 else {}
        self._write(
            "data_accessed",
            _API_ACTIVITY,
            _READ if access.operation == READ else _CREATE,
            _SUCCESS,
            access.session,
            operation=access.operation,
            resource_type="TOPIC",
            resource=access.topic,
            accesses=access.accesses,
            bytes=access.bytes,
            **hosts,
            kind=ACCESSES,
        )

    def denied(
        self, context: Context, operation: Operation, resource_type: ResourceType, resource: str
    ) -> None:
        """A request was denied an operation on a resource. Its event is written when the request is done."""
        collected = context.denials
        if collected is None:
            collected = context.denials = Denials(context, self._denials_ended)
            self._open[collected] = None
            self._watch_open()
        collected.add(operation, resource_type, resource)

    def _denials_ended(self, collected: Denials) -> None:
        """Write the one event of a request that was denied something."""
        self._open.pop(collected, None)
        context, kinds = collected.context, list(collected)
        for kind in kinds:
            self.denials[kind.operation, kind.resource_type] += kind.count
        first = kinds[0]
        is_audit_topic = len(kinds) == 1 and first.samples == [AUDIT_TOPIC]
        if is_audit_topic and context.session.listener == self._internal:
            # Writing audit events is never audited: each event would bring another one.
            return
        several: dict[str, Any] = {}
        if len(kinds) > 1 or first.count > 1:
            several = {
                "denials": sum(kind.count for kind in kinds),
                "denied": [_kind(each) for each in kinds],
            }
        self._repeat(
            "access_denied",
            _API_ACTIVITY,
            _OTHER,
            _FAILURE,
            context.session,
            api=context.stats.name,
            client_id=context.client_id,
            operation=first.operation,
            resource_type=first.resource_type,
            resource=first.samples[0],
            **several,
        )

    def _watch_open(self) -> None:
        """Write the denials of requests that never get a response: their connections are gone."""
        if self._is_watching or self._output.call_later is None:
            return
        self._is_watching = True
        # A request that is open now, and still at the next call, is late.
        late = list(self._open)

        def look() -> None:
            self._is_watching = False
            for collected in late:
                if collected in self._open:
                    collected.end()
            if self._open:
                self._watch_open()

        self._output.call_later(_PENDING_S, look)

    def audited(self, handler: AsyncHandler) -> AsyncHandler:
        """A handler that audits each request that the active controller has executed."""

        async def serve(context: Context, request: Any) -> Any:
            reserved = self._output.queue if self._output.blocks else None
            if reserved is not None and not await reserved.reserve(_ROOM_S):
                raise ProtocolError("the queue of audit events is full, so nothing is changed: try again")
            try:
                response = await handler(context, request)
            finally:
                # The event takes the room at once: nothing else runs in between.
                if reserved is not None:
                    reserved.release()
            validates = bool(getattr(request, "validate_only", False))
            self.changed(context, details_of(request, response), validate_only=validates)
            return response

        return serve

    def reported(self, handler: Handler) -> Handler:
        """A handler that audits each request that has changed or deleted data of this broker."""
        if inspect.iscoroutinefunction(handler):

            async def serve_later(context: Context, request: Any) -> Any:
                response = await handler(context, request)
                self._data_changed(context, request, response)
                return response

            return serve_later

        def serve(context: Context, request: Any) -> Any:
            response = handler(context, request)
            if not isinstance(response, Deferred):
                self._data_changed(context, request, response)
                return response
            reported: Deferred[Any] = Deferred()
            reported.on_cancel = response.cancel

            def report(value: Any) -> None:
                self._data_changed(context, request, value)
                reported.resolve(value)

            response.then(report)
            return reported

        return serve

    def _data_changed(self, context: Context, request: Any, response: Any) -> None:
        """A request was executed; one without any effect, such as a denied one, is no event here."""
        details = None if response is None else details_of(request, response)
        if details is None or not details.succeeded:
            return
        optional = {"resources": details.resources, "resources_left_out": details.left_out}
        self._write(
            "data_changed",
            _API_ACTIVITY,
            _OTHER,
            _SUCCESS,
            context.session,
            api=context.stats.name,
            client_id=context.client_id,
            **{name: value for name, value in optional.items() if value},
            kind=DATA_CHANGES,
        )

    def changed(self, context: Context, details: Details, *, validate_only: bool = False) -> None:
        """The active controller has executed, or only validated, an administrative request."""
        has_changed = details.succeeded and not validate_only
        optional = {
            "resources": details.resources,
            "resources_left_out": details.left_out,
            "error": details.error,
            "validate_only": validate_only,
        }
        self._write(
            "metadata_changed" if has_changed else "metadata_not_changed",
            _API_ACTIVITY,
            _OTHER,
            _SUCCESS if details.succeeded else _FAILURE,
            context.session,
            api=context.stats.name,
            client_id=context.client_id,
            **{name: value for name, value in optional.items() if value},
            kind=CHANGES if has_changed else ATTEMPTS,
        )

    def authentication_failed(self, session: Session, mechanism: str, reason: str) -> None:
        """A client could not authenticate. `reason` has no part of a password or token."""
        # The claimed name is no principal: any client can claim it.
        claimed: dict[str, Any] = {"user": shown(session.claimed)} if session.claimed else {}
        self._repeat(
            "authentication_failed",
            _AUTHENTICATION,
            _LOGON,
            _FAILURE,
            session,
            mechanism=mechanism,
            **claimed,
            reason=reason,
            **({"client_id": session.client_id} if session.client_id else {}),
        )

    def authenticated(self, session: Session, mechanism: str) -> None:
        """A client has authenticated, or has done so again in its session (KIP-368)."""
        event = "authenticated" if session.authentications == 1 else "reauthenticated"
        self._session_event(event, _LOGON, session, mechanism)

    def session_closed(self, session: Session) -> None:
        """The connection of a client has ended; no event if the client has never authenticated."""
        if session.authentications:
            self._session_event("session_closed", _LOGOFF, session, session.mechanism or "TLS")

    def _session_event(self, event: str, activity: int, session: Session, mechanism: str) -> None:
        if self._has_sessions:
            self._repeat(
                event,
                _AUTHENTICATION,
                activity,
                _SUCCESS,
                session,
                mechanism=mechanism,
                kind=SESSIONS,
            )

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of dropped events, by reason."""
        return self._output.dropped

    def close(self) -> None:
        """Write the collected events before the broker stops."""
        for collected in list(self._open):
            collected.end()
        if self.accesses is not None:
            self.accesses.close()
        self._output.close()

    def _repeat(
        self,
        event: str,
        class_uid: int,
        activity: int,
        status: int,
        session: Session,
        *,
        kind: str = ATTEMPTS,
        **fields: Any,
    ) -> None:
        """Write an event that may happen often: once, and then how often it has happened again."""
        self._output.repeat(_described(event, class_uid, activity, status, session, fields), kind)

    def _write(
        self,
        event: str,
        class_uid: int,
        activity: int,
        status: int,
        session: Session,
        *,
        kind: str,
        **fields: Any,
    ) -> None:
        self._output.emit(_described(event, class_uid, activity, status, session, fields), kind)


def _kind(kind: DeniedKind) -> dict[str, Any]:
    """One operation and type of a request with several denials, with the first names."""
    return {
        "operation": kind.operation,
        "resource_type": kind.resource_type,
        "count": kind.count,
        "resources": [cut(name) for name in kind.samples],
    }


def _described(
    event: str, class_uid: int, activity: int, status: int, session: Session, fields: dict[str, Any]
) -> dict[str, Any]:
    """An event with the fields of OCSF. Long texts are cut."""
    described = {
        "event": event,
        "class_uid": class_uid,
        "activity_id": activity,
        "status_id": status,
        "principal": str(session.principal),
        "host": session.host,
        "listener": session.listener,
        **({"visitor": session.visitor} if session.visitor else {}),
        **fields,
    }
    return {name: cut(value) if isinstance(value, str) else value for name, value in described.items()}
