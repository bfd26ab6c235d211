"""Messages of NATS, AMQP and topics as `Bridged`, and back."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from penstock.bridge.errors import BridgeError
from penstock.bridge.message import (
    BRIDGE_ENCODING,
    BRIDGE_PLACE,
    BRIDGE_SOURCE,
    NULL,
    Bridged,
    copy_headers,
    foreign_headers,
    header,
)

__all__ = [
    "AMQP",
    "AMQP_PROPERTIES",
    "KAFKA",
    "NATS",
    "NATS_MESSAGE_ID",
    "AmqpCopy",
    "KeyRule",
    "NatsCopy",
    "from_amqp",
    "from_nats",
    "from_record",
    "key_rule",
    "text_headers",
    "to_amqp",
    "to_nats",
]

#: the systems, as a copy names the one that it came from (`BRIDGE_SOURCE`)
AMQP: Final = "amqp"
KAFKA: Final = "kafka"
NATS: Final = "nats"
#: JetStream discards a second message with the same id within the duplicate window of the stream
NATS_MESSAGE_ID: Final = "Nats-Msg-Id"
#: properties that headers carry, as `amqp-content-type` and so on
AMQP_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "type",
    "app_id",
    "priority",
    "expiration",
    "message_id",
)
#: those that a copy in the other direction gets back; an expiration would be counted from the copy on
_RETURNED: Final = ("content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")
_BASE64: Final = ".base64"
#: characters that names of headers cannot have in NATS
_NO_TOKEN: Final = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]")


class KeyRule(NamedTuple):
    """Where the key of a record comes from: a header, the natural key of the source, or nowhere."""

    natural: bool = False
    header: str | None = None

    def key(self, natural: str | None, headers: Iterable[tuple[str, bytes]]) -> bytes | None:
        if self.header is not None:
            return next((value for name, value in headers if name == self.header), None)
        return natural.encode() if self.natural and natural else None


def key_rule(text: str, natural: str) -> KeyRule:
    """Read `none`, `header:NAME`, or the name of the natural key."""
    if text == "none":
        return KeyRule()
    if text == natural:
        return KeyRule(natural=True)
    kind, _, name = text.partition(":")
    if kind == "header" and name:
        return KeyRule(header=name)
    raise BridgeError(f"--key {text!r} is not one of none, {natural}, header:NAME")


def from_nats(
    *,
    stream: str,
    created_ms: int,
    sequence: int,
    subject: str,
    data: bytes,
    headers: Mapping[str, str] | None,
    time_ms: int,
    rule: KeyRule,
    handle: Any,
) -> Bridged:
    """A message of a JetStream stream. Its id has the stream's creation time: a new stream counts from 1."""
    found = [(name, value.encode()) for name, value in (headers or {}).items()]
    return Bridged(
        body=_decoded(data, found),
        system=NATS,
        place=subject,
        id=f"{stream}@{created_ms}:{sequence}",
        has_unique_id=True,
        key=rule.key(subject, found),
        headers=foreign_headers(found),
        time_ms=time_ms,
        origin=header(found, BRIDGE_SOURCE),
        origin_place=header(found, BRIDGE_PLACE),
        handle=handle,
    )


def from_amqp(
    *,
    queue: str,
    routing_key: str,
    body: bytes,
    properties: Mapping[str, Any],
    headers: Mapping[str, Any] | None,
    rule: KeyRule,
    handle: Any,
) -> Bridged:
    """A message of a queue. Its id is the publisher's message_id: AMQP has no other."""
    found = [(name, _bytes(value)) for name, value in (headers or {}).items()]
    described = [
        (f"amqp-{name.replace('_', '-')}", _bytes(properties[name]))
        for name in AMQP_PROPERTIES
        if properties.get(name)
    ]
    described.append(("amqp-routing-key", routing_key.encode()))
    time = properties.get("timestamp")
    message_id = properties.get("message_id")
    return Bridged(
        body=_decoded(body, found),
        system=AMQP,
        place=queue,
        id=None if not message_id else str(message_id),
        key=rule.key(routing_key, found),
        headers=(*foreign_headers(found), *described),
        time_ms=round(time.timestamp() * 1000) if isinstance(time, datetime) else None,
        origin=header(found, BRIDGE_SOURCE),
        origin_place=header(found, BRIDGE_PLACE),
        handle=handle,
    )


def from_record(
    *,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    time_ms: int | None,
    handle: Any,
) -> Bridged:
    """A record of a topic. Its id is its position."""
    found = list(headers)
    return Bridged(
        body=value,
        system=KAFKA,
        place=topic,
        id=f"{topic}-{partition}:{offset}",
        has_unique_id=True,
        key=key,
        headers=foreign_headers(found),
        time_ms=time_ms,
        origin=header(found, BRIDGE_SOURCE),
        origin_place=header(found, BRIDGE_PLACE),
        handle=handle,
    )


class NatsCopy(NamedTuple):
    """A message to publish to JetStream."""

    data: bytes
    headers: dict[str, str]


def to_nats(message: Bridged) -> NatsCopy:
    headers = {_NO_TOKEN.sub("_", name): value for name, value in text_headers(copy_headers(message)).items()}
    if message.id is not None:
        headers[NATS_MESSAGE_ID] = message.id
    if message.body is None:
        headers[BRIDGE_ENCODING] = NULL
    return NatsCopy(message.body or b"", headers)


class AmqpCopy(NamedTuple):
    """A message to publish to an exchange."""

    body: bytes
    properties: dict[str, Any]
    headers: dict[str, str]


def to_amqp(message: Bridged) -> AmqpCopy:
    headers = text_headers(copy_headers(message))
    if message.body is None:
        headers[BRIDGE_ENCODING] = NULL
    properties: dict[str, Any] = {}
    for name in _RETURNED:
        value = headers.pop(f"amqp-{name.replace('_', '-')}", None)
        if value is not None:
            properties[name] = value
    properties["message_id"] = message.id
    return AmqpCopy(message.body or b"", properties, headers)


def text_headers(headers: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Headers as one text per name: the last of a name wins, bytes that are no text are base64."""
    found: dict[str, str] = {}
    for name, value in headers:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = "\n"
        if "\n" in text or "\r" in text or text != text.strip():
            found[name + _BASE64] = base64.b64encode(value).decode()
        else:
            found[name] = text
    return found


def _decoded(body: bytes, headers: Iterable[tuple[str, bytes]]) -> bytes | None:
    return None if header(headers, BRIDGE_ENCODING) == NULL else body


def _bytes(value: Any) -> bytes:
    """The value of an AMQP header as bytes. Tables and lists become JSON."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        return value.isoformat().encode()
    return json.dumps(value, default=str).encode()
