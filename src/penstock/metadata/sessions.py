"""The sessions of brokers, as the active controller sees them: heartbeats, and hints that a process is gone.

The controller's memory only, never in the log: a new active controller gives every broker a whole session
again, unless it knows better. Times are milliseconds of a clock that does not go back. A wrong suspicion is
harmless: the broker is fenced, loses its leaderships to others of the ISR, and is unfenced at its next
heartbeat.
"""

from __future__ import annotations

from typing import Final

from penstock.metadata.image import ClusterImage

__all__ = ["Sessions"]

#: when the session of a process that is gone has ended
_GONE: Final = float("-inf")


class _Session:
    __slots__ = ("epoch", "expires", "metadata_offset", "unanswered")

    def __init__(self, epoch: int, expires: float, metadata_offset: int) -> None:
        self.epoch = epoch
        self.expires = expires
        #: how far the broker has read the metadata log
        self.metadata_offset = metadata_offset
        #: heartbeats that the controller has not answered yet: it is slow, not the broker
        self.unanswered = 0

    @property
    def may_expire(self) -> bool:
        return not self.unanswered or self.expires == _GONE


class Sessions:
    """A session per broker, which the broker's heartbeats prolong. It belongs to one broker epoch."""

    __slots__ = ("_sessions", "_timeout_ms")

    def __init__(self, image: ClusterImage, timeout_ms: float, now_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}
        for broker in image.brokers.values():
            if not broker.fenced:
                self.heard(broker.id, broker.epoch, -1, now_ms)

    def heard(self, broker: int, epoch: int, metadata_offset: int, now_ms: float) -> None:
        """A heartbeat of an epoch that is registered (see `check_broker_epoch`)."""
        before = self._sessions.get(broker)
        session = self._sessions[broker] = _Session(epoch, now_ms + self._timeout_ms, metadata_offset)
        if before is not None and before.epoch == epoch:
            session.unanswered = before.unanswered

    def alive(self, broker: int, now_ms: float) -> bool:
        """Whether the broker's latest registration has sent a heartbeat within the timeout."""
        session = self._sessions.get(broker)
        return session is not None and now_ms < session.expires

    def gone(self, broker: int, epoch: int) -> None:
        """Its process has closed its connections and refuses new ones: do not wait for the timeout.

        `epoch` is that of the registration that was met with this: it says nothing of a later one.
        """
        session = self._sessions.get(broker)
        if session is not None and session.epoch == epoch:
            session.expires = _GONE

    def hold(self, broker: int) -> None:
        """Let the session not expire before `release`: the controller takes its time to answer a heartbeat.

        The broker sends the next heartbeat after the response. A process that is gone is fenced all the same.
        """
        session = self._sessions.get(broker)
        if session is not None:
            session.unanswered += 1

    def release(self, broker: int, now_ms: float) -> None:
        """The heartbeat of `hold` is answered: the next one is expected within a whole session."""
        session = self._sessions.get(broker)
        if session is not None and session.unanswered:
            session.unanswered -= 1
            if session.expires != _GONE:
                session.expires = max(session.expires, now_ms + self._timeout_ms)

    def spare(self, until_ms: float) -> None:
        """Let no session expire before this time: heartbeats of live brokers could not be received."""
        for session in self._sessions.values():
            if session.expires != _GONE:
                session.expires = max(session.expires, until_ms)

    def forget(self, broker: int) -> None:
        """It was unregistered, or another incarnation of it has registered."""
        self._sessions.pop(broker, None)

    def expired(self, image: ClusterImage, now_ms: float) -> list[int]:
        """The brokers to fence, the one that has been silent for longest first."""
        late = [
            (session.expires, broker)
            for broker, session in self._sessions.items()
            if session.expires <= now_ms and _is_unfenced(image, broker, session.epoch) and session.may_expire
        ]
        return [broker for _, broker in sorted(late)]

    def next_expiry(self, image: ClusterImage) -> float | None:
        """When `expired` may next have something to say."""
        times = [
            session.expires
            for broker, session in self._sessions.items()
            if _is_unfenced(image, broker, session.epoch) and session.may_expire
        ]
        return min(times, default=None)

    def lowest_offset(self, image: ClusterImage) -> int:
        """How far every active broker has read the metadata log; its end where none is active."""
        offsets = [
            session.metadata_offset
            for broker, session in self._sessions.items()
            if broker in image.brokers and image.brokers[broker].active
        ]
        return min(offsets, default=image.offset)


def _is_unfenced(image: ClusterImage, broker: int, epoch: int) -> bool:
    known = image.brokers.get(broker)
    return known is not None and known.epoch == epoch and not known.fenced
