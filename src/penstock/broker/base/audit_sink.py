"""A sink of audit events with a thread and a bounded queue of its own: a file, or a syslog server.

The thread links events to a chain (`penstock.audit.chain`) and delivers them in batches. A batch that fails
is delivered again, with pauses, so a slow disk or server holds nothing but this thread. Events that find the
queue full are dropped; the next event has their number, inside the chain.

Owned by: the event loop's thread puts events. Chain, head and delivery belong to the sink's thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any, Final, Protocol, TypeVar

from penstock.audit.chain import Chain, Head
from penstock.audit.internal_events import CHECKPOINT, STOPPED, internal_event
from penstock.broker.base.audit_head import HeadFile
from penstock.broker.base.logs import get_logger

__all__ = ["Delivery", "SinkThread"]

T = TypeVar("T")
log = get_logger("audit")
_BATCH_EVENTS: Final = 64
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LIMIT_S: Final = 30.0


class Delivery(Protocol):
    """Where a sink's events go. All methods run in the sink's thread, and may raise OSError."""

    def open(self) -> Head | None:
        """Get ready; returns the last event that is there, if that can be known."""
        ...

    def has(self, head: Head) -> bool:
        """Whether an event is there, after `open` has returned another one as the last."""
        ...

    def prepare(self) -> Sequence[Mapping[str, Any]]:
        """Called before each batch; returns events of the sink itself that come first."""
        ...

    def deliver(self, batch: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        """Write events with their lines; all of them, or an OSError, after which all come again."""
        ...

    def close(self) -> None: ...


class SinkThread:
    """One sink (`penstock.broker.base.audit_output.AuditSink`)."""

    def __init__(
        self,
        name: str,
        node_id: int,
        delivery: Delivery,
        new_chain: Callable[[Head | None], Chain],
        *,
        head_file: HeadFile | None = None,
        events_max: int = 10_000,
        checkpoint_s: float = 0.0,
    ) -> None:
        """`new_chain` makes the chain that continues a head. A checkpoint is an event without a cause, after
        `checkpoint_s` without others.
        """
        self.name = name
        self._node_id = node_id
        self._delivery = delivery
        self._new_chain = new_chain
        self._head_file = head_file
        self._events_max = events_max
        self._checkpoint_s = checkpoint_s or None
        self._changed = threading.Condition()
        self._events: deque[dict[str, Any]] = deque()
        self._unreported = 0
        self._deadline: float | None = None
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name=f"audit-{name}", daemon=True)
        #: events that were dropped
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._events)

    def start(self) -> None:
        self._thread.start()

    def put(self, event: dict[str, Any]) -> bool:
        with self._changed:
            if len(self._events) >= self._events_max:
                lost = event.get("count", 1) + event.get("dropped", 0)
                self._unreported += lost
                self.dropped += lost
                return False
            kept = {**event, "node_id": self._node_id}
            if self._unreported:
                kept["dropped"] = event.get("dropped", 0) + self._unreported
                self._unreported = 0
            self._events.append(kept)
            self._changed.notify()
        return True

    def stop(self, timeout_s: float) -> bool:
        """Deliver what is queued, and the end of the chain; false if that takes longer."""
        if not self._thread.is_alive():
            return True
        with self._changed:
            if self._deadline is None:
                end = internal_event(STOPPED, _now_ms(), node_id=self._node_id)
                if self._unreported:
                    end["dropped"], self._unreported = self._unreported, 0
                self._events.append(end)
            self._deadline = monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s + 1.0)
        if len(self._events):
            log.warning("audit_events_lost", sink=self.name, events=len(self._events))
        return not self._events and not self._thread.is_alive()

    # -- in the thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            log.error("audit_sink_ended", sink=self.name, error=repr(error), exc_info=error)

    def _serve(self) -> None:
        chain = self._insist(self._open)
        while chain is not None and (batch := self._next_batch()):
            if not self._deliver(chain, batch):
                break
        self._delivery.close()

    def _open(self) -> Chain:
        """The chain that continues the last event of the sink.

        The head may be ahead of the sink: its last events are missing. The chain then continues the head, so
        that the check finds out. The head may be behind: the process was killed between the two writes.
        """
        found = self._delivery.open()
        known = None if self._head_file is None else self._head_file.read()
        if known is None or found is None:
            return self._new_chain(known or found)
        same_chain = known.chain == found.chain
        is_ahead = known.seq > found.seq if same_chain else not self._delivery.has(known)
        return self._new_chain(known if is_ahead else found)

    def _next_batch(self) -> list[dict[str, Any]]:
        """The next events, which stay queued until they are delivered; empty at the end."""
        with self._changed:
            while not self._events:
                if self._deadline is not None:
                    return []
                if not self._changed.wait(self._checkpoint_s):
                    return [internal_event(CHECKPOINT, _now_ms(), node_id=self._node_id)]
            return [self._events[n] for n in range(min(_BATCH_EVENTS, len(self._events)))]

    def _deliver(self, chain: Chain, batch: list[dict[str, Any]]) -> bool:
        """Deliver a batch, whatever time it takes; false if the sink has to stop before."""
        prepared = self._insist(self._delivery.prepare)
        if prepared is None:
            return False
        events = [*({**each, "node_id": self._node_id} for each in prepared), *batch]
        sealed = [(event, chain.seal(event)) for event in events]

        def deliver() -> bool:
            self._delivery.deliver(sealed)
            return True

        if self._insist(deliver) is None:
            return False
        with self._changed:
            # A checkpoint was never queued.
            if self._events and self._events[0] is batch[0]:
                for _ in batch:
                    self._events.popleft()
        self._keep_head(chain.head)
        return True

    def _keep_head(self, head: Head | None) -> None:
        if self._head_file is None or head is None:
            return
        try:
            self._head_file.write(head)
        except OSError as error:
            # The head of the batch before stays, which the next start takes for the last one.
            if not self._has_warned:
                log.warning("audit_head_not_written", sink=self.name, error=str(error))
            self._has_warned = True

    def _insist(self, work: Callable[[], T]) -> T | None:
        """The result of `work`, which is tried until it succeeds; None if the sink has to stop before."""
        began: float | None = None
        while True:
            try:
                result = work()
            except OSError as error:
                now = monotonic()
                if began is None:
                    began = now
                    log.warning("audit_sink_failed", sink=self.name, error=str(error))
                if self._deadline is not None and now >= self._deadline:
                    return None
                self._pause(min(max(_PAUSE_FIRST_S, now - began), _PAUSE_LIMIT_S))
                continue
            if began is not None:
                log.info("audit_sink_recovered", sink=self.name, seconds=round(monotonic() - began, 1))
            return result

    def _pause(self, seconds: float) -> None:
        """Wait; a stop ends the wait, an event does not: a server that is down is not asked for each one."""
        with self._changed:
            deadline = self._deadline
            if deadline is not None:
                seconds = min(seconds, max(0.0, deadline - monotonic()))
            self._changed.wait_for(lambda: self._deadline is not deadline, seconds)


def _now_ms() -> int:
    return int(time() * 1000)
