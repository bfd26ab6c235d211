"""Audit events: denied requests, administrative changes, deleted data, failed authentications.

Events have the fields of OCSF: class 3002 (authentication) or 6003 (API activity). They go to the logger
`audit`, one line each, to the topic `__audit`, or to both.

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
from collections.abc import Callable
from typing import Any, Final

from penstock.broker.base.audit_details import Details, cut, details_of
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.context import AsyncHandler, Context, Handler
from penstock.broker.base.logs import get_logger
from penstock.model.errors import ProtocolError
from penstock.model.ids import AUDIT_TOPIC
from penstock.net.deferred import Deferred
from penstock.security.principal import Session

__all__ = ["Audit"]

log = get_logger("audit")
_AUTHENTICATION: Final = 3002
_API_ACTIVITY: Final = 6003
_FAILURE: Final = 2
_SUCCESS: Final = 1
#: OCSF's activities: log on; and of APIs other than create, read, update and delete
_LOGON: Final = 1
_OTHER: Final = 99


#: how long an administrative request waits for room in the queue
_ROOM_S: Final = 30.0
#: different events that are counted at a time; others are written one by one
_REPEATED_MAX: Final = 1000

#: calls a function after a time, as `loop.call_later`
CallLater = Callable[[float, Callable[[], None]], object]


class _Repeated:
    """An event that was written, and how often it has happened again since."""

    __slots__ = ("again", "event")

    def __init__(self, event: dict[str, Any]) -> None:
        self.event = event
        self.again = 0


class _Allowance:
    """A number of events per second, with a second's worth at once."""

    __slots__ = ("_counted_at", "_left", "_now", "_per_s")

    def __init__(self, per_s: int, now: Callable[[], float]) -> None:
        self._per_s = float(per_s)
        self._now = now
        self._left = self._per_s
        self._counted_at = now()

    def take(self) -> bool:
        now = self._now()
        self._left = min(self._per_s, self._left + (now - self._counted_at) * self._per_s)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Audit:
    """Writes audit events, up to a number per second."""

    def __init__(
        self,
        events_per_s: int,
        now: Callable[[], float],
        *,
        to_log: bool = True,
        queue: AuditQueue | None = None,
        blocks: bool = False,
        aggregation_s: float = 0.0,
        call_later: CallLater | None = None,
        internal: str | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """With `events_per_s` of 0 no events are written. `queue` leads to the audit topic.

        Equal events within `aggregation_s` are counted; `call_later` reports the count at its end.
        `internal` is the name of the internal listener, `wall_ms` the time of events in the topic.
        """
        self._allowance = _Allowance(events_per_s, now)
        self._allowance_of_changes = _Allowance(events_per_s, now)
        self._allowance_of_data = _Allowance(events_per_s, now)
        self._is_off = events_per_s == 0
        self._to_log = to_log
        self._queue = queue
        self._blocks = blocks
        self._aggregation_s = aggregation_s
        self._call_later = call_later
        self._internal = internal
        self._wall_ms = wall_ms
        self._repeated: dict[tuple[object, ...], _Repeated] = {}
        self.dropped = 0
        #: denied operations by operation and type of the resource
        self.denials: Counter[tuple[str, str]] = Counter()

    def denied(self, context: Context, operation: str, resource_type: str, resource: str) -> None:
        """A request was denied an operation on a resource."""
        self.denials[operation, resource_type] += 1
        if resource == AUDIT_TOPIC and context.session.listener == self._internal:
            # Writing audit events is never audited: each event would bring another one.
            return
        self._repeat(
            "access_denied",
            _API_ACTIVITY,
            _OTHER,
            _FAILURE,
            context.session,
            api=context.stats.name,
            client_id=context.client_id,
            operation=operation,
            resource_type=resource_type,
            resource=resource,
        )

    def audited(self, handler: AsyncHandler) -> AsyncHandler:
        """A handler that audits each request that the active controller has executed."""

        async def serve(context: Context, request: Any) -> Any:
            reserved = self._queue if self._blocks else None
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
            allowance=self._allowance_of_data,
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
            allowance=self._allowance_of_changes if has_changed else self._allowance,
        )

    def authentication_failed(self, session: Session, mechanism: str, reason: str) -> None:
        """A client could not authenticate. `reason` has no part of a password or token."""
        self._repeat(
            "authentication_failed",
            _AUTHENTICATION,
            _LOGON,
            _FAILURE,
            session,
            mechanism=mechanism,
            reason=reason,
        )

    def _repeat(
        self, event: str, class_uid: int, activity: int, status: int, session: Session, **fields: Any
    ) -> None:
        """Write an event that may happen often: once, and then how often it has happened again."""
        written = _described(event, class_uid, activity, status, session, fields)
        key = tuple(written.values())
        known = self._repeated.get(key)
        if known is not None:
            known.again += 1
            return
        if self._aggregation_s and self._call_later is not None and len(self._repeated) < _REPEATED_MAX:
            self._repeated[key] = _Repeated(written)
            self._call_later(self._aggregation_s, lambda: self._end_window(key))
        self._emit(dict(written))

    def _end_window(self, key: tuple[object, ...]) -> None:
        """Write how often an event has happened again, and count on if it has."""
        assert self._call_later is not None
        known = self._repeated[key]
        if not known.again:
            del self._repeated[key]
            return
        again, known.again = known.again, 0
        self._call_later(self._aggregation_s, lambda: self._end_window(key))
        self._emit({**known.event, "count": again})

    def _write(
        self,
        event: str,
        class_uid: int,
        activity: int,
        status: int,
        session: Session,
        *,
        allowance: _Allowance,
        **fields: Any,
    ) -> None:
        self._emit(_described(event, class_uid, activity, status, session, fields), allowance)

    def _emit(self, event: dict[str, Any], allowance: _Allowance | None = None) -> None:
        if self._is_off:
            return
        allowance = allowance or self._allowance
        # A change that has waited for room in the queue is not dropped after that.
        has_room = self._blocks and self._queue is not None and allowance is self._allowance_of_changes
        if not allowance.take() and not has_room:
            self.dropped += event.get("count", 1)
            return
        queue = self._queue
        if queue is not None:
            self.dropped += queue.take_lost()
        if self.dropped:
            event["dropped"], self.dropped = self.dropped, 0
        if queue is not None and not queue.put({**event, "time": self._wall_ms()}):
            self.dropped = event.get("count", 1) + event.get("dropped", 0)
        if self._to_log:
            log.info(event["event"], **{name: value for name, value in event.items() if name != "event"})


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
        **fields,
    }
    return {name: cut(value) if isinstance(value, str) else value for name, value in described.items()}
