"""Messages as lines of text, both ways: plain values, key and value, or JSON objects.

The JSON format is lossless: bytes that are not UTF-8 are base64 in `key_base64` and `value_base64`,
null is null, and headers keep their order. `produce --format json` reads what `consume --format json` prints.
"""

from __future__ import annotations

import base64
import binascii
import json
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.cli.failure import Failure


class MessageFormat(StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


class Outgoing(NamedTuple):
    """A message to produce; with partition -1 the client chooses, timestamp 0 means now."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1
    timestamp_ms: int = 0


def parse_line(line: bytes, format: MessageFormat, separator: bytes) -> Outgoing:
    """One line of input, without its line break; raises Failure."""
    if format is MessageFormat.JSON:
        return _parse_json(line)
    if format is MessageFormat.VALUE:
        return Outgoing(None, line, [])
    key, found, value = line.partition(separator)
    if not found:
        raise Failure(f"no {separator.decode()!r} between key and value: see --key-separator")
    return Outgoing(key, value, [])


def format_message(message: Any, format: MessageFormat, separator: bytes) -> bytes:
    """A consumed message as one line, without the line break."""
    if format is MessageFormat.JSON:
        return json.dumps(_as_json(message), ensure_ascii=False, separators=(",", ":")).encode()
    value: bytes = message.value() or b""
    if format is MessageFormat.VALUE:
        return value
    return b"".join((message.key() or b"", separator, value))


def _as_json(message: Any) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    headers = [_text_or_base64("value", value, {"name": name}) for name, value in message.headers() or ()]
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        "timestamp_type": {1: "CreateTime", 2: "LogAppendTime"}.get(kind),
    }
    _text_or_base64("key", message.key(), document)
    _text_or_base64("value", message.value(), document)
    return {**document, "headers": headers}


def _text_or_base64(name: str, data: bytes | None, into: dict[str, Any]) -> dict[str, Any]:
    try:
        into[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        into[f"{name}_base64"] = base64.b64encode(data).decode()
    return into


def _parse_json(line: bytes) -> Outgoing:
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        return Outgoing(
            key=_bytes_of("key", document),
            value=_bytes_of("value", document),
            headers=[
                (header["name"], _bytes_of("value", header)) for header in document.get("headers") or ()
            ],
            partition=int(document.get("partition", -1)),
            timestamp_ms=int(document.get("timestamp", 0)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise Failure(f"not a message in JSON ({error})") from error


def _bytes_of(name: str, document: dict[str, Any]) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name}_base64: {error}") from error
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # An object, a list or a number as the value: most people's JSON lines carry their payload unquoted.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
