"""JetStream streams of NATS: a durable pull consumer as source, publishing as target. Uses nats-py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed, reason
from penstock.bridge.mapping import NATS, KeyRule, NatsCopy, from_nats, to_nats
from penstock.bridge.message import Bridged
from penstock.bridge.ports import Done

__all__ = ["LOGGERS", "NatsServers", "NatsSource", "NatsTarget"]

#: the client library logs to these what it tries again, and raises the rest
LOGGERS: Final = ("nats",)

_CONNECT_S: Final = 5
_FLUSH_S: Final = 10
_PUBLISH_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class NatsServers:
    """How to reach NATS: URLs with commas between them, and a file with credentials."""

    urls: str
    credentials: str | None = None

    async def connect(self) -> Any:
        """A client that tries each server a few times after a failure, and is closed then."""
        nats = import_module("nats")
        options: dict[str, Any] = {} if self.credentials is None else {"user_credentials": self.credentials}
        try:
            return await nats.connect(
                [url.strip() for url in self.urls.split(",")],
                name="penstock-bridge",
                connect_timeout=_CONNECT_S,
                max_reconnect_attempts=2,
                reconnect_time_wait=1,
                error_cb=_ignore,
                **options,
            )
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise ConnectionLost(f"no NATS server answers at {self._shown} ({reason(error)})") from error

    @property
    def _shown(self) -> str:
        """The URLs without users, passwords and tokens, which stay out of messages."""
        return ",".join(re.sub(r"//.*@", "//", url.strip()) for url in self.urls.split(","))


async def _ignore(error: Exception) -> None:
    """Errors are reported by the call that fails."""


async def _close(client: Any) -> None:
    if client is not None:
        try:
            await client.close()
        except (OSError, TimeoutError, import_module("nats").errors.Error):
            return


async def _stream(client: Any, name: str) -> tuple[Any, Any]:
    """The JetStream context, and the description of a stream."""
    errors = import_module("nats.js.errors")
    context = client.jetstream()
    try:
        return context, await context.stream_info(name)
    except errors.NotFoundError as error:
        raise BridgeError(f"NATS has no stream {name}: `nats stream ls` lists them") from error
    except ValueError as error:
        raise BridgeError(f"{name!r} is not a name of a stream ({error})") from error
    except errors.ServiceUnavailableError as error:
        raise ConnectionLost(f"JetStream is not available ({reason(error)})") from error
    except (TimeoutError, import_module("nats").errors.Error) as error:
        raise ConnectionLost(f"JetStream does not answer ({reason(error)})") from error


def _accepts(patterns: Sequence[str] | None, subject: str) -> bool:
    """Returns true if one of the patterns of a stream matches the subject."""
    return any(_matches(pattern.split("."), subject.split(".")) for pattern in patterns or ())


def _matches(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    if pattern[-1] == ">":
        pattern = pattern[:-1]
        if len(tokens) <= len(pattern):
            return False
        tokens = tokens[: len(pattern)]
    return len(pattern) == len(tokens) and all(
        each in ("*", token) for each, token in zip(pattern, tokens, strict=True)
    )


def _defect(config: Any, subject: str | None) -> str | None:
    """Why a bridge would lose messages, or copy other ones, with this consumer. None if it would not."""
    copied = ", ".join(config.filter_subjects or ()) or config.filter_subject or None
    if copied != subject:
        return f"has subject {copied or 'any'}, not {subject or 'any'}"
    if config.deliver_subject:
        return "is a push consumer"
    if config.ack_policy != "explicit":
        # With `all`, an acknowledgement would include earlier messages that are not yet written.
        policy = getattr(config.ack_policy, "value", config.ack_policy)
        return f"has acknowledgement policy {policy}, not explicit"
    if config.headers_only:
        return "delivers only headers"
    if (config.max_deliver or -1) > 0:
        return f"drops messages after {config.max_deliver} deliveries"
    return None


class NatsSource:
    """Reads a stream through a durable pull consumer, which remembers what was acknowledged."""

    def __init__(
        self, servers: NatsServers, stream: str, durable: str, subject: str | None, rule: KeyRule, limit: int
    ) -> None:
        self._servers = servers
        self._stream = stream
        self._durable = durable
        self._subject = subject
        self._rule = rule
        self._limit = limit
        self._client: Any = None
        self._context: Any = None
        self._subscription: Any = None
        self._created_ms = 0
        self._was_open = False
        self.lock_s: float | None = None

    @property
    def name(self) -> str:
        return f"NATS stream {self._stream}"

    async def open(self) -> None:
        self._client = await self._servers.connect()
        self._context, info = await _stream(self._client, self._stream)
        created = info.created
        self._created_ms = 0 if created is None else round(created.timestamp() * 1000)
        nats = import_module("nats")
        try:
            consumer = await self._consumer()
            self.lock_s = consumer.config.ack_wait or None
            self._subscription = await self._context.pull_subscribe_bind(
                consumer=self._durable, stream=self._stream
            )
        except (TimeoutError, nats.errors.Error) as error:
            raise ConnectionLost(f"cannot read stream {self._stream} ({reason(error)})") from error
        self._was_open = True

    async def _consumer(self) -> Any:
        """The durable consumer. Only the first connection creates it: a new one would deliver everything."""
        errors, api = import_module("nats.js.errors"), import_module("nats.js.api")
        try:
            found = await self._context.consumer_info(self._stream, self._durable)
            if defect := _defect(found.config, self._subject):
                raise BridgeError(
                    f"the consumer {self._durable} of stream {self._stream} {defect}: "
                    "choose another name with --durable"
                )
            return found
        except errors.NotFoundError as error:
            if self._was_open:
                raise BridgeError(
                    f"the consumer {self._durable} of stream {self._stream} is gone: start the bridge again "
                    "to copy the stream from its beginning"
                ) from error
        config = api.ConsumerConfig(
            durable_name=self._durable,
            ack_policy=api.AckPolicy.EXPLICIT,
            filter_subject=self._subject,
            # A message that cannot be written for long must not be dropped.
            max_deliver=-1,
            max_ack_pending=2 * self._limit,
            description="penstock bridge",
        )
        return await self._context.add_consumer(self._stream, config)

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        nats = import_module("nats")
        try:
            found = await self._subscription.fetch(limit, timeout=wait_s)
        except TimeoutError:
            found = []
        except nats.errors.Error as error:
            raise ConnectionLost(reason(error)) from error
        if not found and self._client.is_closed:
            raise ConnectionLost("the connection is closed")
        return [self._bridged(message) for message in found]

    def _bridged(self, message: Any) -> Bridged:
        metadata = message.metadata
        return from_nats(
            stream=self._stream,
            created_ms=self._created_ms,
            sequence=metadata.sequence.stream,
            subject=message.subject,
            data=message.data,
            headers=message.headers,
            time_ms=round(metadata.timestamp.timestamp() * 1000),
            rule=self._rule,
            handle=message,
        )

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        """Send the acknowledgements, and wait until the server has them."""
        await self._reply(messages, "ack")

    async def release(self, messages: Sequence[Bridged]) -> None:
        await self._reply(messages, "nak")

    async def extend(self, messages: Sequence[Bridged]) -> None:
        await self._reply(messages, "in_progress")

    async def _reply(self, messages: Sequence[Bridged], kind: str) -> None:
        nats = import_module("nats")
        try:
            for message in messages:
                await getattr(message.handle, kind)()
            await self._client.flush(timeout=_FLUSH_S)
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise ConnectionLost(reason(error)) from error

    async def is_drained(self) -> bool:
        nats = import_module("nats")
        try:
            info = await self._context.consumer_info(self._stream, self._durable)
        except (TimeoutError, nats.errors.Error):
            return False
        return not info.num_pending and not info.num_ack_pending

    async def close(self) -> None:
        client, self._client = self._client, None
        await _close(client)


class NatsTarget:
    """Publishes to a subject of a stream. The stream discards a second copy within its duplicate window."""

    system = NATS

    def __init__(self, servers: NatsServers, stream: str, subject: str) -> None:
        self._servers = servers
        self._stream = stream
        self._subject = subject
        self._client: Any = None
        self._context: Any = None
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return f"NATS subject {self._subject}"

    async def open(self) -> None:
        client = await self._servers.connect()
        try:
            context, info = await _stream(client, self._stream)
            if not _accepts(info.config.subjects, self._subject):
                subjects = ", ".join(info.config.subjects or ()) or "none"
                raise BridgeError(
                    f"stream {self._stream} does not store subject {self._subject} (its subjects: {subjects})"
                )
        except BridgeError:
            await _close(client)
            raise
        self._client, self._context = client, context

    async def write(self, message: Bridged, done: Done) -> None:
        if self._client is None or self._client.is_closed:
            try:
                await self.open()
            except ConnectionLost as error:
                done(WriteFailed(str(error), retriable=True))
                return
        # Tasks begin in the order of their creation, and publish before they wait.
        task = asyncio.create_task(self._publish(to_nats(message), done))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _publish(self, copy: NatsCopy, done: Done) -> None:
        nats, errors = import_module("nats"), import_module("nats.js.errors")
        try:
            # Not publish_async: nats-py does not pass the stream's refusals on to its future.
            await self._context.publish(
                self._subject, copy.data, timeout=_PUBLISH_S, stream=self._stream, headers=copy.headers
            )
        except (nats.errors.MaxPayloadError, nats.errors.BadSubjectError, errors.BadRequestError) as error:
            done(WriteFailed(reason(error), retriable=False))
        except (OSError, TimeoutError, nats.errors.Error) as error:
            done(WriteFailed(reason(error), retriable=True))
        else:
            done(None)

    async def close(self) -> None:
        for task in self._waiting:
            task.cancel()
        client, self._client = self._client, None
        await _close(client)
