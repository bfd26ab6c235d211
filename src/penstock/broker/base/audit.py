"""Audit events: denied requests, administrative changes, failed authentications.

Events have the fields of OCSF: class 3002 (authentication) or 6003 (API activity). They go to the logger
`audit`, one line each.

Policy: events are never waited for. A broker writes `penstock.audit.events.per.second.max` events per second,
with a second's worth at once, and drops the others. The next event that is written has the number of
dropped events. So a client that is denied many times cannot fill the disk or slow the broker down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from penstock.broker.base.context import AsyncHandler, Context
from penstock.broker.base.logs import get_logger
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


class Audit:
    """Writes audit events, up to a number per second."""

    def __init__(self, events_per_s: int, now: Callable[[], float]) -> None:
        """With `events_per_s` of 0 no events are written."""
        self._per_s = events_per_s
        self._now = now
        self._allowance = float(events_per_s)
        self._counted_at = now()
        self.dropped = 0
        #: denied operations by operation and type of the resource
        self.denials: Counter[tuple[str, str]] = Counter()

    def denied(self, context: Context, operation: str, resource_type: str, resource: str) -> None:
        """A request was denied an operation on a resource."""
        self.denials[operation, resource_type] += 1
        self._write(
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
            response = await handler(context, request)
            self.changed(context, _has_succeeded(response))
            return response

        return serve

    def changed(self, context: Context, succeeded: bool) -> None:
        """The active controller has executed an administrative request."""
        status = _SUCCESS if succeeded else _FAILURE
        self._write(
            "metadata_changed" if succeeded else "metadata_not_changed",
            _API_ACTIVITY,
            _OTHER,
            status,
            context.session,
            api=context.stats.name,
            client_id=context.client_id,
        )

    def authentication_failed(self, session: Session, mechanism: str, reason: str) -> None:
        """A client could not authenticate. `reason` has no part of a password or token."""
        self._write(
            "authentication_failed",
            _AUTHENTICATION,
            _LOGON,
            _FAILURE,
            session,
            mechanism=mechanism,
            reason=reason,
        )

    def _write(
        self, event: str, class_uid: int, activity: int, status: int, session: Session, **fields: Any
    ) -> None:
        if not self._takes_one():
            self.dropped += 1
            return
        if self.dropped:
            fields["dropped"], self.dropped = self.dropped, 0
        log.info(
            event,
            class_uid=class_uid,
            activity_id=activity,
            status_id=status,
            principal=str(session.principal),
            host=session.host,
            listener=session.listener,
            **fields,
        )

    def _takes_one(self) -> bool:
        now = self._now()
        earned = (now - self._counted_at) * self._per_s
        self._allowance = min(float(self._per_s), self._allowance + earned)
        self._counted_at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True


def _has_succeeded(response: Any) -> bool:
    """Whether a response has no error for the whole request, and a part without one if it has parts."""
    if getattr(response, "error_code", 0):
        return False
    for name in ("topics", "results", "responses", "filter_results", "entries"):
        parts = getattr(response, name, None)
        if parts:
            return any(not getattr(part, "error_code", 0) for part in parts)
    return True
