"""Queues of AMQP 0-9-1 (RabbitMQ): consuming as source, publishing with confirms as target. Uses aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed, reason
from penstock.bridge.mapping import AMQP, AMQP_PROPERTIES, KeyRule, from_amqp, to_amqp
from penstock.bridge.message import Bridged
from penstock.bridge.ports import Done

__all__ = ["LOGGERS", "AmqpSource", "AmqpTarget"]

#: the client library logs to these what it tries again, and raises the rest
LOGGERS: Final = ("aio_pika", "aiormq")

_CONNECT_S: Final = 10
_CONFIRM_S: Final = 30
#: the field has 16 bits
_PREFETCH_MAX: Final = 65_535


def _failures() -> tuple[type[BaseException], ...]:
    """What aio-pika raises if a connection or a channel is gone."""
    found: tuple[type[BaseException], ...] = import_module("aio_pika.exceptions").CONNECTION_EXCEPTIONS
    return (*found, TimeoutError, asyncio.InvalidStateError)


async def _open_queue(url: str, queue: str, prefetch: int | None) -> tuple[Any, Any, Any]:
    """The connection, its channel, and the queue, which must exist."""
    library, errors = import_module("aio_pika"), import_module("aio_pika.exceptions")
    # The password stays out of messages.
    where = urlsplit(url).hostname or "the address"
    try:
        connection = await library.connect(url, timeout=_CONNECT_S)
    except _failures() as error:
        raise ConnectionLost(f"no AMQP broker accepts the connection at {where} ({reason(error)})") from error
    try:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        if prefetch is not None:
            await channel.set_qos(prefetch_count=min(prefetch, _PREFETCH_MAX))
        return connection, channel, await channel.declare_queue(queue, passive=True)
    except errors.ChannelNotFoundEntity as error:
        await _close(connection)
        if "home node" in str(error):  # the queue exists on a node that is down
            raise ConnectionLost(f"cannot use queue {queue} at {where} ({reason(error)})") from error
        raise BridgeError(f"{where} has no queue {queue}: `rabbitmqctl list_queues` lists them") from error
    except _failures() as error:
        await _close(connection)
        raise ConnectionLost(f"cannot use queue {queue} at {where} ({reason(error)})") from error


async def _close(connection: Any) -> None:
    if connection is not None:
        with suppress(*_failures()):
            await asyncio.wait_for(connection.close(), _CONNECT_S)


class AmqpSource:
    """Consumes a queue. Messages that were not acknowledged return to the queue when the connection ends."""

    #: the broker's consumer_timeout is half an hour
    lock_s = None

    def __init__(self, url: str, queue: str, rule: KeyRule, limit: int) -> None:
        self._url = url
        self._queue_name = queue
        self._rule = rule
        self._limit = limit
        self._connection: Any = None
        self._channel: Any = None
        #: the consumers of the channel by tag, without those that the broker has cancelled
        self._consumers: Mapping[str, object] = {}
        self._tag = ""
        self._delivered: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def name(self) -> str:
        return f"AMQP queue {self._queue_name}"

    async def open(self) -> None:
        delivered: asyncio.Queue[Any] = asyncio.Queue()
        self._delivered = delivered
        opened = await _open_queue(self._url, self._queue_name, self._limit)
        self._connection, self._channel, queue = opened

        async def deliver(message: Any) -> None:
            delivered.put_nowait(message)

        def closed(*_: object) -> None:
            delivered.put_nowait(None)

        self._channel.close_callbacks.add(closed)
        self._connection.close_callbacks.add(closed)
        try:
            self._consumers = (await self._channel.get_underlay_channel()).consumers
            self._tag = await queue.consume(deliver)
        except _failures() as error:
            raise ConnectionLost(reason(error)) from error

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        try:
            found = [await asyncio.wait_for(self._delivered.get(), wait_s)]
        except TimeoutError:
            if self._tag not in self._consumers:
                # The queue was deleted, or its node is down. The channel stays open.
                raise ConnectionLost("the broker has cancelled the consumer") from None
            return []
        while len(found) < limit and not self._delivered.empty():
            found.append(self._delivered.get_nowait())
        if None in found:
            raise ConnectionLost("the connection is closed")
        return [self._bridged(message) for message in found]

    def _bridged(self, message: Any) -> Bridged:
        names = (*AMQP_PROPERTIES, "timestamp")
        return from_amqp(
            queue=self._queue_name,
            routing_key=message.routing_key or "",
            body=message.body,
            properties={name: getattr(message, name) for name in names},
            headers=message.headers,
            rule=self._rule,
            handle=message,
        )

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        try:
            for message in messages:
                await message.handle.ack()
        except _failures() as error:
            raise ConnectionLost(reason(error)) from error

    async def release(self, messages: Sequence[Bridged]) -> None:
        try:
            for message in messages:
                await message.handle.nack(requeue=True)
        except _failures() as error:
            raise ConnectionLost(reason(error)) from error

    async def extend(self, messages: Sequence[Bridged]) -> None:
        """Messages are not locked for a time."""

    async def is_drained(self) -> bool:
        try:
            queue = await self._channel.declare_queue(self._queue_name, passive=True)
        except _failures() as error:
            raise ConnectionLost(reason(error)) from error
        return not queue.declaration_result.message_count

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        await _close(connection)


class AmqpTarget:
    """Publishes to a queue through the default exchange. A message is stored when the broker confirms it."""

    system = AMQP

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue_name = queue
        self._connection: Any = None
        self._channel: Any = None
        self._waiting: set[asyncio.Task[None]] = set()
        #: a message was refused with others in flight, and the broker does not say which one
        self._one_by_one = False

    @property
    def name(self) -> str:
        return f"AMQP queue {self._queue_name}"

    async def open(self) -> None:
        self._connection, self._channel, _ = await _open_queue(self._url, self._queue_name, None)

    async def write(self, message: Bridged, done: Done) -> None:
        if self._connection is None or self._connection.is_closed or self._channel.is_closed:
            await _close(self._connection)
            try:
                await self.open()
            except ConnectionLost as error:
                done(WriteFailed(str(error), retriable=True))
                return
        if self._one_by_one:
            if self._waiting:
                await asyncio.wait(self._waiting)
            await self._publish(message, done, is_alone=True)
            return
        # Tasks begin in the order of their creation, and publish before they wait.
        task = asyncio.create_task(self._publish(message, done, is_alone=False))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _publish(self, message: Bridged, done: Done, *, is_alone: bool) -> None:
        library, errors = import_module("aio_pika"), import_module("aio_pika.exceptions")
        copy = to_amqp(message)
        outgoing = library.Message(
            copy.body, headers=copy.headers, delivery_mode=library.DeliveryMode.PERSISTENT, **copy.properties
        )
        try:
            exchange = self._channel.default_exchange
            await exchange.publish(outgoing, self._queue_name, mandatory=True, timeout=_CONFIRM_S)
        except errors.PublishError as error:  # returned: there is no such queue
            done(WriteFailed(f"no queue {self._queue_name} ({reason(error)})", retriable=False))
        except (TypeError, ValueError) as error:  # a header that AMQP cannot express
            done(WriteFailed(reason(error), retriable=False))
        except import_module("aiormq.exceptions").ChannelAccessRefused as error:
            done(WriteFailed(reason(error), retriable=False))
        except errors.ChannelPreconditionFailed as error:
            # Too large, for example. The broker closes the channel, so all writes in flight fail like this.
            self._one_by_one = True
            done(WriteFailed(reason(error), retriable=not is_alone))
        except _failures() as error:
            # A negative confirm, too: the queue has reached its limit for now.
            done(WriteFailed(reason(error), retriable=True))
        else:
            done(None)

    async def close(self) -> None:
        for task in self._waiting:
            task.cancel()
        connection, self._connection = self._connection, None
        await _close(connection)
