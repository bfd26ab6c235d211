"""Records to send, deliveries, and consumed messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from penstock.client.errors import MisusedClient, SerializationError
from penstock.client.serializers import Decode
from penstock.model.delays import DELIVER_AT_HEADER
from penstock.model.ids import TopicPartition

__all__ = [
    "Delivery",
    "Headers",
    "Message",
    "Record",
    "as_header_list",
    "as_milliseconds",
    "delayed",
    "moment",
]

#: A name may occur more than once; a mapping cannot express that. A value may be missing (None).
Headers: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | str | None]
_UNREAD = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A message to send, for `Producer.send_batch`.

    `delay` in seconds and `deliver_at` are for delay topics: the broker moves the message to the target topic
    then.
    """

    value: Any
    key: Any = None
    headers: Headers = ()
    timestamp: datetime | None = None
    partition: int | None = None
    delay: float | None = None
    deliver_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.delay is not None or self.deliver_at is not None:
            object.__setattr__(self, "headers", delayed(self.headers, self.delay, self.deliver_at))


class Delivery(NamedTuple):
    """The position of an acknowledged message; with `acks=0` there is no response, and `offset` is None."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int

    @property
    def timestamp(self) -> datetime | None:
        return moment(self.timestamp_ms)


class Message:
    """A message as it was read. `key` and `value` are decoded when they are first looked at, so that one that
    cannot be decoded fails where it is used; `raw_key` and `raw_value` are the bytes themselves."""

    __slots__ = ("_decode_key", "_decode_value", "_value", "offset", "partition", "raw", "topic")

    def __init__(self, message: Any, decode_key: Decode, decode_value: Decode) -> None:
        #: librdkafka's own
        self.raw = message
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._value: Any = _UNREAD
        self.topic: str = message.topic()
        self.partition: int = message.partition()
        self.offset: int = message.offset()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def raw_key(self) -> bytes | None:
        key: bytes | None = self.raw.key()
        return key

    @property
    def raw_value(self) -> bytes | None:
        value: bytes | None = self.raw.value()
        return value

    @property
    def key(self) -> Any:
        return self._decoded("key", self.raw_key, self._decode_key)

    @property
    def value(self) -> Any:
        if self._value is _UNREAD:
            self._value = self._decoded("value", self.raw_value, self._decode_value)
        return self._value

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.raw.headers() or []

    @property
    def timestamp(self) -> datetime | None:
        return moment(self.raw.timestamp()[1])

    def _decoded(self, what: str, raw: bytes | None, decode: Decode) -> Any:
        if raw is None:
            return None
        try:
            return decode(raw)
        except Exception as e:
            raise SerializationError(
                f"the {what} at {self.topic_partition} offset {self.offset} cannot be decoded ({e}): "
                f"check {what}_serializer, or use raw_{what}"
            ) from e

    def __repr__(self) -> str:
        return f"Message({self.topic_partition} offset {self.offset}, key {self.raw_key!r})"


def delayed(headers: Headers, delay: float | None, deliver_at: datetime | None) -> Headers:
    """Headers with the time from which on a message of a delay topic is delivered."""
    if delay is None and deliver_at is None:
        return headers
    if delay is not None and deliver_at is not None:
        raise MisusedClient("delay and deliver_at exclude each other: pass one")
    if deliver_at is not None and deliver_at.tzinfo is None:
        raise MisusedClient("deliver_at needs a time zone, for example datetime.now(UTC)")
    at = deliver_at or datetime.now(UTC) + timedelta(seconds=delay or 0.0)
    return [*as_header_list(headers), (DELIVER_AT_HEADER, str(as_milliseconds(at)).encode())]


def as_header_list(headers: Headers) -> list[tuple[str, bytes | None]]:
    if isinstance(headers, Mapping):
        return [(name, v.encode() if isinstance(v, str) else v) for name, v in headers.items()]
    return list(headers)


def as_milliseconds(timestamp: datetime) -> int:
    return round(timestamp.timestamp() * 1000)


def moment(milliseconds: int) -> datetime | None:
    return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1000, UTC)
