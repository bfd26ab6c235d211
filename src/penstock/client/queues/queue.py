"""Consumes topics as a queue: each message goes to one member of the group, until a member accepts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias
from uuid import uuid4

from penstock.client.errors import ClientClosed, MisusedClient
from penstock.client.producer import Producer
from penstock.client.queues.configs import set_group_configs
from penstock.client.queues.connections import Connections, security_from
from penstock.client.queues.fetches import FetchLimits
from penstock.client.queues.member import Member, MemberSettings
from penstock.client.queues.membership import Membership
from penstock.client.queues.message import Decoders, LockState, QueueMessage
from penstock.client.queues.running import QueueHandler, QueueJob, QueueRun
from penstock.client.retrying import RetryPolicy
from penstock.client.serializers import BYTES, Decode, Serializer, decoder
from penstock.client.settings import security_of
from penstock.client.tracing import CurrentSpan, Tracing, configured
from penstock.model.addresses import parse_bootstrap
from penstock.model.ids import TopicPartition

__all__ = ["AcknowledgementMode", "Queue"]

_log = logging.getLogger("penstock.client")
AcknowledgementMode: TypeAlias = Literal["implicit", "explicit"]
#: as many attempts as a group has deliveries by default
_RETRY = RetryPolicy(attempts=5, backoff=0.5, max_backoff=30.0)


class Queue:
    """A member of a share group. Use it in `async with`, or call `start` and `close`.

    A message is locked for this member until it is acknowledged, or until the visibility timeout (Kafka's
    record lock duration). Locks of delivered messages are renewed for `renew_for` seconds.

    With `acknowledgement="implicit"` a message is accepted when the next one is requested, or when the `async
    with` ends without an error, unless it has an outcome by then. With `"explicit"` it needs an outcome.

    `reset` (where a new group starts) is set as config of the group unless the group has one.
    `visibility_timeout`, `max_deliveries` and `group_config` are set if they differ. None leaves a config
    as it is.
    """

    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        group: str,
        acknowledgement: AcknowledgementMode = "implicit",
        reset: str | None = "earliest",
        visibility_timeout: float | None = None,
        max_deliveries: int | None = None,
        group_config: Mapping[str, str] | None = None,
        key_serializer: Serializer | Decode = BYTES,
        value_serializer: Serializer | Decode = BYTES,
        max_batch: int = 500,
        renew_for: float = 600.0,
        fetch_max_wait: float = 0.5,
        connect_timeout: float | None = 10.0,
        client_id: str = "penstock",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`max_batch` is the most messages that are acquired at a time. `config` takes security settings
        under librdkafka's names."""
        # Longer than other functions because it has one parameter per setting.
        if not topics or max_batch < 1 or acknowledgement not in ("implicit", "explicit"):
            raise MisusedClient(
                "a queue needs topics, max_batch of at least 1, and 'implicit' or 'explicit' acknowledgement"
            )
        try:
            parse_bootstrap(bootstrap)
        except ValueError as e:
            raise MisusedClient(f"bootstrap {e}") from None
        self._bootstrap = bootstrap
        self._group = group
        self._topics = topics
        self._is_implicit = acknowledgement == "implicit"
        self._initial = {} if reset is None else {"share.auto.offset.reset": reset}
        self._configs = _group_configs(visibility_timeout, max_deliveries, group_config or {})
        self._max_batch = max_batch
        self._connect_timeout = connect_timeout
        self._client_id = client_id
        self._settings = dict(config or {})
        self._member_settings = MemberSettings(
            limits=FetchLimits(),
            decoders=Decoders(decoder(key_serializer), decoder(value_serializer)),
            max_wait_s=fetch_max_wait,
            renew_for_s=renew_for,
        )
        self._connections: Connections | None = None
        self._member: Member | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._delivered: list[QueueMessage] = []
        #: how many messages a reader waits for; 0 without one
        self._demand = 0
        self._run_limit = 0
        self._run: QueueRun | None = None
        self._tracing: Tracing | None = None
        self._span = CurrentSpan()

    # -- life

    async def start(self) -> None:
        """Connect, set the configs of the group, and join it.

        `NotReachable` if no broker responds, `AuthenticationFailed` if none accepts the client.
        """
        assert self._connections is None, "this queue is already started"
        self._tracing = configured()
        connections = Connections(self._bootstrap, self._client_id, security_from(self._settings))
        self._connections = connections
        try:
            await connections.refresh(self._topics, self._connect_timeout)
            await set_group_configs(
                connections, self._group, self._configs, self._initial, self._connect_timeout
            )
        except BaseException:
            connections.close()
            raise
        membership = Membership(self._group, str(uuid4()), self._topics)
        self._member = Member(connections, membership, self._topics, self._member_settings, self._wants)
        self._member.start()

    def stop(self) -> None:
        """End loops that read, and let `run` return when its handlers have finished. For signal handlers."""
        self._closing = True
        if self._run is not None:
            self._run.stop()
        if self._member is not None:
            self._member.interrupt()

    async def close(self) -> None:
        """Finish the handlers of `run`, send the acknowledgements, release the rest and leave the group.

        A handler that closes its queue stops it; `run` closes it then. Closing twice is harmless.
        """
        self.stop()
        if self._run is not None:
            if self._run.is_handling_here:
                return
            await self._run.ended.wait()
        member, self._member = self._member, None
        if member is not None and self._connections is not None:
            self._span.end()
            try:
                await member.close()
            finally:
                self._connections.close()
                self._closed.set()
        elif self._connections is not None:
            await self._closed.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._settle()
        else:
            self._span.end(kind, error, trace)
        await self.close()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this member reads; other members may read them, too."""
        member = self._running()
        names = {place: member.topic_name(place) for place in member.assignment}
        return {TopicPartition(name, place.partition) for place, name in names.items() if name is not None}

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QueueMessage:
        self._settle()
        message = await self._next(self._max_batch)
        if message is None:
            raise StopAsyncIteration
        self._delivered.append(message)
        self._span.begin(self._tracing, message)
        return message

    async def poll(self, max_messages: int | None = None, *, wait: float = 1.0) -> list[QueueMessage]:
        """The available messages, as soon as there are any; an empty list after `wait` seconds."""
        self._settle()
        limit = min(max_messages or self._max_batch, self._max_batch)
        messages: list[QueueMessage] = []
        first = None
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                first = await self._next(limit)
        while first is not None:
            messages.append(first)
            first = self._running().next() if len(messages) < limit else None
        self._delivered += messages
        return messages

    async def _next(self, demand: int) -> QueueMessage | None:
        """The next message; None when the queue is closed."""
        member = self._running()
        while True:
            message = None if self._closing else member.next()
            if message is not None or self._closing:
                return message
            if member.failure is not None:
                raise member.failure
            self._demand = demand
            try:
                await member.wait()
            finally:
                self._demand = 0

    def _settle(self) -> None:
        """Accept the delivered messages without an outcome, in the implicit mode."""
        self._span.end()
        if self._is_implicit:
            for message in self._delivered:
                if message.is_held:
                    message.accept()
                elif message.state is LockState.LOST:
                    _log.warning("%r was processed after its lock was lost: it is delivered again", message)
        self._delivered.clear()

    def _wants(self, held: int) -> int:
        """How many more messages to fetch while `held` have no outcome."""
        if self._closing or self._member is None:
            return 0
        if self._run_limit:
            return self._run_limit - held
        return 0 if self._member.buffer else self._demand

    def _running(self) -> Member:
        if self._member is None:
            if self._connections is None:
                raise MisusedClient("this queue has not started: use `async with`, or await start()")
            raise ClientClosed("queue")
        return self._member

    # -- handling

    async def run(
        self,
        handler: QueueHandler,
        *,
        concurrency: int = 16,
        prefetch: int | None = None,
        retry: RetryPolicy | None = None,
        dead_letter: str | None = None,
        shutdown_timeout: float = 30.0,
    ) -> None:
        """Call the handler with each message, up to `concurrency` at a time, until the queue is stopped.

        `prefetch` messages wait for a free handler, as many as there are handlers by default. Pass 0 if
        messages take long: other members can have them then. With several brokers up to one more message
        per broker waits.

        A message is accepted when its handler returns, unless the handler has chosen another outcome. If the
        handler raises, the message is released after the backoff of `retry`. After `retry.attempts`
        deliveries it goes to the topic `dead_letter`, or it is rejected if there is none. Handlers that run
        for longer than `shutdown_timeout` after the queue was stopped are cancelled, and their messages
        released.
        """
        member = self._running()
        if concurrency < 1 or (prefetch or 0) < 0:
            raise MisusedClient("concurrency must be at least 1, and prefetch at least 0")
        if self._run is not None:
            raise MisusedClient("this queue is already running a handler: make another queue")
        self._settle()
        async with AsyncExitStack() as stack:
            letters = None
            if dead_letter is not None:
                sender = Producer(self._bootstrap, config=security_of(self._settings))
                letters = await stack.enter_async_context(sender), dead_letter
            job = QueueJob(
                handler=handler,
                concurrency=concurrency,
                retry=retry or _RETRY,
                group=self._group,
                dead_letters=letters,
                tracing=self._tracing,
                shutdown_timeout_s=shutdown_timeout,
            )
            self._run_limit = concurrency + (concurrency if prefetch is None else prefetch)
            self._run = QueueRun(job, lambda: self._next(self._max_batch), member.wake)
            try:
                await self._run.run()
            finally:
                self._run, self._run_limit = None, 0


def _group_configs(
    visibility_timeout: float | None, max_deliveries: int | None, others: Mapping[str, str]
) -> dict[str, str]:
    configs = dict(others)
    if visibility_timeout is not None:
        configs["share.record.lock.duration.ms"] = str(round(visibility_timeout * 1000))
    if max_deliveries is not None:
        configs["share.delivery.count.limit"] = str(max_deliveries)
    return configs
