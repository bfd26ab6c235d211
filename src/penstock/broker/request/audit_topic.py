"""Writes audit events to the topic `__audit`.

One task takes events out of the queue in order and appends them to a partition that this broker leads, or
sends them to the leader of another one. An event leaves the queue when it is committed. After a failure the
same events are sent again, so an event may be in the topic twice. A batch that the topic refuses for good is
halved; an event that it refuses alone is dropped and counted, so that it does not hold up the others.

Events are linked to a chain (`penstock.audit.chain`) in the order of the queue. An event that is sent again
is the same, byte by byte.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.audit.chain import Chain, Head, parse_head
from penstock.audit.internal_events import CHECKPOINT, STOPPED, internal_event
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.ids import AUDIT_TOPIC
from penstock.ports import Clock
from penstock.records.record import Record, build_batch

__all__ = ["AuditTopic", "audit_topic_of"]

log = get_logger("audit")
#: events of one batch
_BATCH_EVENTS: Final = 500
#: errors of the batch itself: the same batch would be refused again
_REFUSED: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
)
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LIMIT_S: Final = 5.0
#: how long a stopping broker goes on writing
_DRAIN_S: Final = 1.0
#: how often the last event is remembered
_REMEMBER_S: Final = 10.0


def audit_topic_of(config: BrokerConfig) -> NewTopic:
    """The audit topic as it is created on first use."""
    alone = config.internal_endpoint is None
    replicas = 1 if alone else config.penstock_audit_topic_replication_factor
    return NewTopic(
        AUDIT_TOPIC,
        config.penstock_audit_topic_num_partitions,
        replicas,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": str(config.penstock_audit_topic_retention_ms),
            "min.insync.replicas": str(min(2, replicas)),
            "unclean.leader.election.enable": "false",
        },
    )


class AuditTopic:
    """The task that writes the queued events of one broker."""

    def __init__(
        self,
        queue: AuditQueue,
        topic: InternalTopic,
        image: ClusterImage,
        node_id: int,
        clock: Clock,
        writer: TopicWriter,
        *,
        chain: Chain,
        keep_head: Callable[[Head], Awaitable[None]] | None = None,
        checkpoint_s: float = 0.0,
    ) -> None:
        """`keep_head` remembers the last committed event for the next start of the broker."""
        self._queue = queue
        self._topic = topic
        self._image = image
        self._node_id = node_id
        self._clock = clock
        self._writer = writer
        self._chain = chain
        self._keep_head = keep_head
        self._checkpoint_s = checkpoint_s or None
        #: the lines of the first events of the queue
        self._sealed: deque[bytes] = deque()
        #: the last committed event, and the one that is remembered
        self._committed: Head | None = None
        self._kept: Head | None = None
        self._kept_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write queued events for a limited time, then end."""
        if self._task is None:
            return
        self._stopping = True
        if self._chain.head is not None:
            self._queue.put(internal_event(STOPPED, self._clock.now_ms()))
        await self._queue.emptied(_DRAIN_S)
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._remember(at_once=True)
        if len(self._queue):
            log.warning("audit_events_lost", events=len(self._queue))

    async def _run(self) -> None:
        pause_s, limit = _PAUSE_FIRST_S, _BATCH_EVENTS
        while True:
            await self._filled()
            events = self._queue.first(limit)
            code = await self._attempt(events)
            if code is ErrorCode.NONE:
                self._commit(len(events))
                await self._remember()
                pause_s, limit = _PAUSE_FIRST_S, min(2 * limit, _BATCH_EVENTS)
            elif code in _REFUSED and len(events) > 1:
                limit = len(events) // 2
            elif code in _REFUSED:
                self._drop(events[0], code)
                # An append to a partition of this broker may return without a turn of the event loop.
                await asyncio.sleep(0)
            else:
                if pause_s < _PAUSE_LIMIT_S <= 2 * pause_s:
                    log.warning("audit_events_delayed", events=len(self._queue))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_LIMIT_S)

    async def _filled(self) -> None:
        """Wait for an event. A chain that has none for a time gets a checkpoint, unless it ends."""
        while True:
            try:
                async with asyncio.timeout(self._checkpoint_s):
                    await self._queue.filled()
                return
            except TimeoutError:
                # The time may be over in the same turn of the event loop in which the broker stops.
                if self._chain.head is not None and not self._stopping:
                    self._queue.put(internal_event(CHECKPOINT, self._clock.now_ms()))

    def _seal(self, events: list[dict[str, Any]]) -> list[bytes]:
        """The lines of the first events of the queue, each linked to the one before."""
        while len(self._sealed) < len(events):
            self._sealed.append(self._chain.seal({**events[len(self._sealed)], "node_id": self._node_id}))
        return [self._sealed[n] for n in range(len(events))]

    def _commit(self, count: int) -> None:
        """The first events are in the topic."""
        self._queue.remove(count)
        for _ in range(count):
            last = self._sealed.popleft()
        self._committed = parse_head(json.loads(last))

    async def _remember(self, at_once: bool = False) -> None:
        """Keep the last committed event for the next start, after the first one and then at intervals."""
        head, now = self._committed, self._clock.monotonic() if self._keep_head else 0.0
        if self._keep_head is None or head is None or head == self._kept:
            return
        if not at_once and self._kept is not None and now - self._kept_at < _REMEMBER_S:
            return
        self._kept, self._kept_at = head, now
        try:
            await self._keep_head(head)
        except OSError as e:
            log.warning("audit_head_not_written", sink="topic", error=str(e))

    def _drop(self, event: dict[str, Any], code: ErrorCode) -> None:
        self._queue.drop_first()
        # No event behind it was ever appended: they follow the last committed one.
        self._sealed.clear()
        self._chain.rewind(self._committed)
        log.warning(
            "audit_event_refused",
            audit_event=event.get("event"),
            principal=event["principal"],
            error=code.name,
            hint=f"check max.message.bytes of {AUDIT_TOPIC}",
        )

    async def _attempt(self, events: list[dict[str, Any]]) -> ErrorCode | None:
        """The result of one attempt, None if there was no response."""
        try:
            code = await self._write(events)
        except (PenstockError, TimeoutError) as e:
            log.debug("audit_events_not_written", error=str(e))
            return None
        if code is not ErrorCode.NONE:
            log.debug("audit_events_not_written", error=code.name, events=len(events))
        return code

    async def _write(self, events: list[dict[str, Any]]) -> ErrorCode:
        known = self._image.topics.get(AUDIT_TOPIC)
        if known is None:
            await self._topic.ensure()
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leaders = {index: partition.leader for index, partition in known.partitions.items()}
        own = [index for index, leader in leaders.items() if leader == self._node_id]
        index = own[0] if own else next((i for i, leader in leaders.items() if leader >= 0), 0)
        return await self._writer.write(AUDIT_TOPIC, index, self._batch(events))

    def _batch(self, events: list[dict[str, Any]]) -> bytes:
        return bytes(
            build_batch(
                Record(n, event["time"], str(event["principal"]).encode(), line)
                for n, (event, line) in enumerate(zip(events, self._seal(events), strict=True))
            )
        )
